"""The bonus of items: does a newcomer of twice the appeal get its share, and what does trying cost everybody?

    python benchmarks/newcomers.py [--seeds 12] [--first 0] [--rules ...] [--worlds ...] [--flood 200]

The worlds are like that of `benchmarks/item_effects.py`, simulated with the rule that the product has and classes that
are known, so that many fit into a minute: 170 items with effects N(mean, sd^2), known by `before` rewards each, and

    good    a newcomer of twice the mean.  "reached": the seeds in which, after 300 offers of it, its share (over the
            next 300 readers) is 80 % of that under known effects; "ratio": the mean over seeds of the one divided by
            the other, 0 if 4,000 readers do not give it 300 offers; "readers": how many these took (median)
    bad     a newcomer of half the mean: how often 4,000 readers are offered it (mean, largest)
    many    20 newcomers with effects as the others': their share of what the first 500 readers are offered, and the
            reward of these and of all 4,000 readers, as a share of the reward under known effects

A rule is item_bonus:horizon:unlike:share; horizon 0 is the rule before there was one, `unlike` is the share of items
that may be unlike the others (0: none, as before there was one), and `share` is item_share (1 or left out: no limit).
"alike": the effects of the others hardly differ.

With `--flood N`, N newcomers of half the mean come at once, and 40,000 offers follow: the lowest reward of 500 readers
in a row (mean and lowest over seeds) and that of the last 500, as shares of the reward without newcomers; the largest
share of 500 readers' offers that newcomers took; and "found": the seeds in which, if one of the N has 2.5 times the
mean, its share among the last 500 readers is 80 % of that under known effects, and the offers before (median).
"""

from __future__ import annotations

import argparse

import numba
import numpy as np

from lcb.models._item_effects_numba import limit_share, weigh_lifted, weigh_variance
from lcb.models.item_effects import ALIKE, APART, UNLIKE, mix_priors

NOISE, N_OFFERS, N_AFTER, READERS = 0.1, 300, 300, 4000
DULL, BRIGHT, FLOOD_OFFERS, STRETCH = 0.5, 2.5, 40_000, 500
WORLDS = {  # items, mean, sd, likes, shown, before
    "20 shown": (170, 0.10, 0.04, 0.08, 20, 300),
    "5 shown": (170, 0.10, 0.04, 0.08, 5, 300),
    "20 shown, known by 3,000": (170, 0.10, 0.04, 0.08, 20, 3000),
    "5 shown, known by 3,000": (170, 0.10, 0.04, 0.08, 5, 3000),
    "20 shown, likes 0.2": (170, 0.10, 0.04, 0.2, 20, 300),
    "20 shown, sd 0.08": (170, 0.10, 0.08, 0.08, 20, 300),
    "20 shown, rates of 0.05": (170, 0.05, 0.02, 0.03, 20, 300),
    "3 of 12 shown, alike": (12, 0.10, 0.01, 0.08, 3, 300),
    "3 of 12 shown": (12, 0.10, 0.04, 0.08, 3, 300),
    "3 of 40 shown, alike": (40, 0.10, 0.01, 0.08, 3, 300),
    "5 shown, alike": (170, 0.10, 0.01, 0.08, 5, 300),
    "1 of 20 shown": (20, 0.10, 0.04, 0.08, 1, 300),
    "3 of 20 shown": (20, 0.10, 0.04, 0.08, 3, 300),
    "1 of 40 shown, sd 0.08": (40, 0.10, 0.08, 0.08, 1, 300),
}
BOUND = f"1:100000:{UNLIKE}:0.2"
KNOWN = (-1.0, 0.0, 0.0, 1.0)


mix = numba.njit(mix_priors)


@numba.njit
def learn(apart, n, usual, unlike):  # type: ignore[no-untyped-def]
    """Return effect, from the mean of all, and variance of an item whose n rewards are on average so far from it."""
    if unlike > 0:
        return mix(n / NOISE * apart, n / NOISE, usual, APART * NOISE, unlike)
    variance = 1 / (1 / usual + n / NOISE)
    return n / NOISE * apart * variance, variance


