"""In-memory state of the service, rebuilt by replaying the event log.

    world = World(store); world.load()          from the last snapshot and the events after it
    world.apply(row)                            every event, once, in the order of the log

The state depends on the log alone; settings that affect it are events themselves.  Users are kept in a bounded cache
and loaded again from their snapshot and events when needed.  If the store is remote, applying an event reads nothing:
`can_apply` tells whether an event can be applied from memory, `loader.prefetch` reads what it needs in another thread,
and `take_prefetched` adds that to memory.
"""

from __future__ import annotations

from typing import Any

from msgspec import msgpack

from lcb.errors import StoreError
from lcb.serve import events
from lcb.serve.base_bodies import CompactBody
from lcb.serve.event_ids import WORLD_SNAPSHOT
from lcb.serve.events import floats
from lcb.serve.read_event import read_event
from lcb.serve.state.canary import CanaryCounts
from lcb.serve.state.items import ItemState
from lcb.serve.state.late_folds import LateFolds
from lcb.serve.state.mixtures import Mixtures
from lcb.serve.state.per_user.load_users import Prefetched, UserLoader, needs_history
from lcb.serve.state.per_user.user_cache import UserCache
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.seen_items import SeenItems
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.shared_states import SharedStates
from lcb.serve.state.tally import Tally
from lcb.serve.state.users import WARMUP, User, check_there, weigh_own
from lcb.serve.state.world_snapshot import WorldSnapshot, decode_snapshot, read_base
from lcb.storage.store.base import Row, Snapshot, Store


