"""How many classes `lcb learn --learner em` finds in logs of so many kinds of people.

    python benchmarks/n_classes.py [--seeds 20] [--first 0] [--classes 1,2,3,5] [--rewards clicks,normal,ratings,...]
        [--categories 1,3] [--sizes 200x10,200x40,2000x40] [--logging uniform]

10 categories; with 3 categories 60 items of 1 to 3, whose means are averaged, else one item each.  A size is users x
events per user (Poisson).  `ratings` are 1 to 5, `tails` has Student's t noise of 3 degrees, `skewed` exponential
rewards.  `--logging taste` shows a user up to 20 times as often what they like.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array
from timing import save

from lcb.errors import ConvergenceWarning
from lcb.evaluate.offline.history import read_history
from lcb.evaluate.offline.learn_classes import LearningData, learn_classes
from lcb.storage.logs.log import Log

N_CATEGORIES, N_MIXED = 10, 50
REWARDS = {
    "clicks": lambda mean, rng: rng.random(len(mean)) < mean,
    "normal": lambda mean, rng: mean + 0.5 * rng.standard_normal(len(mean)),
    "ratings": lambda mean, rng: np.clip(np.round(1 + 4 * mean + rng.standard_normal(len(mean))), 1, 5),
    "tails": lambda mean, rng: mean + 0.3 * rng.standard_t(3, len(mean)),
    "skewed": lambda mean, rng: mean * rng.exponential(1, len(mean)),
}


def draw_log(
    n_classes: int, rewards: str, most_categories: int, n_users: int, n_events: int, seed: int, logging: str
) -> Log:
    rng = np.random.default_rng((seed, n_classes, n_users, n_events, most_categories))
    own = rng.beta(0.6, 1.2, (n_classes, N_CATEGORIES)).clip(0.02, 0.98)
    member = np.eye(N_CATEGORIES)
    if most_categories > 1:
        mixed = np.zeros((N_MIXED, N_CATEGORIES))
        for row in mixed:
            row[rng.choice(N_CATEGORIES, rng.integers(1, most_categories + 1), replace=False)] = 1
        member = np.concatenate([member, mixed])
    rates = own @ (member / member.sum(axis=1, keepdims=True)).T
    kind = rng.integers(0, n_classes, n_users)
    user = np.repeat(np.arange(n_users, dtype=np.int32), np.maximum(rng.poisson(n_events, n_users), 1))
    chance = np.exp(3 * rates) if logging == "taste" else np.ones_like(rates)
    edges = (chance / chance.sum(axis=1, keepdims=True)).cumsum(axis=1)
    item = (rng.random(len(user))[:, None] > edges[kind[user]]).sum(axis=1).clip(0, len(member) - 1)
    return Log(
        users=pa.array(np.arange(n_users)),
        items=pa.array(np.arange(len(member))),
        categories=tuple(f"c{i}" for i in range(N_CATEGORIES)),
        item_categories=csr_array(member.astype(bool)),
        user=user,
        item=item.astype(np.int32),
        order=np.arange(len(user)),
        reward=REWARDS[rewards](rates[kind[user], item], rng).astype(np.float32),
    )


def find_n_classes(log: Log, seed: int) -> int:
    history = read_history(log)
    data = LearningData("log", history.log, history.read, history.feature_map, history=history)
    return learn_classes(data, seed=seed, learner="em").models.n_classes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--classes", default="1,2,3,5")
    parser.add_argument("--rewards", default=",".join(REWARDS))
    parser.add_argument("--categories", default="1,3")
    parser.add_argument("--sizes", default="200x10,200x40,2000x40")
    parser.add_argument("--logging", choices=["uniform", "taste"], default="uniform")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for n_classes in map(int, asked.classes.split(",")):
        for rewards in asked.rewards.split(","):
            for most in map(int, asked.categories.split(",")):
                for size in asked.sizes.split(","):
                    n_users, n_events = map(int, size.split("x"))
                    began, found = time.process_time(), []
                    for seed in range(asked.first, asked.first + asked.seeds):
                        log = draw_log(n_classes, rewards, most, n_users, n_events, seed, asked.logging)
                        found.append(find_n_classes(log, seed))
                    rows.append(
                        {
                            "classes": n_classes,
                            "rewards": rewards,
                            "categories": most,
                            "size": size,
                            "right": found.count(n_classes),
                            "found": found,
                            "seconds": round((time.process_time() - began) / len(found), 1),
                        }
                    )
                    print(rows[-1], flush=True)
    save("n_classes", rows)


if __name__ == "__main__":
    main()