@numba.njit
def play(
    rng, n_old, mean, sd, likes, shown, before, readers, n_new, appeal, item_bonus, horizon, unlike, share, dull=0.0
):  # type: ignore[no-untyped-def]
    """Return for every reader how many newcomers were offered, the reward of an offer, and whether the first one was.

    A single newcomer has `appeal` times the mean.  If it is twice, play ends 300 readers after its first 300 offers.
    If `dull` is not 0, the newcomers have `dull` times the mean, and the first one `appeal` times.
    """
    known = item_bonus < 0
    unlike = unlike if sd**2 < ALIKE * NOISE else 0.0
    n = n_old + n_new
    beta = likes * np.array([[1.0, 1.0, 0.0, -1.0, -1.0], [-1.0, -1.0, 0.0, 1.0, 1.0]])
    truth = mean + sd * rng.standard_normal(n)
    if dull:
        truth[n_old:] = dull * mean
    if n_new and (n_new == 1 or dull):
        truth[n_old] = appeal * mean
    start, first = np.full(n, (1 - unlike) * sd**2 + unlike * APART * NOISE), np.full(n, mean)
    told = truth + np.sqrt(NOISE / before) * rng.standard_normal(n)
    for i in range(n_old):
        first[i], start[i] = learn(told[i] - mean, before, sd**2, unlike)
        first[i] += mean
    if known:
        first[:], start[:] = truth, 1e-9
    category = np.arange(n) % 5
    category[n_old : n_old + 1] = 0
    count, total, effect, variance, own = np.zeros(n), np.zeros(n), first.copy(), start.copy(), np.zeros(n)
    offered, reward, of_first = np.zeros(readers), np.zeros(readers), np.zeros(readers)
    liked, spread, scores = np.empty(5), np.empty(5), np.empty(n)
    weight, end, n_offers = max(item_bonus, 0.0) ** 2, readers, 0
    for r in range(readers):
        if r == end:
            return offered[:r], reward[:r], of_first[:r]
        level = variance.mean()
        for i in range(n):
            own[i] = weigh_variance(variance[i], level, weight, horizon, NOISE)
        log_w, left = np.zeros(2), np.ones(n)
        for _ in range(shown):
            w = 1 / (1 + np.exp(log_w[1] - log_w[0]))
            for c in range(5):
                liked[c] = w * beta[0, c] + (1 - w) * beta[1, c]
                spread[c] = w * (1 - w) * (beta[0, c] - beta[1, c]) ** 2
            arm, plain, best = -1, -1, 0.0
            for i in range(n):
                if left[i]:
                    scores[i] = liked[category[i]] + effect[i] + np.sqrt(0.25 * spread[category[i]] + own[i])
                    if arm < 0 or scores[i] > scores[arm]:
                        arm = i
                    score = liked[category[i]] + effect[i] + 0.5 * np.sqrt(spread[category[i]])
                    if plain < 0 or score > best:
                        plain, best = i, score
            if share < 1:
                n_lifted = 0.0
                for i in range(n):
                    if left[i] and scores[i] > scores[plain]:
                        n_lifted += weigh_lifted(variance[i], variance[plain])
                limit = limit_share(n_lifted, share)
                if limit < 1 and rng.random() >= limit:
                    arm = plain
            rate = min(max(truth[arm] + beta[r % 2, category[arm]], 0.0), 1.0)
            got = 1.0 if rng.random() < rate else 0.0
            for h in range(2):
                log_w[h] -= (got - effect[arm] - beta[h, category[arm]]) ** 2 / 2 / NOISE
            count[arm] += 1
            total[arm] += got - liked[category[arm]]
            if arm >= n_old and not known:
                effect[arm], variance[arm] = learn(total[arm] / count[arm] - mean, count[arm], sd**2, unlike)
                effect[arm] += mean
            else:
                size = count[arm] * start[arm] + NOISE
                effect[arm] = first[arm] + start[arm] * (total[arm] - count[arm] * first[arm]) / size
                variance[arm] = start[arm] * NOISE / size
            left[arm] = 0
            reward[r] += rate / shown
            of_first[r] += arm == n_old
            if arm >= n_old:
                offered[r] += 1
                n_offers += 1
                if n_offers == N_OFFERS and n_new == 1 and appeal == 2.0 and not known:
                    end = r + 1 + N_AFTER
    return offered, reward, of_first


