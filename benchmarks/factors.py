"""How far should factors of items be shrunk?  EM's tau against multiples of it, by serving held-out users.

    python benchmarks/factors.py

400 items of uneven popularity have 3 hidden factors and an appeal of their own; 1,201 users have 40 clicks each.
`lcb-auto` serves with `factors:3`, whose last step for the items has tau times `c`.  Differences to c = 1 are in
percent, paired by user.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.evaluate.items.evaluate_items import ItemPlan, evaluate_items
from lcb.evaluate.items.labels import ItemLabels
from lcb.learners.effects import factors

N_ITEMS, N_USERS, N_LABELS = 400, 1201, 40


def draw_labels(seed: int) -> ItemLabels:
    rng = np.random.default_rng(seed)
    q, p = 0.12 * rng.normal(size=(N_ITEMS, 3)), rng.normal(size=(N_USERS, 3))
    appeal, often = rng.normal(0.0, 0.1, N_ITEMS), 1 / np.arange(1, N_ITEMS + 1) ** 0.7
    often /= often.sum()
    user = np.repeat(np.arange(N_USERS), N_LABELS)
    item = np.concatenate([np.sort(rng.choice(N_ITEMS, N_LABELS, replace=False, p=often)) for _ in range(N_USERS)])
    rate = 0.35 + appeal[item] + (q[item] * p[user]).sum(axis=1)
    reward = (rng.random(len(user)) < np.clip(rate, 0.02, 0.98)).astype(float)
    return ItemLabels(tuple(map(str, range(N_ITEMS))), (), np.zeros((N_ITEMS, 0)), user, item, reward)


def serve(labels: list[ItemLabels], c: float) -> Floats:
    """Return the mean reward of every test user where tau is multiplied by `c` in the last step for the items."""
    find_side, n_steps = factors._find_side, 0

    def scaled(seen: Any, values: Any, other: Floats, square: Floats, tau: Floats, noise: float) -> Any:
        nonlocal n_steps
        if seen.shape[0] == N_ITEMS:
            n_steps += 1
            tau = tau * c if n_steps % factors._STEPS == 0 else tau
        return find_side(seen, values, other, square, tau, noise)

    factors._find_side = scaled
    try:
        plan = ItemPlan(algorithms=("lcb-auto",), features="factors:3")
        return np.concatenate(
            [evaluate_items(one, plan, n_seeds=1, n_workers=1).outcomes[0].rate.ravel() for one in labels]
        )
    finally:
        factors._find_side = find_side


def main() -> None:
    labels = [draw_labels(seed) for seed in (1, 2)]
    base = serve(labels, 1.0)
    for c in (0.1, 0.3, 3.0, 10.0):
        difference = (serve(labels, c) - base) / base.mean()
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        print(json.dumps({"c": c, "percent": 100 * float(difference.mean()), "error": 100 * float(error)}), flush=True)


if __name__ == "__main__":
    main()
