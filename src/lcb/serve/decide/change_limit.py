"""Limits the time that goes into folding users again because a caller changes their rewards."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from lcb.serve.errors import Problem
from lcb.serve.state.per_user.fold_cost import FoldCost
from lcb.serve.threads import CALLER

T = TypeVar("T")
SHARE = 0.25  # of the time, for each caller
BURST = 0.5  # seconds of work that a caller who has changed nothing for a while may ask for at once
TOGETHER = 256  # changes, about as many as one commit has
FREE = 0.0002  # seconds of work of each change that do not count: changes of short histories are not limited
_MOST = 10_000  # callers and users that are kept


class ChangeLimit:
    """Counts what the changes of each caller will cost; one who is beyond their share is refused with 429.

    Changes of one user from the same state of the log are stored together, and folded once for each `TOGETHER`.

    >>> limit = ChangeLimit(FoldCost(), lambda: 0.0)
    >>> for seq in (1, 2):
    ...     limit.take("ann", 10_000, seq)  # 0.3 s each
    >>> limit.take("ann", 10_000, 2)
    >>> limit.take("ann", 10_000, 3)
    Traceback (most recent call last):
    lcb.serve.errors.Problem: changed rewards of 'ann' take 0.3 s of work, and ... time; send this one again in 1 s
    """

    def __init__(self, cost: FoldCost, monotonic: Callable[[], float]) -> None:
        self.cost, self.monotonic = cost, monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by caller: seconds of work, and when
        self._last: OrderedDict[str, tuple[int, int]] = OrderedDict()  # by user: state at the last change, and how many

    def take(self, user: str, n_events: int, seq: int) -> None:
        """Count a change of a user who has at least `n_events`, asked for in the state `seq`; 429 if too much."""
        last, n = self._last.get(user, (seq, 0))
        n = n + 1 if last == seq else 1
        if n > 1 and n % TOGETHER:
            self._last[user] = seq, n
            return
        caller, now = CALLER.get(), self.monotonic()
        left, then = self._left.get(caller, (BURST, now))
        left = min(left + (now - then) * SHARE, BURST)
        needed = max(self.cost.estimate(user, n_events) - FREE, 0.0)
        if left <= 0:
            wait = max(1, math.ceil(-left / SHARE))
            words = (
                f"changed rewards of {user!r} take {needed:.2g} s of work, and yours have taken {SHARE:.0%} of the time"
            )
            raise Problem(429, f"{words}; send this one again in {wait} s", retry_after=wait)
        _keep(self._left, caller, (left - needed, now))
        _keep(self._last, user, (seq, n))


def _keep(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _MOST:
        kept.popitem(last=False)
