"""Logs of rewards, written row by row."""

from __future__ import annotations

import numpy as np

from conftest import rows_of
from lcb.models import LatentModels
from lcb.serve import events
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import NewRow, Store

SEED = b"0123456789abcdef"


def service(store: Store, rewards: str = "once", declared: tuple[float, float] | None = None) -> None:
    body = events.ServiceBody(0.0, SEED, rewards, declared, None, None)
    add(store, [NewRow("service", "service", None, None, events.encode(body))])


def add(store: Store, rows: list[NewRow]) -> None:
    store.append(rows, store.head())


def reward(
    user: str, id: str, x: list[float], value: float, before: float | None = None, n: int = 1, item: str | None = None
) -> NewRow:
    body = events.RewardBody(0.0, 1, "lcb", value, 1.0, np.array(x).tobytes(), False, None, before, item=item)
    return NewRow(f"r/{id}" if n == 1 else f"r/{id}#{n}", "reward", user, 0, events.encode(body))


def rewards_of(models: LatentModels, n_users: int, n_rows: int, seed: int = 0, first: int = 0) -> list[NewRow]:
    """Return rewards of `n_users` users, the first of whom has the number `first`."""
    user, x, value, _ = rows_of(models, n_users, n_rows, seed)
    rows = zip(user.tolist(), x.tolist(), value.tolist(), strict=True)
    return [reward(f"u{first + u}", f"d{first}.{i}", row, r) for i, (u, row, r) in enumerate(rows)]


def version(store: Store, number: int, models: LatentModels) -> None:
    manifest, tensors = pack_models(models)
    body = events.ModelBody(0.0, number, manifest, tensors, True, "", 1, None, None)
    add(store, [NewRow(f"model/{number}", "model", None, None, events.encode(body))])
