"""When a user was settled, as of each of the user's events, where rewards were changed.

A changed reward counts from then on as if it had been sent with its new value, so each change gives the user another
past.  The pasts are followed together, reward by reward: pasts whose rewards are the same so far share one state, and a
past is followed no further once the user is settled in it.  States have the bits of `UserFold.fold`.

If most pasts are settled soon, this takes time in proportion to the events; if none is, one vector operation for each
reward and all changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.bandits.traits import StatisticsBandit, keeps_posterior
from lcb.serve import events
from lcb.serve.state.model_version import UnreadableModels
from lcb.serve.state.per_user.user_fold import LOG_SETTLED, SETTLED, UserFold, clip_to_levels, has_log_posterior
from lcb.serve.state.users import LOST, User
from lcb.stats import add_rows
from lcb.storage.store.base import Row

_MOST_BYTES = 32 << 20  # of the states of pasts that are followed together
_CLOSE = 1e-9


class _Slot(Struct, gc=False):
    """A slot with a reward: `at` is the event of the first one, and `changes` are the later events that changed it."""

    at: int
    n_decisions: int
    model: int
    body: events.RewardBody
    changes: list[int]
    rewards: list[float]  # the first one, and those of `changes`


class Settling:
    """Finds after how many decisions a user was settled; events are numbered as they are counted, from 0."""

    def __init__(self, fold: UserFold, user: User) -> None:
        self._fold, self._recommender = fold, user.recommender
        self._pinned, self._start = fold.state.is_pinned(user.recommender), user.state
        self._slots: list[_Slot] = []
        self._by_slot: dict[str, _Slot] = {}
        self._changes: list[int] = []  # events that changed a reward

    def take(self, at: int, user: User, row: Row, body: events.RewardBody, slot: str) -> None:
        """Take the reward that is event `at` of the user."""
        if body.before is not None:
            known = self._by_slot.get(slot)
            if known is not None:
                known.changes.append(at)
                known.rewards.append(body.reward)
                self._changes.append(at)
        elif self._moves(user, row, body):
            one = self._by_slot[slot] = _Slot(at, user.n_decisions, user.model, body, [], [body.reward])
            self._slots.append(one)

    def _moves(self, user: User, row: Row, body: events.RewardBody) -> bool:
        """Whether a reward changes the user's own state, and the user can be settled by it."""
        if self._start is None or self._start is LOST:
            return False
        if self._pinned:
            return user.is_own(row, body) and self._can_settle(user.model)
        return body.recommender == self._recommender and self._fold.state.recommenders[self._recommender].settles

    def _can_settle(self, model: int) -> bool:
        """Whether users are settled by the bandit of a model version; its models may be unreadable."""
        state = self._fold.state
        try:
            bandit, _ = state.bandit(self._recommender, model)
        except UnreadableModels:
            return False
        return keeps_posterior(bandit) and (has_log_posterior(bandit) or state.recommenders[self._recommender].settles)

    def find(self, since: int, n: int) -> list[int]:
        """Return the decisions until the user was settled, 0 if not yet, as of each event from `since` up to `n`."""
        settled = np.zeros(n - since, int)
        if any(self._can_settle(model) for model in {slot.model for slot in self._slots}):
            assert self._start is not None
            most = max(_MOST_BYTES // max(self._start.nbytes, 1), 16)
            changes = [at for at in self._changes if at > since]
            bounds = [since, *changes[most::most], n]
            for first, last in pairwise(bounds):
                for begin, end, n_decisions in self._follow(first, last):
                    settled[begin - since : end - since] = n_decisions
        return settled.tolist()

    def _follow(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Follow the pasts as of the events from `first` to `last`; yield which of them are settled, and when.

        A past is that of all events from `begins` to `ends`, between which no reward changed.
        """
        assert self._start is not None
        begins, ends, states = np.array([first]), np.array([last]), self._start[None]
        for slot in self._slots:
            gone = int(np.searchsorted(ends, slot.at, "right"))  # before the first reward of this slot
            begins, ends, states = begins[gone:], ends[gone:], states[gone:]
            if not len(ends):
                return
            begins[0] = max(begins[0], slot.at)
            changes = np.array(slot.changes, int)
            if len(changes):
                begins, ends, states = _divide(begins, ends, states, changes)
            states, done = self._update(slot, states, np.searchsorted(changes, begins, "right"))
            if done is not None and done.any():
                for begin, end in zip(begins[done].tolist(), ends[done].tolist(), strict=True):
                    yield begin, end, slot.n_decisions
                begins, ends, states = begins[~done], ends[~done], states[~done]

    def _update(self, slot: _Slot, states: Floats, which: Index) -> tuple[Floats, NDArray[np.bool_] | None]:
        """Return the states after one of the rewards of a slot for each past, and which are those of a settled user."""
        x, effect, rewards = events.floats(slot.body.x), slot.body.effect or 0.0, slot.rewards
        can_settle = self._can_settle(slot.model)
        bandit = self._fold.state.bandit(self._recommender, slot.model)[0] if can_settle else None
        if bandit is not None and has_log_posterior(bandit):
            n, given = len(states), np.array([clip_to_levels(bandit, reward) for reward in rewards])
            states = bandit.update_many(states, np.tile(x, (n, 1)), given[which], np.full(n, effect))
            return states, states.max(axis=1) >= LOG_SETTLED
        states = add_rows(states, x, np.array(rewards)[which] - effect)
        if bandit is None:
            return states, None
        known = cast(StatisticsBandit, bandit)
        chances = known.weights_of_many(states).max(axis=1)
        for i in np.flatnonzero(np.abs(chances - SETTLED) < _CLOSE):  # the last bits decide, and may be others for many
            chances[i] = known.weights(states[i]).max()
        return states, chances >= SETTLED


def _divide(begins: Index, ends: Index, states: Floats, changes: Index) -> tuple[Index, Index, Floats]:
    """Divide pasts where a reward changed.

    >>> _divide(np.array([0, 5]), np.array([5, 9]), np.array([[0.0], [1.0]]), np.array([5, 6, 8, 9]))[:2]
    (array([0, 5, 6, 8]), array([5, 6, 8, 9]))
    """
    within = np.searchsorted(begins, changes, "left") - 1
    changes, within = changes[within >= 0], within[within >= 0]
    divided = changes < ends[within]
    changes, within = changes[divided], within[divided]
    rows = np.insert(np.arange(len(begins)), within + 1, within)
    return np.insert(begins, within + 1, changes), np.insert(ends, within, changes), states[rows]
