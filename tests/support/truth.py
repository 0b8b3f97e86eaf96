"""The true gain of an algorithm over Population LinUCB in a generated world, and the log of that world as a folder."""

from __future__ import annotations

import json
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.evaluate.algorithms import ALGORITHMS
from lcb.evaluate.offline.evaluate_log import prepare_training
from lcb.evaluate.offline.split import split_users
from lcb.evaluate.worlds.logged import serve_live


def true_gain(world, source, plan, algorithm, *, seed=0, n_users=1500):
    """Train as `evaluate_log` does on one split, then serve new users with their true rates; percent."""
    rates = world.arm_rates(world.draw_users(n_users, np.random.default_rng((seed, 1))))
    split, means = split_users(source, plan, seed), []
    for name in (algorithm, "linucb-population"):
        prepared = prepare_training(source, plan, split, seed)
        own, serving = np.random.default_rng((seed, crc32(name.encode()))).spawn(2)
        recommender = ALGORITHMS[name].build_for(prepared.task, own, {})
        means.append(serve_live(recommender, prepared.x, rates, plan.n_steps, serving).mean())
    return 100 * (means[0] / means[1] - 1)


def write_folder(log, folder):
    """Write a log in memory to files that `lcb evaluate` reads."""
    folder.mkdir()
    events = {"user": log.user, "order": log.order, "item": log.item, "reward": log.reward}
    pq.write_table(pa.table({**events, "propensity": log.propensity}), folder / "events.parquet")
    categories = [row.nonzero()[0].tolist() for row in log.item_categories.toarray()]
    items = pa.table({"item": np.arange(log.n_items), "categories": categories})
    pq.write_table(items, folder / "items.parquet")
    (folder / "categories.json").write_text(json.dumps(list(log.categories)))
    return folder