class World:
    """Service-wide state, users and counts as of `seq`; `store` is only read.

    Users in memory take at most `most_bytes` (None: no limit), unless there is a `cache` for them.
    """

    def __init__(self, store: Store, *, most_bytes: int | None = None, cache: UserCache | None = None) -> None:
        self.store = store
        self.state = ServiceState()
        self.fold = UserFold(self.state)
        self.loader = UserLoader(store, self.fold)
        self.cache = UserCache(most_bytes) if cache is None else cache
        self.shared = SharedStates(self.state)
        self.mixtures = Mixtures(self.state)
        self.items = ItemState(self.state.catalogue)
        self.seen = SeenItems(store)
        self.canary = CanaryCounts()
        self.seq = 0
        self.n_started = self.n_rewarded = 0  # users to learn from: those with a decision, those with a reward
        self.n_events = 0
        self.started_at_training = 0  # n_started when the newest model version was learned
        self.tallies: dict[str, Tally] = {}
        self.users_per_model: dict[int, int] = {}
        self.concentration: dict[int, dict[int, int]] = {}  # model -> decisions until settled -> users
        self.erased: set[int] = set()  # seqs of erased events whose `erase` event was not applied yet
        self.n_erasures = self.erased_at = 0  # since the start of this process: how many, and the last one's seq
        self.started_at_learning = 0  # n_started at the last `learning` event since the start of this process
        self.late = LateFolds(self)

    def load(self, upto: int | None = None) -> None:
        """Replay the log up to `upto`, beginning at the stored snapshot unless that is newer or damaged.

        The events before the last compaction are gone: without a snapshot, or if it is older, the base is the begin.
        """
        base, snapshot = read_base(self.store), self.store.snapshot(WORLD_SNAPSHOT)
        begin = 0 if base is None else base.upto
        if snapshot is not None and begin <= snapshot.seq and (upto is None or snapshot.seq <= upto):
            body = decode_snapshot(self.store, snapshot)
            if body is not None:
                self._begin(body)
        if base is not None and self.seq == 0:
            self.begin_at(base)
        for row in self.store.events(self.seq, upto):
            self.late.replay(row)
        self.release()

    def begin_at(self, base: CompactBody) -> None:
        """Begin with what a compaction has left."""
        self._begin(msgpack.decode(base.world, type=WorldSnapshot))

    def _begin(self, body: WorldSnapshot) -> None:
        for row in self.store.events_of_service(body.seq):
            self.state.apply(row.kind, row.seq, read_event(row))
        self._restore(body)

    def snapshot(self) -> Snapshot:
        self.late.end()
        body = WorldSnapshot(
            seq=self.seq,
            n_features=self.state.n_features,
            n_started=self.n_started,
            n_rewarded=self.n_rewarded,
            n_events=self.n_events,
            started_at_training=self.started_at_training,
            shared={name: state.tobytes() for name, state in self.shared.states.items()},
            tallies={name: tally.pack() for name, tally in self.tallies.items()},
            users_per_model=self.users_per_model,
            concentration=self.concentration,
            erased=sorted(self.erased),
            mixtures=self.mixtures.pack(),
            items=self.items.sums,
            canary=self.canary.rates,
            verdict=self.canary.verdict,
        )
        return Snapshot(WORLD_SNAPSHOT, self.seq, events.encode(body))

    def _restore(self, body: WorldSnapshot) -> None:
        self.seq, self.state.n_features, self.n_events = body.seq, body.n_features, body.n_events
        self.n_started, self.n_rewarded = body.n_started, body.n_rewarded
        self.started_at_training = body.started_at_training
        self.shared.states = {name: floats(state) for name, state in body.shared.items()}
        self.tallies = {name: Tally.unpack(stored) for name, stored in body.tallies.items()}
        self.users_per_model = body.users_per_model
        self.concentration, self.erased = body.concentration, set(body.erased)
        if body.mixtures is not None:
            self.mixtures.restore(body.mixtures)
        self.canary.restore(body.canary, body.verdict)
        if body.items is not None:
            self.items.restore(body.items, self.state.item_effects(body.items.version))

    # Users

    @property
    def n_users(self) -> int:
        """All users with a decision, also those not learned from."""
        return sum(one.n_users for one in self.tallies.values())

    def user(self, name: str) -> User | None:
        """Return a user as of `seq`, from the cache or the store; None for a new user."""
        if name in self.late.names:
            self.late.fold(name)
        user = self.cache.get(name)
        if user is None and not self.cache.is_unknown(name):
            user = self.loader.load(name, self.seq)
            self.cache.admit(name, user)
        return user

    def begin_erasing(self, name: str) -> None:
        """Drop a user from memory, and make no snapshot of them until `cache.end_erasing`."""
        if name in self.late.names:
            self.late.fold(name)
        self.cache.begin_erasing(name)

    def user_in_memory(self, name: str) -> User | None:
        """Return a user as of `seq` if nothing has to be read or folded for that."""
        return None if name in self.late.names else self.cache.peek(name)

    def has_user(self, name: str) -> bool:
        """Whether `user` returns this user without blocking the event loop for long; reads a user who is not large."""
        if not self.store.inline:
            return self.cache.knows(name)
        if self.cache.can_get(name) or self.cache.is_unknown(name):
            return True
        if not self.store.newest_of(name):
            self.cache.admit(name, None)
            return True
        if self.loader.is_large(name, self.seq):
            return False
        self.user(name)  # now: whoever asks again, for the next of many requests, finds the user in memory
        return True

    def has_seen(self, name: str) -> bool:
        """Whether what a user was shown is known without blocking the event loop for long."""
        return name in self.seen or (self.store.inline and not self.loader.is_large(name, self.seq))

    def is_slow(self, row: Row) -> bool:
        """Whether applying an event would read so much from a local store that a thread should do it."""
        if not needs_history(row) or row.user is None or row.user in self.late.names or self.can_apply(row):
            return False
        return self.loader.is_large(row.user, row.seq)

    def uses_effects(self, recommender: str, model: int) -> bool:
        """Whether decisions of a recommender under a model version add the items' effects of now.

        The classes of the version must have been learned without what items have of their own.
        """
        return self.items.learned is not None and self.state.is_beside_effects(recommender, model)

    def can_apply(self, row: Row) -> bool:
        """Whether an event can be applied without reading the store."""
        name = row.user
        if name is None:
            return True
        return name in self.late.histories and name in self.cache if needs_history(row) else self.cache.knows(name)

    def take_prefetched(self, prefetched: Prefetched) -> None:
        """Keep what was read for the next events; no event was applied since."""
        self.late.take_prefetched(prefetched)
        for name, user in prefetched.users.items():
            if not self.cache.knows(name):
                self.cache.admit(name, user)

    def release(self) -> None:
        """Fold users whose rewards changed, and drop what was prefetched, after the events are applied."""
        self.late.end()
        self.late.forget_histories()
        self.cache.release()

    # Events

    def apply(self, row: Row, body: Any = None) -> None:
        if row.seq != self.seq + 1:
            raise StoreError(f"event {row.seq} after {self.seq}; the log has a gap, restore it from a backup")
        body = read_event(row) if body is None else body
        if self.late.names:
            self.late.prepare(row, changes=row.kind == "reward" and body.before is not None)
        if row.kind == "decision":
            self._apply_decision(row, body)
        elif row.kind == "reward":
            self._apply_reward(row, body)
        elif row.kind == "erase":
            self._apply_erase(body)
            self.erased_at = row.seq
        elif row.kind == "leave":
            self._apply_leave(row, body)
        elif row.kind == "erased leave":
            self.erased.add(row.seq)
            if body.row:
                self.mixtures.seat(body.recommender, row.seq, floats(body.row), body.at)
        elif row.kind == "erased decision":
            self.erased.add(row.seq)
            self._apply_erased_return(body)
            if body.shared:
                self.state.n_features = self.state.n_features or len(body.taken[0].x) // 8
                self.shared.count_decisions(body.recommender, WARMUP, body.taken)
        elif row.kind == "erased reward":
            self.erased.add(row.seq)
            self._apply_erased_return(body)
            if body.shared:
                self.shared.update(body.recommender, WARMUP, body)
            if body.residual is not None:
                self.items.add(body.item, body.residual)
        elif row.kind == "learning":
            self.items.begin_learning(row.seq)
            self.started_at_learning = self.n_started
        else:
            self.state.apply(row.kind, row.seq, body)
            if row.kind == "refit":
                self.mixtures.begin_refit(body.recommender, row.seq)
            elif row.kind == "mixture":
                self.mixtures.end_refit(body)
            elif row.kind in ("canary", "activate") and self.state.canary is None:
                self.canary.begin()
                if row.kind == "canary" and body.promoted and self.state.active == body.version:
                    self._take_effects(self.state.versions[body.version].body)
            elif row.kind == "model":
                if self.state.canary is None or self.state.canary.since == row.seq:
                    self.canary.begin()
                if body.active and self.state.versions[body.version].readable:
                    self._take_effects(body)
                self.started_at_training = self.n_started if body.n_started is None else body.n_started
        self.seq = row.seq
        if self.seen:
            self.seen.apply(row, body)
        self.late.note_applied(row)

    def _take_effects(self, body: events.ModelBody) -> None:
        self.items.take_version(body.version, body.seen, self.state.item_effects(body.version))

    def _apply_decision(self, row: Row, body: events.DecisionBody) -> None:
        name = row.user
        assert name is not None
        shown = body.taken if body.chosen is None else body.shown
        if self.state.n_features is None:
            self.state.n_features = len(shown[0].x) // 8
        user = self.user(name)
        if user is None:
            user = self.fold.start(body.recommender, row.model or WARMUP, row.seq)
            self.n_started += self.fold.is_teaching(row, body)
            self.tally(user.recommender).n_users += 1
            _add(self.users_per_model, user.model, 1)
            self.cache.admit(name, user)
            if user.canary and self.state.canary is not None and self.fold.is_teaching(row, body):
                self.canary.add(user)
        tally, before, last = self.tally(user.recommender), user.rate, user.model
        if self.state.mixture_of(user.recommender) is not None:
            self.mixtures.come(user, row.seq, body.at)
        elif self.fold.updates_shared(user, row, body):
            self.shared.count_decisions(user.recommender, row.model or WARMUP, shown)
        self.fold.step(user, row, body, 0.0)
        if user.model != last:
            for model, n in ((last, -1), (user.model, 1)):
                _add(self.users_per_model, model, n)
                self.count_settled(model, user.settled, n)
        self.n_events += 1
        tally.n_decisions += len(shown)
        tally.change_rate(before, user.rate)
        if user.canary:
            self._compare_canary(user, row.seq)

    def _apply_reward(self, row: Row, body: events.RewardBody) -> None:
        assert row.user is not None
        user = check_there(self.cache.peek(row.user) if row.user in self.late.names else self.user(row.user), row.seq)
        tally, before, sum_before = self.tally(user.recommender), user.rate, user.reward_sum
        self.mixtures.come(user, row.seq, body.at)
        first = body.before is None
        if first and user.n_rewards == 0:
            self.n_rewarded += self.fold.is_teaching(row, body)
        if self.fold.updates_shared(user, row, body):
            self.shared.update(user.recommender, row.model or WARMUP, body)
        item = body.item if self.fold.moves_item(row, body) else None
        added = (0, 0.0) if item is None else weigh_own(user.residuals, item)
        self.n_events += 1
        if not first:
            if self.late.allowed and not self._decides_canary(user):
                if item is not None:
                    self.items.add(item, self.late.change_residual(row, body, item))
                return self.late.put_off(user, row)
            user = self.late.fold_again(row.user, user, row)
        else:
            settled = user.settled
            self.fold.step(user, row, body, body.reward)
            tally.n_rewards += 1
            tally.change_rewards(sum_before, user.reward_sum)
            tally.change_rate(before, user.rate)
            if user.settled != settled:
                self.count_settled(user.model, user.settled, 1)
        if item is not None:
            self.items.add(item, self.fold.find_residual(body, added, weigh_own(user.residuals, item)))
        self._compare_canary(user, row.seq)

    def _compare_canary(self, user: User, seq: int) -> None:
        canary = self.state.canary if user.canary else None
        if canary is not None and self.canary.note(user) and self.canary.is_due(canary):
            self.late.end()  # the rates of all users are compared
            self.canary.judge(canary, seq)

    def _decides_canary(self, user: User) -> bool:
        """Whether a changed reward of a user may be the event with which the verdict on a canary is reached."""
        canary = self.state.canary if user.canary else None
        return canary is not None and self.canary.is_due(canary)

    def _apply_leave(self, row: Row, body: events.LeaveBody) -> None:
        assert row.user is not None
        user = check_there(self.user(row.user), row.seq)
        self.mixtures.leave(user, row.seq, body, self.fold.is_teaching(row, body))
        self.fold.step(user, row, body, 0.0)
        self.n_events += 1

    def _apply_erased_return(self, body: events.ErasedDecision | events.ErasedReward) -> None:
        if body.left:
            self.mixtures.unseat(body.recommender, body.left, floats(body.row))

    def _apply_erase(self, body: events.EraseBody) -> None:
        """Subtract a user from all counts; events that were erased before they were applied here were never counted."""
        counted = [past for past in body.history if past[0] not in self.erased]
        seqs = {past[0] for past in body.history}
        self.erased -= seqs
        self.n_erasures += 1
        self.late.forget_histories()
        self.state.n_features = self.state.n_features or body.n_features
        self.started_at_training -= body.started and self._was_trained_on(body.history[0][0], bool(counted))
        self.cache.forget(seqs)
        self.seen.forget(seqs)
        self.canary.forget(body.history[0][0])
        self.mixtures.forget_users(seqs)
        if not counted:
            return
        _, n_decisions, n_rewards, reward_sum, settled = counted[-1]
        self.tally(body.recommender).remove_user(n_decisions, n_rewards, reward_sum)
        self.n_events -= len(counted)
        self.n_started -= body.started
        self.n_rewarded -= body.rewarded and n_rewards > 0
        model = body.model if body.models is None else body.models[len(counted) - 1]
        _add(self.users_per_model, model, -1)
        self.count_settled(model, settled, -1)

    def _was_trained_on(self, first: int, counted: bool) -> bool:
        """Whether a user whose first event is `first` had started when the newest version was learned."""
        if not self.state.versions:
            return False
        last = max(self.state.versions.values(), key=lambda version: version.seq)
        if last.body.n_started is None:
            return counted and first < last.seq
        return last.body.seen is not None and first <= last.body.seen

    def count_settled(self, model: int, n_decisions: int, n: int) -> None:
        """Add `n` users who were settled after `n_decisions` decisions; 0 decisions: not settled, not counted."""
        if n_decisions:
            of_model = self.concentration.setdefault(model, {})
            _add(of_model, n_decisions, n)
            if not of_model:
                del self.concentration[model]

    def tally(self, recommender: str) -> Tally:
        found = self.tallies.get(recommender)  # setdefault would build a Tally per event
        if found is None:
            found = self.tallies[recommender] = Tally()
        return found


def _add(counts: dict[int, int], key: int, n: int) -> None:
    """Add to a count; a count of 0 is removed."""
    counts[key] = counts.get(key, 0) + n
    if not counts[key]:
        del counts[key]
