"""What one user's rewards add to the effects of items while rewards change, without a fold of the user for each change.

The residuals of an item are added up as a fold adds them, in the order of the first rewards, so the sums have the same
bits.
"""

from __future__ import annotations

from collections.abc import Iterable

from lcb.serve import events
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.users import User, find_own
from lcb.storage.store.base import Row


class OwnRewards:
    """The rewards of one user for items with effects, from all of the user's events."""

    def __init__(self, fold: UserFold, rows: Iterable[Row]) -> None:
        self._base: User | None = None  # what a compaction has left
        self._rewards: dict[str, float] = {}  # by slot
        self._means: dict[str, dict[str, float]] = {}  # by item: the expected rewards by slot, in order
        for row in rows:
            if row.kind == "base":
                self._base, self._means = User.unpack(events.decode(row.kind, row.body).user), {}
            elif row.kind == "reward":
                body = events.decode(row.kind, row.body)
                self.change(row, body)
                if body.before is None and body.mean is not None and fold.is_teaching(row, body):
                    self._means.setdefault(body.item or "", {})[slot_of_reward(row.id)] = body.mean

    def change(self, row: Row, body: events.RewardBody) -> None:
        self._rewards[slot_of_reward(row.id)] = body.reward

    def weigh(self, item: str) -> tuple[int, float]:
        """Return the same as `weigh_own` of the folded user."""
        count, total = (0.0, 0.0) if self._base is None else find_own(self._base.residuals, item)
        for slot, mean in self._means.get(item, {}).items():
            residual = self._rewards[slot] - mean
            total = total + residual if count else residual
            count += 1
        return (1, total / count) if count else (0, 0.0)
