"""Logs of items with several categories, drawn from known classes of people."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_log(out: Path, *, combine: str, n_classes: int, n_users: int = 600, n_events: int = 30_000, seed: int = 0):
    """Write a log of 40 items with 1 to 3 of 8 categories, shown at random, and return its click rates (N, items).

    A person clicks with the mean of the rates of the item's categories, or with their sum; `saturate` has larger rates,
    whose sum is cut at 0.98.
    """
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 0.3 if combine == "sum" else 0.95, (n_classes, 8))
    member = np.zeros((40, 8))
    for row in member:
        row[rng.choice(8, size=rng.choice([1, 2, 3], p=[0.5, 0.35, 0.15]), replace=False)] = 1
    p = np.minimum(rates @ member.T / (member.sum(axis=1) if combine == "mean" else 1), 0.98)
    user, item = np.sort(rng.integers(n_users, size=n_events)), rng.integers(40, size=n_events)
    reward = (rng.random(n_events) < p[user % n_classes, item]).astype(float)
    out.mkdir()
    events = {"user": user, "item": item, "reward": reward, "propensity": np.full(n_events, 1 / 40)}
    pq.write_table(pa.table(events), out / "events.parquet")
    items = {"item": np.arange(40), "categories": [np.flatnonzero(row).tolist() for row in member]}
    pq.write_table(pa.table(items), out / "items.parquet")
    (out / "categories.json").write_text(json.dumps([f"c{j}" for j in range(8)]))
    return p, member
