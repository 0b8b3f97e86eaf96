"""Changed rewards whose user is folded later, together with the next ones: a fold takes as long as the user's history.

Only while a batch of events is applied, or a log is replayed.  A user is folded when the state is needed: for another
event of the user, a decision that is recomputed, a snapshot, or at the end.  So a replay folds at most as often as the
service did.  Counts and sums over users are exact, so one change of a user by several rewards gives what one change by
each gives.  The effects of items change with every event; `OwnRewards` tells by how much, without a fold.  The rates of
a canary are compared only when its verdict is due, after all users are folded.
"""

from __future__ import annotations

from typing import Any, Protocol

from lcb.serve import events
from lcb.serve.state.canary import CanaryCounts
from lcb.serve.state.per_user.load_users import UserLoader
from lcb.serve.state.per_user.own_rewards import OwnRewards
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.tally import Tally
from lcb.serve.state.users import User, check_there
from lcb.storage.store.base import Row

_LOOK_EVERY = 1000  # events of a replay
_MOST_HELD = 100_000  # events of users who are not folded yet, kept in memory


class World(Protocol):
    """What is used of the state."""

    seq: int
    cache: UserCache
    loader: UserLoader
    fold: UserFold
    histories: dict[str, list[Row]]
    canary: CanaryCounts

    def apply(self, row: Row, body: Any = None) -> None: ...
    def release(self) -> None: ...
    def tally(self, recommender: str) -> Tally: ...
    def count_settled(self, model: int, n_decisions: int, n: int) -> None: ...


class LateFolds:
    """The users of `world` whose last events are not folded yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.allowed = False
        self.names: dict[str, None] = {}
        self._own: dict[str, OwnRewards] = {}  # of these users, where item effects change

    def replay(self, row: Row, body: Any = None) -> None:
        """Apply an event of the past; after the last one, `World.release` folds the users who are left."""
        self.allowed = True
        self._world.apply(row, body)
        self.allowed = False
        if row.seq % _LOOK_EVERY == 0 and self.names and self._holds_much():
            self._world.release()

    def _holds_much(self) -> bool:
        world = self._world
        return world.cache.is_over or sum(map(len, world.histories.values())) > _MOST_HELD

    def change_residual(self, row: Row, body: events.RewardBody, item: str) -> tuple[int, float]:
        """Return what a changed reward adds to the count and the sum of its item, before `put_off` is called."""
        world, name = self._world, row.user
        assert name is not None
        if not world.fold.state.counts_users:  # each reward counts, as it was logged
            return world.fold.find_residual(body, (0, 0.0), (0, 0.0))
        own = self._own.get(name)
        if own is None:
            if name not in world.histories:  # kept for the fold
                world.histories[name] = world.loader.read_events(name, 0, world.seq)
            own = self._own[name] = OwnRewards(world.fold, world.histories[name])
        n, mean = own.weigh(item)
        own.take(row, body)
        n_after, mean_after = own.weigh(item)
        return n_after - n, mean_after - mean

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
        past = world.histories.get(name)
        if past is None:
            past = world.loader.read_events(name, 0, world.seq if row is None else row.seq)
        elif row is not None:
            past = [*past, row]
        again = check_there(world.fold.fold(past), world.seq if row is None else row.seq)
        again.saved = user.saved
        world.cache.replace(name, again)
        tally = world.tally(user.recommender)
        tally.change_rewards(user.reward_sum, again.reward_sum)
        tally.change_rate(user.rate, again.rate)
        world.count_settled(again.model, user.settled, -1)
        world.count_settled(again.model, again.settled, 1)
        return again

    def end(self) -> None:
        """Fold all."""
        while self.names:
            self.fold(next(iter(self.names)))
