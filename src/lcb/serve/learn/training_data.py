"""Reads the rewards of a log as statistics to learn from, and decides which users are held out.

Rewards of all recommenders count; of a reward that was changed, only the last value counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from itertools import compress
from typing import cast

import numpy as np

from lcb.arrays import Floats
from lcb.errors import TooFewRows
from lcb.event_log import EventLog, LogBuilder
from lcb.learners.effects.rows import ItemRows
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.chance import draw_number
from lcb.serve.event_ids import changes_reward, is_visitor, slot_of_reward
from lcb.serve.read_event import read_event
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
    builder: LogBuilder | None = None
    for rows, _, x, reward in _read_rewards(store, seq, rule, closed, progress):
        if builder is None:
            builder = LogBuilder(x.shape[1], features, keep_rows=keep_rows)
        builder.add([cast(str, row.user) for row in rows], x, reward)
    if builder is None:
        raise _build_empty_error(closed)
    return builder.build()


def read_item_rows(
    store: Store,
    seq: int,
    rule: str,
    features: tuple[str, ...],
    *,
    closed: Collection[str] = (),
    progress: Progress = silent,
) -> tuple[ItemRows, tuple[str, ...]]:
    """Return the same rewards with their items, one by one, and the names of the users.

    An item whose features have changed is several items here.  The one that most users have rated has its id, of equals
    the newest: a few who send other features for an id do not decide alone what its effect is.  The others, and rewards
    of unknown items, get ids that no item can have (`is_made_up`).
    """
    users: dict[str, int] = {}
    kinds: dict[tuple[str, bytes], int] = {}  # of items: id and features
    newest: dict[str, int] = {}
    x: list[Floats] = []
    user_of, kind_of, reward_of = array("q"), array("q"), array("d")
    for rows, bodies, vectors, reward in _read_rewards(store, seq, rule, closed, progress):
        for row, body, vector in zip(rows, bodies, vectors, strict=True):
            id = body.item or ""
            kind = kinds.setdefault((id, body.x), len(kinds))
            if kind == len(x):
                x.append(vector)
            newest[id] = kind
            user_of.append(users.setdefault(cast(str, row.user), len(users)))
            kind_of.append(kind)
        reward_of.extend(reward.tolist())
    if not users:
        raise _build_empty_error(closed)
    order = np.argsort(user_of, kind="stable")
    user, item, reward = (np.array(one)[order] for one in (user_of, kind_of, reward_of))
    n_users = np.bincount(np.unique(user * len(kinds) + item) % len(kinds), minlength=len(kinds)).tolist()
    usual: dict[str, int] = {}
    for (id, _), kind in kinds.items():
        before = usual.setdefault(id, kind)
        if (n_users[kind], kind == newest[id]) >= (n_users[before], before == newest[id]):
            usual[id] = kind
    ids = tuple(id if id and usual[id] == kind else f"\0{kind}" for (id, _), kind in kinds.items())
    return ItemRows(ids, np.array(x), user, item, reward, features), tuple(users)


def is_made_up(id: str) -> bool:
    """Whether an id is of `read_item_rows`, not of an item."""
    return id.startswith("\0")


def _build_empty_error(closed: Collection[str]) -> TooFewRows:
    who = f"no user but visitors, who do not teach {', '.join(sorted(closed))}," if closed else "no user"
    return TooFewRows(f"{who} has given a reward yet; wait for some{', or set teach' if closed else ''}")


def _read_rewards(
    store: Store, seq: int, rule: str, closed: Collection[str], progress: Progress
) -> Iterator[tuple[list[Row], list[events.RewardBody], Floats, Floats]]:
    """Yield the rewards of those who teach, in blocks: events, bodies, features (n, d) and final values (n,)."""
    changed = _read_changed(store, seq) if rule in ("sum", "last") else {}
    for rows in _read_blocks(store, seq, progress):
        bodies: list[events.RewardBody] = [read_event(row) for row in rows]
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
        yield rows, bodies, x, np.array([changed.get(slot_of_reward(row.id), body.reward) for row, body in pairs])


def _read_changed(store: Store, seq: int) -> dict[str, float]:
    """Return the final value of every changed reward, by slot."""
    changed = {}
    for row in store.events(0, seq):
        if row.kind == "reward" and changes_reward(row.id):
            changed[slot_of_reward(row.id)] = read_event(row).reward
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
