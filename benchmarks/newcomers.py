"""Rules for the bonus of items: does a newcomer of twice the appeal get its share, and what does trying cost everybody?

    python benchmarks/newcomers.py [--seeds 12]

The worlds are like that of `benchmarks/item_effects.py`, simulated with the compiled rule and classes that are known,
so that many fit into a minute: 170 items with effects N(mean, sd^2), known by `before` rewards each, and a newcomer of
twice the mean.  "reached" counts the seeds in which the newcomer has, after 300 offers, 80 % of the share that it has
under known effects; it has none if 4,000 readers do not give it 300 offers.  "reward" is that of all readers as a share
of that under known effects.
"""

from __future__ import annotations

import argparse

import numba
import numpy as np

from lcb._item_effects_numba import add_effects_to_spread

N, NOISE, N_OFFERS, N_AFTER = 170, 0.1, 300, 300
RULES = {
    "item_bonus 1, no lift": (1.0, 0.0),
    "item_bonus 2, no lift": (2.0, 0.0),
    "item_bonus 1": (1.0, 4.0),
    "item_bonus 2": (2.0, 4.0),
}
NEWCOMER = {  # mean, sd, likes, shown, before, readers
    "20 shown": (0.10, 0.04, 0.08, 20, 300, 4000),
    "5 shown": (0.10, 0.04, 0.08, 5, 300, 4000),
    "20 shown, likes 0.2": (0.10, 0.04, 0.2, 20, 300, 4000),
    "20 shown, sd 0.08": (0.10, 0.08, 0.08, 20, 300, 4000),
    "20 shown, rates of 0.05": (0.05, 0.02, 0.03, 20, 300, 4000),
}
YOUNG = {
    "all new, 20 shown, 300 readers": (0.10, 0.04, 0.08, 20, 0, 300),
    "all new, 20 shown, 3,000 readers": (0.10, 0.04, 0.08, 20, 0, 3000),
    "all new, 5 shown, sd 0.1": (0.10, 0.10, 0.08, 5, 0, 3000),
    "30 rewards each, 20 shown": (0.10, 0.04, 0.08, 20, 30, 3000),
    "30 rewards each, 5 shown": (0.10, 0.04, 0.08, 5, 30, 3000),
}


@numba.njit
def play(rng, mean, sd, likes, shown, before, readers, item_bonus, rise, known):  # type: ignore[no-untyped-def]
    """Return for every reader whether the newcomer was offered, and the mean expected reward of an offer."""
    beta = likes * np.array([[1.0, 1.0, 0.0, -1.0, -1.0], [-1.0, -1.0, 0.0, 1.0, 1.0]])
    truth, first, start = np.empty(N + 1), np.empty(N + 1), np.full(N + 1, 1e-9)
    for i in range(N):
        truth[i] = mean + sd * rng.standard_normal()
    truth[N] = 2 * mean
    first[:] = truth
    if not known:
        start[:] = 1 / (1 / sd**2 + before / NOISE)
        start[N] = sd**2
        for i in range(N):
            told = truth[i] + np.sqrt(NOISE / max(before, 1e-9)) * rng.standard_normal()
            first[i] = (mean / sd**2 + told * before / NOISE) * start[i]
        first[N] = mean
    count, total, offered, reward = np.zeros(N + 1), np.zeros(N + 1), np.zeros(readers), 0.0
    means, spread, category = np.empty(N + 1), np.empty(N + 1), np.arange(N + 1) % 5
    category[N] = 0
    for r in range(readers):
        log_w, left = np.zeros(2), np.ones(N + 1)
        for _ in range(shown):
            w = 1 / (1 + np.exp(log_w[1] - log_w[0]))
            size = count * start + NOISE
            effect, variance = first + start * (total - count * first) / size, start * NOISE / size
            for i in range(N + 1):
                a, b = beta[0, category[i]], beta[1, category[i]]
                means[i] = w * a + (1 - w) * b if left[i] else -1e3
                spread[i] = w * (1 - w) * (a - b) ** 2
            arm, _ = add_effects_to_spread(spread, means, 0.5, effect, variance, item_bonus**2, rise)
            rate = min(max(truth[arm] + beta[r % 2, category[arm]], 0.0), 1.0)
            got = 1.0 if rng.random() < rate else 0.0
            count[arm] += 1
            total[arm] += got - means[arm]
            for h in range(2):
                log_w[h] -= (got - effect[arm] - beta[h, category[arm]]) ** 2 / 2 / NOISE
            left[arm] = 0
            reward += rate
            offered[r] += arm == N
    return offered, reward / (readers * shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    n_seeds = parser.parse_args().seeds
    for name, world in (NEWCOMER | YOUNG).items():
        best = [play(np.random.default_rng(seed), *world[:-1], 600, 1.0, 0.0, True) for seed in range(n_seeds)]
        for rule, (item_bonus, rise) in RULES.items():
            ratios, rewards = [], []
            for seed in range(n_seeds):
                offered, reward = play(np.random.default_rng(seed), *world, item_bonus, rise, False)
                at = int(np.searchsorted(offered.cumsum(), N_OFFERS))
                enough = at + N_AFTER <= len(offered)
                ratios.append(offered[at : at + N_AFTER].mean() / max(best[seed][0].mean(), 1e-9) if enough else 0.0)
                rewards.append(reward / best[seed][1])
            told = f"reached {sum(one >= 0.8 for one in ratios)} of {n_seeds}, mean {np.mean(ratios):.2f}"
            told = told if name in NEWCOMER else ""
            print(f"{name:34} {rule:22} reward {np.mean(rewards):.4f}  {told}", flush=True)


if __name__ == "__main__":
    main()
