"""What one user with very many rewards does to newcomers, beside 200 users of three classes with 20 rewards each.

    python benchmarks/one_user.py

Prints the mean reward per decision of 150 newcomers over 15 steps, by seed, under the classes that a service
learns: those that `lcb.learn` chooses, with their noise shared.
"""

from __future__ import annotations

import warnings

import numpy as np

import lcb
from lcb.serve.learn.worker import share_noise

LIKES = np.array([[0.7, 0.1, 0.1, 0.2], [0.1, 0.7, 0.1, 0.2], [0.1, 0.1, 0.7, 0.2]])  # of each class, by category
N_USERS, N_REWARDS, N_NEW, N_STEPS, SEEDS = 200, 20, 150, 15, 3
RATES = {  # of the one user, by category
    "likes one": np.array([0.0, 0.0, 0.0, 1.0]),
    "at random": np.full(4, 0.5),
    "likes all": np.ones(4),
    "the opposite": 1 - LIKES.mean(axis=0),
}


def draw(rng: np.random.Generator, rates: np.ndarray | None, n: int) -> lcb.EventLog:
    label, user = rng.integers(0, len(LIKES), N_USERS), np.repeat(np.arange(N_USERS), N_REWARDS)
    arm = rng.integers(0, 4, len(user))
    reward = rng.random(len(user)) < LIKES[label[user], arm]  # the same with and without the one
    if rates is not None:
        own = rng.integers(0, 4, n)
        user, arm = np.r_[user, np.full(n, N_USERS)], np.r_[arm, own]
        reward = np.r_[reward, rng.random(n) < rates[own]]
    return lcb.EventLog.from_rows(user, np.eye(4)[arm], reward.astype(float))


def serve(models: lcb.LatentModels, rng: np.random.Generator) -> float:
    bandit, total = lcb.LearnedClasses(models), 0.0
    for _ in range(N_NEW):
        own, state = LIKES[rng.integers(len(LIKES))], bandit.start()
        for _ in range(N_STEPS):
            decision = bandit.choose(state, np.eye(4), rng)
            total += own[decision.arm]
            state = bandit.update(state, decision, float(rng.random() < own[decision.arm]))
    return total / N_NEW / N_STEPS


def main() -> None:
    warnings.simplefilter("ignore")
    for name, n in (("nobody", 0), ("likes one", 500), ("likes one", 2_000), *((name, 20_000) for name in RATES)):
        found = []
        for seed in range(SEEDS):
            log = draw(np.random.default_rng(seed), RATES.get(name), n)
            models = share_noise(lcb.learn(log, rng=np.random.default_rng(seed)).models, log.n_users)
            found.append(serve(models, np.random.default_rng(100 + seed)))
        print(f"{name:12} {n:6,} rewards: {' '.join(f'{one:.3f}' for one in found)}", flush=True)


if __name__ == "__main__":
    main()
