"""Erasure of a user: their events lose everything personal, and an `erase` event lists the counts to subtract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lcb.serve import events
from lcb.serve.event_ids import event_id, slot_of_reward
from lcb.serve.read_event import lighten, read_event
from lcb.serve.state.per_user.own_rewards import OwnRewards, RunningSum
from lcb.serve.state.per_user.settling import Settling
from lcb.serve.state.users import WARMUP, User
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow, Rewrite, Row
from lcb.storage.store.chain import digest_rewrite

_NOTHING = (0.0, 1.0, b"", False, None, None)


class Remains:
    """What stays of a user's events, which `take` is given in order, from the first one on; it may run in any thread.

    Ids, items and context are dropped.  If the bandit's state is shared by all users, what has built it stays without a
    name, because it is rebuilt from that: features and reward, and features of a decision only if the bandit counts
    decisions by them.  If the user was seated in a mixture, the statistics stay with each departure and return; the
    next refit leaves them out.  What a reward added to its item stays too.

    A changed reward needs the counts of the user after it.  They are found without a fold of all events for each.
    """

    def __init__(self, world: World) -> None:
        self._world, self._fold = world, world.fold
        self.taken: list[tuple[int, str]] = []  # seq and id of the events
        self.rewrites: list[Rewrite] = []
        self._user: User | None = None  # counts and model version; no state, and what rewards add up to is below
        self._counts: list[tuple[int, int, int, float]] = []  # as in `EraseBody.history`, without the last number
        self._models: list[int] = []
        self._settled: list[int] = []  # of the events that `_settling` was asked about
        self._settling: Settling | None = None
        self._rewards, self._places = RunningSum(0.0), dict[str, int]()
        self._own, self._added = OwnRewards(world.fold), dict[str, tuple[int, float]]()  # by item: what they have added
        self._departed: tuple[int, bytes] = (0, b"")  # the departure before the next event, and the statistics then
        self._teaching: dict[str, bool] = {}  # by kind, of the first decision and the first reward
        self._past: list[Row] = []
        self._folded: tuple[User, int] | None = None  # the user after so many events; None: a reward changed since

    def continues_in(self, rows: Sequence[Row]) -> bool:
        """Whether the events that were taken are the first ones of `rows`."""
        return self.taken == [(row.seq, row.id) for row in rows[: len(self.taken)]]

    def take(self, rows: Sequence[Row]) -> None:
        """Take the next events."""
        for row in rows:
            self._take(row, read_event(row))
        if self._settling is not None:
            self._settled += self._settling.find(len(self._settled), len(self._counts))

    def _take(self, row: Row, body: Any) -> None:
        fold, at = self._fold, len(self.taken)
        self.taken.append((row.seq, row.id))
        self._past.append(lighten(row))
        if self._user is None:
            self._user = fold.start(body.recommender, row.model or WARMUP, row.seq)
            self._settling = Settling(fold, self._user)
        user, settling = self._user, self._settling
        assert settling is not None
        fold.count(user, row, body)
        if row.kind == "reward":
            slot = slot_of_reward(row.id)
            settling.take(at, user, row, body, slot)
            self._own.take(row, body)
            if body.before is None:
                self._places[slot] = len(self._rewards)
                self._rewards.append(body.reward)
            elif slot in self._places:
                self._rewards.change(self._places[slot], body.reward)
                self._folded = None
        self._models.append(user.model)
        self._counts.append((row.seq, user.n_decisions, user.n_rewards, float(self._rewards)))
        self._teaching.setdefault(row.kind, fold.is_teaching(row, body))
        left = self._strip(user, row, body)
        self.rewrites.append(Rewrite(row.seq, event_id("erased", row.seq), f"erased {row.kind}", events.encode(left)))

    def _strip(self, user: User, row: Row, body: Any) -> Any:
        """Return what stays of the body of an event."""
        fold, departed = self._fold, self._departed
        self._departed = (0, b"")
        shared = fold.updates_shared(user, row, body)
        of = user.recommender if departed[0] else body.recommender
        if row.kind == "leave":
            if user.left == row.seq and user.state is not None and fold.is_teaching(row, body):
                self._departed = row.seq, self._find_state()
            return events.ErasedLeave(body.at, user.recommender, self._departed[1])
        if row.kind == "decision":
            bare = [self._strip_arm(body.recommender, arm) for arm in body.shown] if shared else []
            return events.ErasedDecision(of, shared, bare, *departed)
        kept = (body.reward, body.propensity, body.x, body.at_random, body.advice, body.before)
        left = events.ErasedReward(of, shared, *(kept if shared else _NOTHING))
        left.left, left.row = departed
        if fold.moves_item(row, body):
            left.item, after = body.item, self._own.weigh(body.item or "")
            left.residual = fold.find_residual(body, self._added.get(body.item, (0, 0.0)), after)
            self._added[body.item] = after
        return left

    def _strip_arm(self, recommender: str, arm: events.ChosenArm) -> events.ChosenArm:
        """Return what stays of an arm that updates a shared state.

        That is how many features it had, unless the bandit counts decisions by what they were.
        """
        bandit, _ = self._fold.state.bandit(recommender, WARMUP, len(arm.x) // 8)
        if hasattr(bandit, "count_decision"):
            return msgspec.structs.replace(arm, id="", distribution=None, rest=None)
        return events.ChosenArm(0, "", 1.0, bytes(len(arm.x)), None, False, None)

    def _find_state(self) -> bytes:
        """Return the statistics of a user who has left, after all events so far."""
        if self._folded is None:
            user = self._fold.fold(self._past)
        else:
            user, n = self._folded
            for row in self._past[n:]:
                body = read_event(row)
                self._fold.step(user, row, body, getattr(body, "reward", 0.0))
        assert user is not None
        assert user.state is not None
        self._folded = user, len(self._past)
        return user.state.tobytes()

    def build_event(self, at: float, new_id: str, by: events.Actor | None = None) -> NewRow:
        """Return the `erase` event for the events that were taken."""
        assert self._user is not None
        history = [(*counts, settled) for counts, settled in zip(self._counts, self._settled, strict=True)]
        left = [digest_rewrite(one) for one in self.rewrites]
        about = (self._user.recommender, self._models[-1], history, self._world.state.n_features, by, left)
        counted = self._teaching.get("decision", True), self._teaching.get("reward", True)
        body = events.EraseBody(at, *about, *counted, self._models)
        return NewRow(event_id("erase", new_id), "erase", None, None, events.encode(body))


def build_erasure(
    world: World, rows: Sequence[Row], at: float, new_id: Callable[[], str], by: events.Actor | None = None
) -> tuple[list[Rewrite], NewRow]:
    """Return the replacement of each event of an erased user, and the `erase` event."""
    remains = Remains(world)
    remains.take(rows)
    return remains.rewrites, remains.build_event(at, new_id(), by)
