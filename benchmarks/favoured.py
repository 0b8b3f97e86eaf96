"""What `lcb learn` makes of the log of a good recommender, by the reward of newcomers.

    python benchmarks/favoured.py [--seeds 10] [--first 0] [--users 500] [--labels 30] [--uniform 0.05]

Two to five kinds of people like 5 to 12 arms at rates from 0.1 to 0.7 in an order of their own.  The log was written by
somebody who knows each user's best arm ("knows"), or by the true classes, which find it out ("learns"); both decide
`uniform` of the time by chance.  Printed: how much one arm has of a user's labels (`favoured` of lcb evaluate), and the
rate of what 300 newcomers are shown in 20 steps, as a share of their best arm's, by

    chosen      what `lcb learn` chooses now
    tried       the best of the candidates that serve held-out users, chosen before for any such log
    one arm     the arm that is best for all
    true        the true classes
"""

from __future__ import annotations

import argparse
from unittest.mock import patch

import numpy as np
from timing import save

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.decision import Decision
from lcb.evaluate.choice import choose as choosing
from lcb.evaluate.choice.serving import find_favour, find_labels
from lcb.event_log import EventLog
from lcb.models import LatentModels

N_NEWCOMERS, N_STEPS = 300, 20


def serve(bandit, rates, n_steps, uniform, rng):  # type: ignore[no-untyped-def]
    """Serve users of these rates (U, K); return how often each was shown and clicked each arm, (U, K) both."""
    x = np.eye(rates.shape[1])
    shown, clicked = np.zeros(rates.shape, int), np.zeros(rates.shape, int)
    for user, own in enumerate(rates):
        state = bandit.start()
        for _ in range(n_steps):
            decision = bandit.choose(state, x, rng)
            if rng.random() < uniform:
                arm = int(rng.integers(len(x)))
                decision = Decision(arm, 1.0, x=x[arm])
            reward = int(rng.random() < own[decision.arm])
            state = bandit.update(state, decision, float(reward))
            shown[user, decision.arm] += 1
            clicked[user, decision.arm] += reward
    return shown, clicked


def draw_log(writer, models, rates, n_labels, uniform, rng):  # type: ignore[no-untyped-def]
    if writer == "learns":
        return serve(PosteriorMean(models, bonus=0.5), rates, n_labels, uniform, rng)
    n_users, n_arms = rates.shape
    drawn = rng.integers(0, n_arms, (n_users, n_labels))
    arm = np.where(rng.random((n_users, n_labels)) < uniform, drawn, rates.argmax(axis=1)[:, None])
    shown = np.stack([np.bincount(row, minlength=n_arms) for row in arm])
    return shown, rng.binomial(shown, rates)


def compare(writer: str, seed: int, n_users: int, n_labels: int, uniform: float) -> dict[str, float | str]:
    rng = np.random.default_rng((seed, 77))
    n_arms, n = int(rng.integers(5, 13)), int(rng.integers(2, 6))
    classes = rng.permuted(np.tile(np.linspace(0.1, 0.7, n_arms), (n, 1)), axis=1)
    pi = rng.dirichlet(np.full(n, 3.0))
    true = LatentModels(pi, classes, np.full(n, 0.2))
    shown, clicked = draw_log(writer, true, classes[rng.choice(n, n_users, p=pi)], n_labels, uniform, rng)
    log = EventLog.from_counts(np.eye(n_arms), clicked, shown - clicked)
    labels = find_labels(log)
    assert labels is not None
    choice = choosing.choose(log, rng=np.random.default_rng(seed))
    with patch.object(choosing, "is_favoured", lambda _: False):
        tried = choosing.choose(log, rng=np.random.default_rng(seed))
    found = {
        name: choosing.learn_chosen(log, one, rng=np.random.default_rng(seed)).models
        for name, one in (("chosen", choice), ("tried", tried))
    }
    newcomers = classes[rng.choice(n, N_NEWCOMERS, p=pi)]
    reached = {}
    for name, models in {**found, "true": true}.items():
        offers, _ = serve(LearnedClasses(models), newcomers, N_STEPS, 0.0, np.random.default_rng((seed, 5)))
        reached[name] = float((offers * newcomers).sum() / N_STEPS / newcomers.max(axis=1).sum())
    reached["one arm"] = float(newcomers.mean(axis=0)[np.argmax(pi @ classes)] / newcomers.max(axis=1).mean())
    return {
        "favoured": find_favour(labels),
        **reached,
        "choice": str(choice.classes),
        "of the tried": str(tried.classes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--labels", type=int, default=30)
    parser.add_argument("--uniform", type=float, default=0.05)
    parser.add_argument("--writers", nargs="+", default=["knows", "learns"], choices=["knows", "learns"])
    asked = parser.parse_args()
    rows = []
    for writer in asked.writers:
        own = []
        for seed in range(asked.first, asked.first + asked.seeds):
            own.append(compare(writer, seed, asked.users, asked.labels, asked.uniform))
            print(writer, seed, {k: round(v, 3) if isinstance(v, float) else v for k, v in own[-1].items()}, flush=True)
        means = {k: float(np.mean([row[k] for row in own])) for k in ("favoured", "chosen", "tried", "one arm", "true")}
        better = sum(row["chosen"] > row["tried"] for row in own)
        rows.append({"writer": writer, "uniform": asked.uniform, "better": better, "of": asked.seeds, **means})
        print(rows[-1], flush=True)
    save("favoured", rows)


if __name__ == "__main__":
    main()
