"""Reads the rewards of a log as statistics to learn from, and decides which users are held out.

Rewards of all recommenders count; of a reward that was changed, only the last value counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import compress
from typing import cast

import numpy as np

from lcb.errors import TooFewRows
from lcb.event_log import EventLog, LogBuilder
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.decide.drawing import draw_number
from lcb.serve.event_ids import changes_reward, is_visitor, slot_of_reward
from lcb.storage.store.base import Row, Store

_BLOCK = 5_000  # rewards added to the statistics at a time


def is_held_out(seed: bytes, user: str, share: float) -> bool:
    """Whether a user is held out for scoring; it depends on name and seed only, so it never changes."""
    return draw_number(seed, f"held-out/{user}") < share


def read_training_data(
    store: Store,
    seq: int,
    rule: str,
    features: tuple[str, ...],
    *,
    closed: Collection[str] = (),
    keep_rows: bool = False,
    progress: Progress = silent,
) -> EventLog:
    """Return the rewards of all users up to `seq`, without those of erased users.

    Rewards that visitors of the pages gave to the recommenders `closed` are left out.  `rule` is the log's rule for
    several rewards of one decision (once, first, sum, last).
    """
    changed = _read_changed(store, seq) if rule in ("sum", "last") else {}
    builder: LogBuilder | None = None
    for rows in _read_blocks(store, seq, progress):
        bodies: list[events.RewardBody] = [events.decode(row.kind, row.body) for row in rows]
        if closed:
            teaches = [
                body.recommender not in closed or not is_visitor(cast(str, row.user))
                for row, body in zip(rows, bodies, strict=True)
            ]
            rows, bodies = list(compress(rows, teaches)), list(compress(bodies, teaches))
            if not rows:
                continue
        x = np.frombuffer(b"".join(body.x for body in bodies)).reshape(len(rows), -1)
        pairs = zip(rows, bodies, strict=True)
        reward = np.array([changed.get(slot_of_reward(row.id), body.reward) for row, body in pairs])
        if builder is None:
            builder = LogBuilder(x.shape[1], features, keep_rows=keep_rows)
        builder.add([cast(str, row.user) for row in rows], x, reward)
    if builder is None:
        raise TooFewRows("no user has given a reward yet; wait for some")
    return builder.build()


def _read_changed(store: Store, seq: int) -> dict[str, float]:
    """Return the final value of every changed reward, by slot."""
    changed = {}
    for row in store.events(0, seq):
        if row.kind == "reward" and changes_reward(row.id):
            changed[slot_of_reward(row.id)] = events.decode(row.kind, row.body).reward
    return changed


def _read_blocks(store: Store, seq: int, progress: Progress) -> Iterator[list[Row]]:
    """Yield the first reward event of every slot, in blocks."""
    block: list[Row] = []
    for row in store.events(0, seq):
        if row.kind == "reward" and not changes_reward(row.id):
            block.append(row)
            if len(block) == _BLOCK:
                progress("reading the log", row.seq, seq)
                yield block
                block = []
    progress("reading the log", seq, seq)
    if block:
        yield block
