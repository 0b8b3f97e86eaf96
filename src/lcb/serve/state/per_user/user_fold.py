"""Folds a user's events into the user's state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit, count_decision
from lcb.bandits.traits import DescribedBandit, LogPosteriorBandit, keeps_posterior
from lcb.errors import InputError
from lcb.serve import events
from lcb.serve.config.settings import READER
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.events import to_decision
from lcb.serve.read_event import lighten, read_event
from lcb.serve.state.model_version import UnreadableModels
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.users import EVERYTHING, LOST, WARMUP, User, add_own
from lcb.stats import add_row, n_packed
from lcb.storage.store.base import Row

SETTLED = 0.9  # a user is settled once the posterior of one class reaches this
LOG_SETTLED = math.log(SETTLED)
FEWEST = 3  # rewards; fewer are folded faster one by one


class UserFold:
    """Folds with the bandits of `state`; it stores nothing about users and reads no store."""

    def __init__(self, state: ServiceState) -> None:
        self.state = state
        self._updates: dict[int, tuple[Floats, Floats]] = {}  # by seq of a reward: the state before it, and after

    def start(self, recommender: str, model: int, seq: int, n_features: int | None = None) -> User:
        """Return a new user of this recommender and model version; `seq` is their first event, 0: not stored yet."""
        user = User(recommender, model, self._start_state(recommender, model, n_features), seq)
        if self.state.canaries and seq:
            user.canary = self.state.place_in_canary(recommender, model, seq)
        return user

    def _start_state(self, recommender: str, model: int, n_features: int | None) -> Floats | None:
        if not self.state.is_pinned(recommender):
            size = self.state.n_features or n_features
            assert size is not None
            return np.zeros(n_packed(size))
        try:
            bandit, shared = self.state.bandit(recommender, model, n_features)
        except UnreadableModels:
            return LOST
        return None if shared else bandit.start()

    def fold(self, rows: Iterable[Row]) -> User | None:
        """Return a user from all of their events; a reward that was changed counts as if sent with its final value."""
        bodies = [(row, read_event(row)) for row in rows]
        counts = {slot_of_reward(row.id): body.reward for row, body in bodies if row.kind == "reward"}
        user: User | None = None
        for row, body in bodies:
            if row.kind == "base":  # in place of all events before it
                user = User.unpack(body.user)
                continue
            if user is None:
                user = self.start(body.recommender, row.model or WARMUP, row.seq)
            if row.kind == "reward" and body.before is not None:
                user.seq, user.left, user.fresh = row.seq, 0, EVERYTHING  # all of this would have to be done again
            else:
                self.step(user, row, body, counts[slot_of_reward(row.id)] if row.kind == "reward" else 0.0)
        return user

    def walk(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Any, User]]:
        """Yield a user's events in order, each with its body and the user after it.

        After changed rewards all earlier events are folded again.  Those that follow one another have the user after
        the last of them, from one fold.
        """
        user: User | None = None
        past: list[Row] = []
        run: list[tuple[Row, Any]] = []  # changed rewards, and the user after them is not known yet
        for row in rows:
            body = read_event(row)
            changed = row.kind == "reward" and body.before is not None
            if run and not changed:
                user = self._fold_anew(past)
                yield from [(*one, user) for one in run]
                run = []
            past.append(lighten(row))
            if row.kind == "base":
                user = User.unpack(body.user)
                continue
            if changed:
                run.append((row, body))
                continue
            user = user or self.start(body.recommender, row.model or WARMUP, row.seq)
            self.step(user, row, body, getattr(body, "reward", 0.0))
            yield row, body, user
        if run:
            user = self._fold_anew(past)
            yield from [(*one, user) for one in run]

    def _fold_anew(self, rows: Sequence[Row]) -> User:
        user = self.fold(rows)
        assert user is not None
        return user

    def prepare(self, rows: Sequence[Row], bodies: Sequence[Any], find_user: Callable[[str], User | None]) -> None:
        """Compute what the next events, rewards of many users, do to their states, at once.

        `step` takes what was computed from the state that it finds.
        """
        self._updates, groups = {}, dict[tuple[str, int], list[tuple[int, Any, Floats]]]()
        for (seq, _, kind, name, model, _), body in zip(rows, bodies, strict=True):
            if kind != "reward" or name is None or body is None or body.before is not None:
                continue
            user = find_user(name)
            if user is not None and user.state is not None and user.state is not LOST and user.model == model:
                groups.setdefault((user.recommender, model), []).append((seq, body, user.state))
        for (recommender, model), members in groups.items():
            if len(members) >= FEWEST and self.state.is_pinned(recommender):
                self._prepare(recommender, model, members)

    def _prepare(self, recommender: str, model: int, members: list[tuple[int, Any, Floats]]) -> None:
        try:
            bandit, _ = self.state.bandit(recommender, model)
            update_many = getattr(bandit, "update_many", None)
            if update_many is None:
                return
            _, bodies, states = zip(*members, strict=True)
            x = np.frombuffer(b"".join([body.x for body in bodies])).reshape(len(members), -1)
            rewards = [body.reward for body in bodies]
            if has_log_posterior(bandit) and bandit.models.levels is not None:
                rewards = [clip_to_levels(bandit, reward) for reward in rewards]
            effects = np.array([body.effect or 0.0 for body in bodies])
            after = update_many(np.concatenate(states).reshape(len(members), -1), x, np.array(rewards), effects)
        except (UnreadableModels, InputError):  # told when the event itself is applied
            return
        for (seq, _, state), one in zip(members, after, strict=True):
            self._updates[seq] = state, one.copy()

    def step(self, user: User, row: Row, body: Any, reward: float) -> None:
        """Apply one event to its user; `reward` is the final reward of the event's slot."""
        self.count(user, row, body)
        if row.kind == "leave":
            return
        if row.kind == "decision":
            if self.state.is_pinned(user.recommender) and (own := self._own_bandit(user, row, body)) is not None:
                user.state = count_decisions(*own, body.taken if body.chosen is None else body.shown)
            return
        user.reward_sum += reward
        if body.mean is not None and self.state.counts_users and self.is_teaching(row, body):
            user.residuals = add_own(user.residuals, body.item, reward - body.mean)
        if not self.state.is_pinned(user.recommender):
            if user.state is not None and body.recommender == user.recommender:
                user.state = add_row(user.state, events.floats(body.x), reward - (body.effect or 0.0))
                self._note_settled(user)
        elif (own := self._own_bandit(user, row, body)) is not None:
            bandit, state = own
            known = self._updates.pop(row.seq, None) if self._updates else None
            if known is not None and known[0] is state:
                user.state = known[1]
            else:
                user.state = bandit.update(state, to_decision(body), clip_to_levels(bandit, reward))
            if not has_log_posterior(bandit):
                self._note_settled(user)
            elif not user.settled and max(user.state.tolist()) >= LOG_SETTLED:
                user.settled = user.n_decisions

    def count(self, user: User, row: Row, body: Any) -> None:
        """Do the part of `step` that does not depend on what rewards are: counts, model version, departure."""
        if row.kind == "leave":
            user.left = row.seq if body.last == user.seq else user.left
            user.seq = row.seq
            return
        user.seq, user.left = row.seq, 0
        user.note_event(len(row.body), changes_state=row.kind == "reward")
        if row.kind == "decision":
            user.n_decisions += len(body.taken if body.chosen is None else body.shown)
            if body.recommender == user.recommender and not self.state.is_pinned(user.recommender):
                user.model = row.model or WARMUP
        elif body.before is None:
            user.n_rewards += 1

    def _note_settled(self, user: User) -> None:
        """Note the decisions of a user whose statistics have made one class probable, under the version last used."""
        if user.settled or not self.state.recommenders[user.recommender].settles:
            return
        posterior = self.posterior(user)
        if posterior is not None and posterior.max() >= SETTLED:
            user.settled = user.n_decisions

    def updates_shared(self, user: User, row: Row, body: Any) -> bool:
        """Whether an event updates the state that all users of the recommender share.

        Events of visitors who teach nobody else do not; the visitors' page has a recommender for visitors alone.
        """
        pinned = self.state.is_pinned(user.recommender)
        if pinned and user.state is not None:
            return False
        if row.kind == "leave" or self.state.mixture_of(user.recommender) is not None:
            return False
        if pinned:
            shares = user.is_own(row, body)
        else:
            shares = (row.model or WARMUP) == WARMUP and body.recommender == user.recommender
        return shares and (body.recommender == READER or self.is_teaching(row, body))

    def is_teaching(self, row: Row, body: Any) -> bool:
        """Whether an event of a user counts for learning; the rule for a reward is that of the log at its decision."""
        assert row.user is not None
        decision = body.decision if row.kind == "reward" else row.seq
        return self.state.is_teaching(row.user, body.recommender, decision)

    def moves_item(self, row: Row, body: events.RewardBody) -> bool:
        """Whether a reward moves the effect of its item: its decision had effects, and its user teaches."""
        return body.mean is not None and self.is_teaching(row, body)

    def find_residual(
        self, body: events.RewardBody, before: tuple[int, float], after: tuple[int, float]
    ) -> tuple[int, float]:
        """Return what a reward adds to the count and the sum of its item.

        `before` and `after` are what the user's rewards for the item add (`weigh_own`), without and with this one.  In
        logs of earlier versions each reward counts.
        """
        if not self.state.counts_users:
            assert body.residual is not None
            return body.residual
        return after[0] - before[0], after[1] - before[1]

    def _own_bandit(self, user: User, row: Row, body: Any) -> tuple[DescribedBandit, Floats] | None:
        """Return the bandit that updates the user's own state, and that state.

        None if the state is shared or lost, or if the event is of another model version than the user's.
        """
        if user.state is None or user.state is LOST or not user.is_own(row, body):
            return None
        try:
            return self.state.bandit(user.recommender, user.model)[0], user.state
        except UnreadableModels:
            user.state = LOST
            return None

    def posterior(self, user: User) -> Floats | None:
        """Return the probability of each class; None if the user's bandit keeps no posterior."""
        if user.state is None or user.state is LOST:
            return None
        try:
            bandit, _ = self.state.bandit(user.recommender, user.model)
        except UnreadableModels:
            return None
        if not keeps_posterior(bandit):
            return None
        return bandit.weights(user.state)


def count_decisions(bandit: Bandit, state: Floats, arms: list[events.ChosenArm]) -> Floats:
    """Return the state after decisions; only bandits that count decisions change it."""
    if hasattr(bandit, "count_decision"):
        for arm in arms:
            state = count_decision(bandit, state, to_decision(arm))
    return state


def has_log_posterior(bandit: DescribedBandit) -> TypeGuard[LogPosteriorBandit]:
    """Whether the state is the log posterior over the classes."""
    return keeps_posterior(bandit) and not bandit.traits.keeps_statistics


def clip_to_levels(bandit: DescribedBandit, reward: float) -> float:
    """Clip a reward to the two levels of Bernoulli models, which cannot use values outside them."""
    if has_log_posterior(bandit) and bandit.models.levels is not None:
        low, high = bandit.models.levels
        return min(max(reward, low), high)
    return reward
