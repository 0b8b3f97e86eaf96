"""Item effects where there are none, and classes where there are none: what does looking for them cost?

    python benchmarks/item_worlds.py [--seeds 3]

300 items of 6 categories and 1,500 users of 60 clicks each.  In the first world all that items differ by are their
categories, and four kinds of users like different ones: `lcb-auto` should do as well as without effects.  In the second
all users are alike and items have an appeal of their own: it should do as well as `popularity`.  Differences are in
percent of the other, paired by user.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from lcb.evaluate.items.evaluate_items import ItemPlan, evaluate_items
from lcb.evaluate.items.labels import ItemLabels

N_ITEMS, N_CATEGORIES, N_USERS, N_LABELS = 300, 6, 1500, 60


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    n_seeds = parser.parse_args().seeds
    for name, world, other in (
        ("no item effects", {"spread": 0.0, "likes": 0.4}, "lcb-auto-no-effects"),
        ("no classes", {"spread": 0.12, "likes": 0.0}, "popularity"),
    ):
        found = compare(draw_labels(1, **world), other, n_seeds)
        print(json.dumps({"world": name, "against": other, **found}), flush=True)


if __name__ == "__main__":
    main()