def flood(world: tuple[float, ...], rule: tuple[float, ...], seeds: range, n_new: int) -> dict[str, float]:
    readers, worst, last, taken, found, waited = FLOOD_OFFERS // int(world[4]), [], [], [], 0, []
    for seed in seeds:
        before = play(np.random.default_rng(seed), *world, 1000, 0, 0.0, *rule)[1].mean()
        offers, reward, _ = play(np.random.default_rng(seed), *world, readers, n_new, DULL, *rule, DULL)
        stretches = average_stretches(reward) / before
        worst.append(stretches.min())
        last.append(stretches[-1])
        taken.append(average_stretches(offers).max() / world[4])
        known = play(np.random.default_rng(seed), *world, STRETCH, n_new, BRIGHT, *KNOWN, DULL)[2].mean()
        of_first = play(np.random.default_rng(seed), *world, readers, n_new, BRIGHT, *rule, DULL)[2]
        if of_first[-STRETCH:].mean() >= 0.8 * known:
            found += 1
            waited.append(world[4] * int((average_stretches(of_first) >= 0.8 * known).argmax()))
    return {
        "worst 500": float(np.mean(worst)),
        "lowest": min(worst),
        "last 500": float(np.mean(last)),
        "taken": float(np.mean(taken)),
        "most": max(taken),
        "found": found,
        "after": float(np.median(waited)) if waited else np.nan,
    }


def average_stretches(values: np.ndarray) -> np.ndarray:
    total = np.r_[0.0, values.cumsum()]
    return (total[STRETCH:] - total[:-STRETCH]) / STRETCH


def compare(world: tuple[float, ...], rule: tuple[float, ...], seeds: range) -> dict[str, float]:
    ratios, readers, bad, many = [], [], [], []
    for seed in seeds:
        share = play(np.random.default_rng(seed), *world, 800, 1, 2.0, *KNOWN)[0].mean()
        offers = play(np.random.default_rng(seed), *world, READERS, 1, 2.0, *rule)[0]
        enough = offers[:-N_AFTER].sum() >= N_OFFERS
        ratios.append(offers[-N_AFTER:].mean() / share if enough else 0.0)
        readers.append(len(offers) - N_AFTER if enough else READERS)
        bad.append(play(np.random.default_rng(seed), *world, READERS, 1, 0.5, *rule)[0].sum())
        best = play(np.random.default_rng(seed), *world, 800, 20, 0.0, *KNOWN)[1].mean()
        offers, reward, _ = play(np.random.default_rng(seed), *world, READERS, 20, 0.0, *rule)
        many.append((offers[:500].mean() / world[4], reward[:500].mean() / best, reward.mean() / best))
    newcomers, early, whole = np.mean(many, axis=0)
    return {
        "reached": sum(one >= 0.8 for one in ratios),
        "ratio": float(np.mean(ratios)),
        "never": sum(one == 0 for one in ratios),
        "readers": float(np.median(readers)),
        "bad": float(np.mean(bad)),
        "worst bad": max(bad),
        "many": newcomers,
        "reward of 500": early,
        "of all": whole,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rules", nargs="+", default=["0:0:0", "1:0:0", "1:100000:0", f"1:100000:{UNLIKE}", BOUND])
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--flood", type=int, default=0, help="newcomers of half the mean that come at once")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for name in options.worlds:
        for rule in options.rules:
            given = (*map(float, rule.split(":")), 1.0)[:4]
            world = WORLDS[name]
            found = flood(world, given, seeds, options.flood) if options.flood else compare(world, given, seeds)
            print(f"{name:26} {rule:16}", *(f"{key} {value:.4g} " for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
