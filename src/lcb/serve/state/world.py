"""All that the log says, folded: users, shared states, the catalogue, model versions, tallies.

    world = World(store); world.load()          from the last snapshot and what came after it
    world.apply(row)                            every event, once, in the order of the log

The fold is a function of the log alone: settings that matter are events themselves.  Users live in a bounded cache and
are folded again from their snapshot and their events when they come back.  Where the store is far, that is not read on
the way: `ready` says whether an event can be applied from memory, `bring` reads what it needs in another thread, and
`receive` takes that in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from lcb.bandits.bandit import Bandit
from lcb.bandits.traits import Revisable
from lcb.errors import StoreError
from lcb.events import Floats
from lcb.serve import events
from lcb.serve.event_ids import WORLD_SNAPSHOT, changes_reward, user_snapshot
from lcb.serve.events import floats, to_decision
from lcb.serve.state.user_fold import Fold, after
from lcb.serve.state.users import WARMUP, Tally, User
from lcb.storage.store.base import Row, Snapshot, Store

_MOST_UNKNOWN = 10_000


class _Kept(Struct):
    """The snapshot of the world, all but users, catalogue and models."""

    seq: int
    n_features: int | None
    n_started: int
    n_rewarded: int
    n_events: int
    started_at_training: int
    shared: dict[str, bytes]
    tallies: dict[str, Tally]
    users_per_model: dict[int, int]
    concentration: dict[int, dict[int, int]]
    erased: list[int] = []


@dataclass(frozen=True)
class Brought:
    """What events need to be applied: their users as of the event before, and all events of users whose rewards change.

    `rows` are the events as they are now: some may have been erased since they were first read.
    """

    rows: list[Row]
    users: dict[str, User | None]
    histories: dict[str, list[Row]]


class World(Fold):
    """Everybody, and what they come to together; `store` is only read."""

    def __init__(self, store: Store, *, most_users: int = 50_000) -> None:
        super().__init__()
        self.store = store
        self.most_users = most_users
        self.users: OrderedDict[str, User] = OrderedDict()
        self.evicted: dict[str, Snapshot] = {}  # by name; to be written with the next commit
        self.holding = False  # nobody leaves the cache: events that need them are being applied
        self.n_erasures = 0
        self.unkept: set[str] = set()  # people who are being erased: no snapshot of them is to be written
        self.seq = 0
        self.n_started = self.n_rewarded = self.n_events = 0
        self.started_at_training = 0
        self.shared: dict[str, Floats] = {}
        self.tallies: dict[str, Tally] = {}
        self.users_per_model: dict[int, int] = {}
        self.concentration: dict[int, dict[int, int]] = {}  # model -> decisions until settled -> users
        self.erased: set[int] = set()  # events met as erased, whose erasure is still to come
        self._unknown: set[str] = set()
        self._histories: dict[str, list[Row]] = {}

    # Coming up

    def load(self, upto: int | None = None) -> None:
        """Fold what the store holds, from its snapshot where that is not too new."""
        kept = self.store.snapshot(WORLD_SNAPSHOT)
        if kept is not None and (upto is None or kept.seq <= upto):
            for row in self.store.events_of_service(kept.seq):
                self.apply_service(row.kind, row.seq, events.decode(row.kind, row.body))
            self._restore(msgspec.msgpack.decode(kept.body, type=_Kept))
        for row in self.store.events(self.seq, upto):
            self.apply(row)

    def snapshot(self) -> Snapshot:
        kept = _Kept(
            self.seq, self.n_features, self.n_started, self.n_rewarded, self.n_events, self.started_at_training,
            {name: state.tobytes() for name, state in self.shared.items()}, self.tallies, self.users_per_model,
            self.concentration, sorted(self.erased),
        )  # fmt: skip
        return Snapshot(WORLD_SNAPSHOT, self.seq, events.encode(kept))

    def _restore(self, kept: _Kept) -> None:
        self.seq, self.n_features, self.n_events = kept.seq, kept.n_features, kept.n_events
        self.n_started, self.n_rewarded = kept.n_started, kept.n_rewarded
        self.started_at_training = kept.started_at_training
        self.shared = {name: floats(state) for name, state in kept.shared.items()}
        self.tallies, self.users_per_model = kept.tallies, kept.users_per_model
        self.concentration, self.erased = kept.concentration, set(kept.erased)

    # What a decision needs

    def user(self, name: str) -> User | None:
        """A user as of `seq`, from the cache or folded again; None for somebody new."""
        user = self.users.get(name)
        if user is not None:
            self.users.move_to_end(name)
            return user
        kept = self.evicted.pop(user_snapshot(name), None)
        if kept is not None:  # gone from the cache, and nothing has happened to them since
            user = User.unpack(kept.body)
            user.saved = 0
            self.admit(name, user)
            return user
        if name in self._unknown:
            return None
        user = self.folded(name, self.seq)
        if user is not None:
            self.admit(name, user)
        else:
            self.note_unknown(name)
        return user

    def note_unknown(self, name: str) -> None:
        """The log has nothing of this user; known until their first event is applied."""
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown.add(name)

    def folded(self, name: str, upto: int) -> User | None:
        """A user from the store: the snapshot and the events after it."""
        newest = self.store.newest_of(name)
        if newest == 0:
            return None
        kept = self.store.snapshot(user_snapshot(name))
        if kept is not None and kept.seq == newest <= upto:
            return User.unpack(kept.body)
        if kept is None or kept.seq > upto:
            return self.fold_user(self.store.events_of(name, 0, upto))
        return self.fold_on(User.unpack(kept.body), name, self.store.events_of(name, kept.seq, upto), upto)

    def knows(self, name: str) -> bool:
        """Whether `user` has an answer without reading the store."""
        return name in self.users or name in self._unknown

    def take(self, name: str, user: User | None) -> None:
        """A user as of `seq`, read elsewhere."""
        if user is not None:
            self.admit(name, user)
        else:
            self.note_unknown(name)

    def ready(self, row: Row) -> bool:
        """Whether an event can be applied without reading the store."""
        name = row.user
        if name is None:
            return True
        return name in self._histories and name in self.users if _changes(row) else self.knows(name)

    def bring(self, rows: Sequence[Row], names: Iterable[str]) -> Brought:
        """Read what `rows`, the next events, need; from any thread, while nothing else is applied.

        Users are read before the rows are read again: whoever is erased in between is in none of them any more.
        """
        upto = rows[0].seq - 1
        snapshots = self.store.snapshots([user_snapshot(name) for name in names])
        kept = {name: snapshots.get(user_snapshot(name)) for name in names}
        after = {name: 0 if one is None or one.seq > upto else one.seq for name, one in kept.items()}
        users = {}
        for name, found in self.store.events_of_each(after, upto).items():
            one = kept[name]
            users[name] = (
                self.fold_user(found) if one is None or not after[name]
                else self.fold_on(User.unpack(one.body), name, found, upto)
            )  # fmt: skip
        changed = dict.fromkeys((row.user for row in rows if row.user is not None and _changes(row)), 0)
        histories = self.store.events_of_each(changed, upto)
        return Brought(list(self.store.events(upto, rows[-1].seq)), users, histories)

    def receive(self, brought: Brought) -> None:
        """What was brought, while still nothing else was applied."""
        self._histories = brought.histories
        for name, user in brought.users.items():
            if not self.knows(name):
                self.take(name, user)

    def release(self) -> None:
        """The events are applied: the cache goes back to its size."""
        self._histories = {}
        self.holding = False
        self._trim()

    def fold_on(self, user: User, name: str, rows: list[Row], upto: int) -> User | None:
        """A snapshot and the events after it; from the beginning where one of these changes an earlier reward."""
        bodies = [(row, events.decode(row.kind, row.body)) for row in rows]
        if any(row.kind == "reward" and body.before is not None for row, body in bodies):
            return self.fold_user(self.store.events_of(name, 0, upto))
        for row, body in bodies:
            self.step(user, row, body, getattr(body, "reward", 0.0))
        return user

    def shared_state(self, name: str, bandit: Bandit) -> Floats:
        state = self.shared.get(name)
        return bandit.start() if state is None else state

    def admit(self, name: str, user: User) -> None:
        """Into the cache; who was there longest goes, with a snapshot if there is something new to keep."""
        self.users[name] = user
        self.evicted.pop(user_snapshot(name), None)
        if not self.holding:
            self._trim()

    def _trim(self) -> None:
        while len(self.users) > self.most_users:
            gone, old = self.users.popitem(last=False)
            if old.unsaved and gone not in self.unkept:
                self.evicted[user_snapshot(gone)] = Snapshot(user_snapshot(gone), old.seq, old.pack())

    # The fold

    def apply(self, row: Row, body: Any = None) -> None:
        """One event; each exactly once, in order."""
        if row.seq != self.seq + 1:
            raise StoreError(f"event {row.seq} after {self.seq}; the log has a gap, take it from a backup")
        body = events.decode(row.kind, row.body) if body is None else body
        if row.kind == "decision":
            self._apply_decision(row, body)
        elif row.kind == "reward":
            self._apply_reward(row, body)
        elif row.kind == "erase":
            self._apply_erase(body)
        elif row.kind == "erased decision":
            self.erased.add(row.seq)
            if body.shared:
                self.n_features = self.n_features or len(body.taken[0].x) // 8
                self._count_shared(body.recommender, WARMUP, body.taken)
        elif row.kind == "erased reward":
            self.erased.add(row.seq)
            if body.shared:
                self._reward_shared(body.recommender, WARMUP, body, body.reward)
        else:
            self.apply_service(row.kind, row.seq, body)
        self.seq = row.seq
        if row.user in self._histories:
            self._histories[row.user].append(row)

    def _apply_decision(self, row: Row, body: events.DecisionBody) -> None:
        name = row.user
        assert name is not None
        if self.n_features is None:
            self.n_features = len(body.taken[0].x) // 8
        user = self.user(name)
        if user is None:
            user = self.newcomer(body.recommender, row.model or WARMUP, row.seq)
            self.n_started += 1
            self.tally(user.recommender).n_users += 1
            _count(self.users_per_model, user.model, 1)
            self._unknown.discard(name)
            self.admit(name, user)
        tally, before = self.tally(user.recommender), user.rate
        taken = body.shown
        if user.state is None and user.is_own(row, body):
            self._count_shared(user.recommender, user.model, taken)
        self.step(user, row, body, 0.0)
        self.n_events += 1
        tally.n_decisions += len(taken)
        tally.move(before, user.rate)

    def _apply_reward(self, row: Row, body: events.RewardBody) -> None:
        assert row.user is not None
        user = self.user(row.user)
        assert user is not None
        tally, before = self.tally(user.recommender), user.rate
        first = body.before is None
        if first and user.n_rewards == 0:
            self.n_rewarded += 1
        if user.state is None and user.is_own(row, body):
            self._reward_shared(user.recommender, user.model, body, body.reward)
        settled = user.settled
        if first:
            self.step(user, row, body, body.reward)
        else:
            past = self._histories.get(row.user)
            again = self.fold_user(self.store.events_of(row.user, 0, row.seq) if past is None else [*past, row])
            assert again is not None
            again.saved = user.saved
            self.users[row.user] = user = again
            _add(self.concentration, user.model, settled, -1)
            settled = 0
        self.n_events += 1
        tally.n_rewards += first
        tally.reward_sum += body.reward - (body.before or 0.0)
        tally.move(before, user.rate)
        if user.settled != settled:
            _add(self.concentration, user.model, user.settled, 1)

    def _count_shared(self, recommender: str, model: int, taken: list[events.ChosenArm]) -> None:
        bandit, name = self.bandit(recommender, model)
        assert name is not None
        self.shared[name] = after(bandit, self.shared_state(name, bandit), taken)

    def _reward_shared(
        self, recommender: str, model: int, body: events.RewardBody | events.ErasedReward, reward: float
    ) -> None:
        bandit, name = self.bandit(recommender, model)
        assert name is not None
        state = self.shared_state(name, bandit)
        if body.before is None:
            self.shared[name] = bandit.update(state, to_decision(body), reward)
        elif isinstance(bandit, Revisable):
            self.shared[name] = bandit.revise(state, to_decision(body), body.before, reward)

    def _apply_erase(self, body: events.EraseBody) -> None:
        """What was counted of the person goes; events that were met already erased had not been counted."""
        counted = [past for past in body.history if past[0] not in self.erased]
        theirs = {past[0] for past in body.history}
        self.erased -= theirs
        self.n_erasures += 1
        self._histories = {}
        self.n_features = self.n_features or body.n_features
        self.started_at_training -= self._was_trained_on(body.history[0][0], bool(counted))
        for name in [name for name, user in self.users.items() if user.seq in theirs]:
            del self.users[name]
        self.evicted = {
            name: one for name, one in self.evicted.items() if one.seq not in theirs or name == WORLD_SNAPSHOT
        }
        if not counted:
            return
        _, n_decisions, n_rewards, reward_sum, settled = counted[-1]
        tally = self.tally(body.recommender)
        tally.n_users -= 1
        tally.n_decisions -= n_decisions
        tally.n_rewards -= n_rewards
        tally.reward_sum -= reward_sum
        rate = reward_sum / n_decisions if n_decisions else 0.0
        tally.rate_sum -= rate
        tally.rate_square_sum -= rate * rate
        self.n_events -= len(counted)
        self.n_started -= 1
        self.n_rewarded -= n_rewards > 0
        _count(self.users_per_model, body.model, -1)
        if settled:
            _add(self.concentration, body.model, settled, -1)

    def _was_trained_on(self, first: int, counted: bool) -> bool:
        """Whether somebody whose first event is `first` is among those who had started at the last training."""
        if not self.versions:
            return False
        last = max(self.versions.values(), key=lambda version: version.seq)
        if last.body.n_started is None:
            return counted and first < last.seq
        return last.body.seen is not None and first <= last.body.seen

    def apply_service(self, kind: str, seq: int, body: Any) -> None:
        super().apply_service(kind, seq, body)
        if kind == "model":
            self.started_at_training = self.n_started if body.n_started is None else body.n_started

    def tally(self, recommender: str) -> Tally:
        found = self.tallies.get(recommender)
        if found is None:
            found = self.tallies[recommender] = Tally()
        return found


def _changes(row: Row) -> bool:
    """Whether it is a reward that changes an earlier one."""
    return row.kind == "reward" and changes_reward(row.id)


def _add(counts: dict[int, dict[int, int]], model: int, steps: int, n: int) -> None:
    if steps:
        of_model = counts.setdefault(model, {})
        _count(of_model, steps, n)
        if not of_model:
            del counts[model]


def _count(counts: dict[int, int], key: int, n: int) -> None:
    counts[key] = counts.get(key, 0) + n
    if not counts[key]:
        del counts[key]
