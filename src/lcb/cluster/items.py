"""Rewards of items on the machines of a cluster: effects of items are sums over the users there.

The rows are read by the process that asks, and sent once.  A step sends the effects and the classes there and gets a
few sums for each item back; classes are then learned from the rewards less the effects, where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.cluster.calls import Calls, Lost
from lcb.cluster.shards import Shards
from lcb.cluster.sources import FromLog, count_bytes, need_room
from lcb.cluster.trees import N_PARTS
from lcb.event_log import EventLog
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import ItemSums, SumItems
from lcb.learners.shared.users import Users
from lcb.progress import Progress

_ROWS = 1 << 21  # that are sent at a time
_SENT = "rewards that were sent"


@dataclass(eq=False)
class FromItems(FromLog):
    """Rewards of items in the memory of this process; its parts are ranges of users."""

    log: EventLog = field(init=False)  # of one user, for what all have in common
    rows: ItemRows = field(kw_only=True)
    effect: Floats = field(init=False)  # (I,) that the users there have

    def __post_init__(self) -> None:
        self.effect = np.zeros(len(self.rows.ids))
        self.log = self.rows.take_users([0]).history()

    def fill(self, cluster: Calls, shards: dict[int, Any], ends: Sequence[int], progress: Progress) -> dict[int, Any]:
        """Send their users to some shards; return what each holds, or that it was lost."""
        rows = self.rows
        lost: dict[int, Lost] = {}
        users = np.linspace(0, rows.n_users, N_PARTS + 1).astype(int)
        begins = np.searchsorted(rows.user, users).tolist()
        for number, shard in shards.items():
            parts: dict[int, ItemRows] = {}
            last = ends[number + 1] - 1
            for part in range(ends[number], last + 1):
                own = slice(begins[part], begins[part + 1])
                if own.stop > own.start:
                    cut = {"user": rows.user[own] - users[part], "item": rows.item[own], "reward": rows.reward[own]}
                    parts[part] = replace(rows, ids=("",) * len(rows.ids), x=rows.x[:0], **cut)
                if parts and (part == last or sum(len(one.item) for one in parts.values()) >= _ROWS):
                    progress("sending rewards", part + 1, N_PARTS)
                    (answer,) = cluster.wait([shard.add_item_rows.remote(parts)], _SENT)
                    lost |= {number: answer} if isinstance(answer, Lost) else {}
                    parts = {}
        done = [shard.finish_items.remote(rows.x, self.effect, rows.features) for shard in shards.values()]
        return {**dict(zip(shards, cluster.wait(done, _SENT), strict=True)), **lost}

    def check_memory(self, free: Sequence[float]) -> None:
        rows = self.rows
        need_room(rows.n_users, rows.x.shape[1], self.log.stats.packed.dtype.itemsize, free, self._count_row_bytes())

    def count_bytes(self, n_users: int) -> float:
        own = count_bytes(n_users, self.rows.x.shape[1], self.log.stats.packed.dtype.itemsize)
        return own + self._count_row_bytes() * n_users / self.rows.n_users

    def _count_row_bytes(self) -> float:
        """Return the bytes of all rows, with the share of each for its item."""
        return 32.0 * len(self.rows.item)


class ItemShards:
    """Rewards of items on the machines of a cluster, as learners of effects see them."""

    def __init__(self, users: Shards, source: FromItems) -> None:
        rows = source.rows
        self.users, self.source = users, source
        self.ids, self.x, self.features = rows.ids, rows.x, rows.features
        self.n_users, self.count, self.n_raters = rows.n_users, rows.count, rows.n_raters
        self.mean, self.variance = float(rows.reward.mean()), float(rows.reward.var())

    def take_users(self, users: Index) -> ItemRows:
        """Return the rows of these users, here."""
        return self.source.rows.take_users(users)

    def history(self, effect: Floats) -> EventLog | Users:
        """Have the users there hold the rewards less these effects (I,)."""
        self.source.effect = effect
        self.users.ask_all(lambda actor: actor.set_effect.remote(effect), "rewards less effects")
        return self.users

    def sum_items(self, work: SumItems) -> ItemSums:
        """Return the sums over all users."""
        return self.users.add_answers(lambda actor: actor.sum_items.remote(work), "sums of items")
