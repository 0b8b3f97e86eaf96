"""Item effects where there are none, and classes where there are none: what does looking for them cost?

    python benchmarks/item_worlds.py [--seeds 3] [--first 1] [--only cost|coverage]

300 items of 6 categories and 1,500 users of 60 clicks each.  In the first world all that items differ by are their
categories, and four kinds of users like different ones: `lcb-auto` should do as well as without effects.  In the second
all users are alike and items have an appeal of their own: it should do as well as `popularity`.  Differences are in
percent of the other, paired by user.

Then: in how many of 100 cases does the 95 % interval of an effect cover the planted one, compared within categories?
60 items of 6 categories, 4 classes of people; clicks have rates of 0.15 and less, cut at 0.01; "by taste" shows people
what they like more often.  "highest" are the third of the items with the highest effects.  "cover" is about the effect
before rates are cut, "cover what is left" about what the item adds to the rates that people really have.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from lcb.arrays import Floats
from lcb.evaluate.items.evaluate_items import ItemPlan, evaluate_items
from lcb.evaluate.items.labels import ItemLabels
from lcb.learners import fit
from lcb.learners.effects.learn import learn_with_effects
from lcb.learners.effects.rows import ItemRows

N_ITEMS, N_CATEGORIES, N_USERS, N_LABELS = 300, 6, 1500, 60
COVERAGE = {  # is it clicks, users, by taste
    "numbers": (False, 1500, False),
    "numbers, by taste": (False, 1500, True),
    "numbers, 300 users": (False, 300, False),
    "clicks": (True, 1500, False),
    "clicks, by taste": (True, 1500, True),
    "clicks, 300 users": (True, 300, False),
}


def draw_labels(seed: int, *, spread: float, likes: float) -> ItemLabels:
    rng = np.random.default_rng(seed)
    category = np.arange(N_ITEMS) % N_CATEGORIES
    appeal = spread * rng.normal(size=N_ITEMS)
    taste = likes * np.where(rng.random((4, N_CATEGORIES)) < 0.3, 1.0, 0.0)
    user = np.repeat(np.arange(N_USERS), N_LABELS)
    item = np.concatenate([np.sort(rng.permutation(N_ITEMS)[:N_LABELS]) for _ in range(N_USERS)])
    rate = 0.3 + appeal[item] + taste[rng.integers(0, 4, N_USERS)[user], category[item]]
    reward = (rng.random(len(user)) < np.clip(rate, 0.02, 0.98)).astype(float)
    names = tuple(f"c{i}" for i in range(N_CATEGORIES))
    return ItemLabels(tuple(map(str, range(N_ITEMS))), names, np.eye(N_CATEGORIES)[category], user, item, reward)


def compare(labels: ItemLabels, other: str, n_seeds: int) -> dict[str, float]:
    found = evaluate_items(labels, ItemPlan(algorithms=("lcb-auto", other)), n_seeds=n_seeds, n_workers=1)
    rates = {one.algorithm: one.rate.ravel() for one in found.outcomes}
    difference, base = rates["lcb-auto"] - rates[other], rates[other].mean()
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return {"percent": 100 * float(difference.mean() / base), "error": 100 * float(error / base)}


def draw_rows(seed: int, n_users: int, *, clicks: bool, by_taste: bool) -> tuple[ItemRows, Floats, Floats]:
    """Return rewards of 20 items per user, the planted effects, and what the cut of the rates leaves of them."""
    rng = np.random.default_rng(seed)
    category, appeal = np.arange(60) % N_CATEGORIES, rng.normal(0.0, 0.1, 60)
    rate = 0.15 + appeal + 0.3 * (rng.random((4, N_CATEGORIES)) < 0.3)[:, category]
    shown = np.exp(rate / 0.3) if by_taste else np.ones_like(rate)
    shown = np.cumsum(shown / shown.sum(axis=1, keepdims=True), axis=1)
    label = np.repeat(rng.integers(0, 4, n_users), 20)
    item = (shown[label] < rng.random((len(label), 1))).sum(axis=1).clip(0, 59)
    mean = rate[label, item]
    drawn = rng.random(len(mean)) < np.clip(mean, 0.01, 0.99) if clicks else mean + rng.normal(0.0, 0.4, len(mean))
    rows = ItemRows(
        tuple(map(str, range(60))),
        np.eye(N_CATEGORIES)[category],
        np.repeat(np.arange(n_users), 20),
        item,
        drawn.astype(float),
    )
    left = appeal + (np.clip(rate, 0.01, 0.99) - rate).mean(axis=0) if clicks else appeal
    return rows, appeal, left


def measure_coverage(name: str, seeds: range) -> dict[str, float]:
    clicks, n_users, by_taste = COVERAGE[name]
    inside, inside_left, high = [], [], []
    for seed in seeds:
        rows, appeal, left = draw_rows(seed, n_users, clicks=clicks, by_taste=by_taste)
        found = learn_with_effects(rows, lambda log, last: fit(log, 4, rng=0, learner="em", likelihood="gaussian"))
        effects = found.models.item_effects
        assert effects is not None
        planted, real, told = map(within_category, (appeal, left, effects.effect))
        half = 1.96 * np.sqrt(effects.variance)
        inside.append(np.abs(told - planted) <= half)
        inside_left.append(np.abs(told - real) <= half)
        high.append(planted >= np.quantile(planted, 2 / 3))
    return {
        "intervals": len(seeds) * 60,
        "cover": float(np.mean(inside)),
        "cover what is left": float(np.mean(inside_left)),
        "highest": float(np.array(inside_left)[np.array(high)].mean()),
    }


def within_category(values: Floats) -> Floats:
    by_category = values.reshape(-1, N_CATEGORIES)
    return np.asarray(by_category - by_category.mean(axis=0)).ravel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the seed of the worlds, or the first of them")
    parser.add_argument("--only", choices=["cost", "coverage"])
    options = parser.parse_args()
    costs = (
        ("no item effects", {"spread": 0.0, "likes": 0.4}, "lcb-auto-no-effects"),
        ("no classes", {"spread": 0.12, "likes": 0.0}, "popularity"),
    )
    for name, world, other in costs if options.only != "coverage" else ():
        found = compare(draw_labels(options.first, **world), other, options.seeds)
        print(json.dumps({"world": name, "against": other, **found}), flush=True)
    for name in COVERAGE if options.only != "cost" else ():
        print(
            json.dumps({"world": name, **measure_coverage(name, range(options.first, options.first + 10))}), flush=True
        )


if __name__ == "__main__":
    main()
