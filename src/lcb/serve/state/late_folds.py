"""Changed rewards whose user is folded later, together with the next ones: a fold takes as long as the user's history.

Only while a batch of events is applied, or a log is replayed.  A user is folded when the state is needed: for another
event of the user, a decision, a snapshot, or at the end of the batch, some in each turn of the event loop.  Those with
long histories are folded before, in a thread (`per_user/fold_ahead.py`).  So a replay folds at most as often as the
service did.  Counts and sums over users are exact, so one change of a user by several rewards gives what one change by
each gives.  The effects of items change with every event; `OwnRewards` tells by how much, without a fold.  The rates of
a canary are compared only when its verdict is due, after all users are folded.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Protocol

from lcb.serve import events
from lcb.serve.state.canary import CanaryCounts
from lcb.serve.state.per_user.fold_ahead import FoldedAhead
from lcb.serve.state.per_user.fold_cost import FoldCost
from lcb.serve.state.per_user.load_users import Prefetched, UserLoader
from lcb.serve.state.per_user.own_rewards import OwnRewards
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.tally import Tally
from lcb.serve.state.users import User, check_there
from lcb.storage.store.base import Row

_LOOK_EVERY = 1000  # events of a replay
_MOST_HELD = 100_000  # events of users who are not folded yet, kept in memory
_SOME = 0.01  # seconds


class World(Protocol):
    """What is used of the state."""

    seq: int
    cache: UserCache
    loader: UserLoader
    fold: UserFold
    canary: CanaryCounts

    def apply(self, row: Row, body: Any = None) -> None: ...
    def release(self) -> None: ...
    def tally(self, recommender: str) -> Tally: ...
    def count_settled(self, model: int, n_decisions: int, n: int) -> None: ...


class LateFolds:
    """The users of `world` whose last events are not folded yet."""

    def __init__(self, world: World) -> None:
        self._world: World = weakref.proxy(world)  # which has this: a state that is done with is freed at once
        self.allowed = False
        self.names: dict[str, None] = {}
        self.histories: dict[str, list[Row]] = {}  # all events of users, kept while their rewards change
        self.cost = FoldCost()
        self._ahead: dict[str, FoldedAhead] = {}
        self._own: dict[str, OwnRewards] = {}  # of the users in `names`, where item effects change

    def replay(self, row: Row, body: Any = None) -> None:
        """Apply an event of the past; after the last one, `World.release` folds the users who are left."""
        self.allowed = True
        self._world.apply(row, body)
        self.allowed = False
        if row.seq % _LOOK_EVERY == 0 and self._holds_much():
            self._world.release()

    def _holds_much(self) -> bool:
        return self._world.cache.is_over or sum(map(len, self.histories.values())) > _MOST_HELD

    def take_prefetched(self, prefetched: Prefetched) -> None:
        self.histories, self._ahead = prefetched.histories, prefetched.folded
        for name, ahead in prefetched.folded.items():
            self.cost.note(name, ahead.n_events, ahead.seconds)

    def note_applied(self, row: Row) -> None:
        if self.histories and row.user in self.histories:
            self.histories[row.user].append(row)

    def forget_histories(self) -> None:
        self.histories, self._ahead = {}, {}

    def change_residual(self, row: Row, body: events.RewardBody, item: str) -> tuple[int, float]:
        """Return what a changed reward adds to the count and the sum of its item, before `put_off` is called."""
        world, name = self._world, row.user
        assert name is not None
        if not world.fold.state.counts_users:  # each reward counts, as it was logged
            return world.fold.find_residual(body, (0, 0.0), (0, 0.0))
        own = self._own.get(name)
        if own is None:
            if name not in self.histories:  # kept for the fold
                self.histories[name] = world.loader.read_events(name, 0, world.seq)
            own = self._own[name] = self._build_own(name)
        n, mean = own.weigh(item)
        own.take(row, body)
        n_after, mean_after = own.weigh(item)
        return n_after - n, mean_after - mean

    def _build_own(self, name: str) -> OwnRewards:
        """Return what the user's rewards add to items, as of now."""
        ahead, past = self._ahead.get(name), self.histories[name]
        if ahead is None or ahead.own is None:
            return OwnRewards(self._world.fold, past)
        ahead.own.take_all(past[ahead.n_before :])
        return ahead.own

    def put_off(self, user: User, row: Row) -> None:
        assert row.user is not None
        self._world.cache.hold()  # a snapshot of the user would be wrong
        user.seq, user.left = row.seq, 0
        self.names[row.user] = None

    def prepare(self, row: Row, *, changes: bool) -> None:
        """Before an event is applied: fold its user, unless it changes a reward too; all, if one of them is erased."""
        if row.kind == "erase":
            self.end()
        elif row.user is not None and row.user in self.names and not changes:
            self.fold(row.user)

    def fold(self, name: str) -> None:
        self.names.pop(name, None)
        self._own.pop(name, None)
        user = self._world.cache.peek(name)
        assert user is not None
        again = self.fold_again(name, user)
        if again.canary:
            self._world.canary.note(again)

    def fold_again(self, name: str, user: User, row: Row | None = None) -> User:
        """Fold all events of a user whose earlier rewards were changed, last by `row` if that is not applied yet."""
        world = self._world
        upto = world.seq if row is None else row.seq
        again = self._take_ahead(name, user.seq if row is None else row.seq) or self._fold_now(name, upto, row)
        again.saved = user.saved
        world.cache.replace(name, again)
        tally = world.tally(user.recommender)
        tally.change_rewards(user.reward_sum, again.reward_sum)
        tally.change_rate(user.rate, again.rate)
        world.count_settled(again.model, user.settled, -1)
        world.count_settled(again.model, again.settled, 1)
        return again

    def _take_ahead(self, name: str, seq: int) -> User | None:
        """Return the user as of the event `seq` if a thread has folded them."""
        ahead = self._ahead.pop(name, None)
        return None if ahead is None or ahead.user.seq != seq else ahead.user

    def _fold_now(self, name: str, upto: int, row: Row | None) -> User:
        world, began = self._world, time.perf_counter()
        past = self.histories.get(name)
        if past is None:
            past = world.loader.read_events(name, 0, upto)
        elif row is not None:
            past = [*past, row]
        user = check_there(world.fold.fold(past), upto)
        self.cost.note(name, len(past), time.perf_counter() - began)
        return user

    def fold_some(self) -> bool:
        """Fold users for some milliseconds, at least one; returns whether that were all."""
        until = time.perf_counter() + _SOME
        while self.names:
            self.fold(next(iter(self.names)))
            if time.perf_counter() > until:
                break
        return not self.names

    def end(self) -> None:
        """Fold all."""
        while self.names:
            self.fold(next(iter(self.names)))
