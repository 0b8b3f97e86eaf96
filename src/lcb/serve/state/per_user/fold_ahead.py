"""Folds users whose rewards change before the changes are applied, in a thread: it takes as long as their history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lcb.serve.event_ids import changes_reward
from lcb.serve.read_event import read_event
from lcb.serve.state.per_user.own_rewards import OwnRewards
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.users import User
from lcb.storage.store.base import Row


@dataclass(frozen=True)
class FoldedAhead:
    """A user after the first changes of a batch; `user.seq` is the last of them.

    `own` has what the user's rewards add to items before the batch, after `n_before` events, if the changes move items.
    """

    user: User
    own: OwnRewards | None
    n_before: int
    n_events: int
    seconds: float  # with reading; by the clock: on busy cores others wait that long


def fold_ahead(
    fold: UserFold, name: str, past: Sequence[Row], batch: Sequence[Row], reading: float = 0.0
) -> FoldedAhead | None:
    """Fold the events `past` of a user, and those of `batch` up to the last of the first changes in a row.

    None if events of the service come before the changes: how a user is folded may depend on them.  `reading` are the
    seconds that it took to read the past.
    """
    began, taken = time.perf_counter(), list[Row]()
    for row in batch:
        if row.user is None:
            break
        if row.user == name:
            if taken and changes_reward(taken[-1].id) and not changes_reward(row.id):
                break
            taken.append(row)
    if not taken or taken[-1].kind != "reward" or not changes_reward(taken[-1].id):
        return None
    user = fold.fold([*past, *taken])
    assert user is not None
    moves = fold.moves_item(taken[-1], read_event(taken[-1]))
    own = OwnRewards(fold, past) if moves and fold.state.counts_users else None
    return FoldedAhead(user, own, len(past), len(past) + len(taken), reading + time.perf_counter() - began)
