"""Compute what the files of tests/compatibility/data hold, as plain JSON: python tests/compatibility/facts.py DATA

DATA/expected.json was computed by the code that made the files, with the same statements as here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import lcb
from lcb.serve.audit.export import export
from lcb.serve.audit.verify import verify
from lcb.serve.state.world import World
from lcb.storage.logs.log import open_log
from lcb.storage.models.folder import load_feature_map
from lcb.storage.store.base import Store
from lcb.storage.store.sqlite.store import SQLite

DATA = Path(__file__).with_name("data")
STORES = ("once.db", "vectors.db", "sum.db", "last.db")
MODELS = ("named", "clicks", "pca", "one_hot", "covariance")
LOGS = ("log", "clicks.parquet", "exported", "exported.parquet")
TABLES: dict[str, dict[str, Any]] = {
    "events.csv": {"columns": ["hour", "age"]},
    "clicks.jsonl": {},
    "clicks.parquet": {"columns": ["x0", "x1"], "user_columns": ["x2"]},
    "exported_vectors/events.parquet": {},
}
_NEW_COLUMNS = ("offered", "distribution")  # of an export, which earlier code did not write
_COUNTS = ("upto", "n_events", "n_decisions", "n_erased", "n_rewards", "n_users", "n_snapshots", "n_models")


def all_facts(data: Path) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        stores = {name: store_facts(shutil.copy(data / name, folder)) for name in STORES}
    return {
        "stores": stores,
        "models": {name: model_facts(data / "models" / name) for name in MODELS},
        "logs": {name: log_facts(data / name) for name in LOGS},
        "tables": {name: table_facts(data / name, options) for name, options in TABLES.items()},
    }


def store_facts(path: str | Path) -> dict[str, Any]:
    """`path` is a copy: opening a store writes beside it."""
    store = SQLite(path)
    try:
        report = verify(store)
        from_log, from_snapshots = fold(store, snapshots=False), fold(store, snapshots=True)
        with TemporaryDirectory() as folder:
            export(store, Path(folder, "out"))
            exported = rows_digest(Path(folder, "out", "events.parquet"))
        return {
            "verify": {name: getattr(report, name) for name in _COUNTS},
            "differences": [str(one) for one in report.differences],
            "rows": digest(repr(tuple(row)).encode() for row in store.events(0)),
            "kinds": sorted({row.kind for row in store.events(0)}),
            "users": users_facts(store, from_log),
            "users_from_snapshots": users_facts(store, from_snapshots) == users_facts(store, from_log),
            "shared": {name: state.tobytes().hex() for name, state in sorted(from_log.shared.states.items())},
            "items": [[item.id, item.x, item.categories, item.title] for item in from_log.state.catalogue.list_items()],
            "versions": [sorted(from_log.state.versions), from_log.state.activations],
            "keys": [[key.name, key.scope, key.sha256.hex(), key.revoked is None] for key in store.list_keys()],
            "export": exported,
        }
    finally:
        store.close()


class _WithoutSnapshots:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, name: str) -> None:
        return None


def fold(store: Store, *, snapshots: bool) -> World:
    world = World(store if snapshots else _WithoutSnapshots(store))  # type: ignore[arg-type]
    world.load()
    return world


def users_facts(store: Store, world: World) -> dict[str, str]:
    """The packed state of every user, in hexadecimal."""
    found = {name: world.user(name) for name in store.users()}
    return {name: user.pack().hex() for name, user in found.items() if user is not None}


def model_facts(folder: Path) -> dict[str, Any]:
    models, features = lcb.load_models(folder), load_feature_map(folder)
    return {
        "pi": models.pi.tolist(),
        "beta": models.beta.tolist(),
        "sigma2": models.sigma2.tolist(),
        "covariance": None if models.covariance is None else models.covariance.tolist(),
        "features": list(models.features),
        "likelihood": models.likelihood,
        "levels": models.levels and list(models.levels),
        "provenance": dict(models.provenance),
        "feature_map": features and features.to_json(),
        "mapped": features and features(np.eye(len(features.categories))).tolist(),
    }


def log_facts(path: Path) -> dict[str, Any]:
    log = open_log(path)
    arrays = {name: getattr(log, name) for name in ("user", "item", "order", "rating", "reward", "propensity", "x")}
    return {
        "users": log.users.to_pylist(),
        "items": log.items.to_pylist(),
        "titles": log.titles and log.titles.to_pylist(),
        "categories": list(log.categories),
        "item_categories": log.item_categories.toarray().astype(int).tolist(),
        "features": list(log.features),
        "arrays": {name: values_facts(values) for name, values in arrays.items() if values is not None},
    }


def table_facts(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    events = lcb.read_log(path, **options)
    stats = events.stats
    return {
        "users": list(stats.users),
        "features": list(stats.features),
        "packed": values_facts(stats.packed),
        "levels": events.clicks and [events.clicks.low, events.clicks.high],
        "clicked": events.clicks and events.clicks.clicked.toarray().tolist(),
    }


def values_facts(values: Any) -> list[Any]:
    """Type, shape and digest."""
    return [str(values.dtype), list(values.shape), digest([np.ascontiguousarray(values).tobytes()])]


def rows_digest(path: Path) -> list[Any]:
    table = pq.read_table(path)
    table = table.drop_columns([name for name in _NEW_COLUMNS if name in table.column_names])
    return [table.num_rows, table.column_names, digest(repr(row).encode() for row in table.to_pylist())]


def digest(parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


if __name__ == "__main__":
    Path(sys.argv[1], "expected.json").write_text(json.dumps(all_facts(Path(sys.argv[1])), indent=0) + "\n")
