"""Changed rewards whose user is folded later, together with the next ones: a fold takes as long as the user's history.

Only while a batch of events is applied, and only where nothing looks at the user in between: counts and sums over users
are exact, so one change of a user by several rewards gives what one change by each gives.  Effects of items and
canaries do look at the user after every event.
"""

from __future__ import annotations

from typing import Protocol

from lcb.serve.state.per_user.load_users import UserLoader
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.tally import Tally
from lcb.serve.state.users import User
from lcb.storage.store.base import Row


class World(Protocol):
    """What is used of the state."""

    seq: int
    cache: UserCache
    loader: UserLoader
    fold: UserFold
    histories: dict[str, list[Row]]

    def tally(self, recommender: str) -> Tally: ...
    def count_settled(self, model: int, n_decisions: int, n: int) -> None: ...


class LateFolds:
    """The users of `world` whose last events are not folded yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.allowed = False
        self.names: dict[str, None] = {}

    def put_off(self, user: User, row: Row) -> None:
        assert row.user is not None
        self._world.cache.hold()  # a snapshot of the user would be wrong
        user.seq, user.left = row.seq, 0
        self.names[row.user] = None

    def prepare(self, row: Row, *, changes: bool) -> None:
        """Before an event is applied: fold its user, unless it changes a reward too; all, if it is of the service."""
        if row.user is None:
            self.end()
        elif row.user in self.names and not changes:
            self.fold(row.user)

    def fold(self, name: str) -> None:
        self.names.pop(name, None)
        user = self._world.cache.peek(name)
        assert user is not None
        self.fold_again(name, user)

    def fold_again(self, name: str, user: User, row: Row | None = None) -> User:
        """Fold all events of a user whose earlier rewards were changed, last by `row` if that is not applied yet."""
        world = self._world
        past = world.histories.get(name)
        if past is None:
            past = world.loader.read_events(name, 0, world.seq if row is None else row.seq)
        elif row is not None:
            past = [*past, row]
        again = world.fold.fold(past)
        assert again is not None
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
