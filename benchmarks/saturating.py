"""How many classes `lcb learn --learner em` finds where click rates are not linear in the categories of an item.

    python benchmarks/saturating.py [--seeds 3] [--users 1500] [--events 100] [--worlds mean,...]

60 items of 1 to 3 of 10 categories, 5 classes of people (1 in the world `alike`); in the worlds `sum` and `alike` rates
are cut at 0.98.  Printed for each world and seed: the
features chosen, the number of classes found with them, the number after asking whether a feature for each item predicts
held-out users better, the CPU time of both together, and the mean reward of 500 new users of 20 steps (posterior mean)
with either number.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from timing import save

from lcb.arrays import Floats
from lcb.bandits.bandit import serve
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.errors import ConvergenceWarning
from lcb.evaluate.offline.history import LabelledRows, choose_features, count_classes_by_item
from lcb.features import FeatureMap
from lcb.learners import fit
from lcb.models import LatentModels

N_ITEMS, N_CATEGORIES, N_CLASSES, N_NEW, N_STEPS = 60, 10, 5, 500, 20
KINDS = ("mean", "noisy-or", "logistic", "sum", "alike")


def draw_rates(kind: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the categories of the items, 0/1 (I, C), and the rates of every class for them, (N, I)."""
    member = np.zeros((N_ITEMS, N_CATEGORIES))
    for row in member:
        row[rng.choice(N_CATEGORIES, rng.integers(1, 4), replace=False)] = 1
    own = rng.beta(0.5, 1, (N_CLASSES, N_CATEGORIES))
    if kind == "mean":
        rates = own @ (member / member.sum(axis=1, keepdims=True)).T
    elif kind == "noisy-or":
        rates = 1 - np.prod(np.where(member[None] > 0, 1 - own[:, None], 1), axis=2)
    elif kind == "logistic":
        rates = 1 / (1 + np.exp(0.5 - rng.normal(0, 1.5, own.shape) @ member.T))
    else:
        rates = (own[:1] if kind == "alike" else own) @ member.T
    return member, np.clip(rates, 0.01, 0.98)


def measure(kind: str, seed: int, n_users: int, n_events: int) -> dict[str, object]:
    rng = np.random.default_rng((seed, 0x5A))
    member, rates = draw_rates(kind, rng)
    user, item = np.repeat(np.arange(n_users), n_events), rng.integers(0, N_ITEMS, n_users * n_events)
    reward = (rng.random(len(user)) < rates[rng.integers(0, len(rates), n_users)[user], item]).astype(np.float64)
    rows = LabelledRows(tuple(f"c{i}" for i in range(N_CATEGORIES)), member, user, item, reward)
    began = time.process_time()
    features, _ = choose_features(rows)
    before = fit(rows.history(features), rng=0).models
    n_classes, _ = count_classes_by_item(rows, features)
    seconds = time.process_time() - began
    after = fit(rows.history(features), n_classes, rng=0).models if n_classes else before
    new = rates[rng.integers(0, len(rates), N_NEW)]
    return {
        "world": kind,
        "seed": seed,
        "features": features.spec,
        "before": before.n_classes,
        "after": after.n_classes,
        "seconds": round(seconds, 1),
        "reward_before": round(serve_new(before, features, member, new, seed), 3),
        "reward_after": round(serve_new(after, features, member, new, seed), 3),
    }


def serve_new(models: LatentModels, features: FeatureMap, member: Floats, rates: Floats, seed: int) -> float:
    """Return the mean rate of the items that new users of these rates (U, I) were shown."""
    rng = np.random.default_rng((seed, 0x5B))
    x, bandit = features(member), PosteriorMean(models)
    rewards = (rng.random((len(rates), N_STEPS, N_ITEMS)) < rates[:, None]).astype(np.float64)
    contexts = np.ascontiguousarray(np.broadcast_to(x, (*rewards.shape, x.shape[1])))
    _, arms = serve(bandit, np.tile(bandit.start(), (len(rates), 1)), contexts, rewards, rng)
    return float(np.take_along_axis(rates, arms, axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--events", type=int, default=100, help="events of each user")
    parser.add_argument("--worlds", default=",".join(KINDS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = []
    for kind in asked.worlds.split(","):
        for seed in range(asked.seeds):
            found.append(measure(kind, seed, asked.users, asked.events))
            print(found[-1], flush=True)
    save("saturating", found)


if __name__ == "__main__":
    main()
