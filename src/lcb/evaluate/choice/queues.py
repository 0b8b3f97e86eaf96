"""Queues of rewards for users who are served in simulation: what every arm of a user would give, one after another.

A user's labels of an arm come first, each once and in random order.  Where they run out, further rewards are drawn from
the user's rate of the arm, as in the method `filled` of `lcb evaluate`: see `lcb.evaluate.user_rates`.  With less than
one label per user and arm such rates would be those of the model; then queues are left short as in the method `queue`,
and a user is served for half as many steps as they have labels: after the last label all candidates are equal.

Queues are drawn before anything is served, so that all candidates meet the same rewards.  They can be drawn repeatedly:
labels in another order, and other rates from the same model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.evaluate.user_rates import FEWEST_LABELS, DrawnRates, draw_rates, find_residuals
from lcb.event_log import Clicks

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Queues:
    """The rewards of every pair (user, arm) that can be served; the pairs of a user are next to each other."""

    arms: Floats = field(repr=False)  # (A, d)
    begin: Index = field(repr=False)  # (U + 1,) the first pair of each user
    arm: Index = field(repr=False)  # (P,)
    rewards: Floats = field(repr=False)  # (P, n_steps)
    size: Integers = field(repr=False)  # (P,) how many of the rewards there are
    steps: Integers = field(repr=False)  # (U,) for which each user is served
    is_filled: bool


@dataclass(frozen=True, eq=False)
class Values:
    """Labels of any value, (n,) each, on arms (A, d)."""

    arms: Floats = field(repr=False)
    user: Index = field(repr=False)
    arm: Index = field(repr=False)
    reward: Floats = field(repr=False)
    n_users: int


def draw_queues(labels: Clicks | Values, n_steps: int, rng: np.random.Generator) -> Iterator[Queues]:
    """Draw the queues of all users of `labels`, again and again."""
    return _draw_clicks(labels, n_steps, rng) if isinstance(labels, Clicks) else _draw_values(labels, n_steps, rng)


def _draw_clicks(labels: Clicks, n_steps: int, rng: np.random.Generator) -> Iterator[Queues]:
    count = labels.clicked + labels.passed
    n_users, n_arms = count.shape
    is_filled = _can_fill(count.sum(), n_users, n_arms)
    if is_filled:
        user, arm = np.divmod(np.arange(n_users * n_arms), n_arms)
        n, clicked = count.toarray().ravel(), labels.clicked.toarray().ravel()
    else:
        user, arm = count.nonzero()
        n, clicked = (np.asarray(table.tocsr()[user, arm], np.float64) for table in (count, labels.clicked))
    no_label = np.arange(n_steps) >= n[:, None] if is_filled and (n < n_steps).any() else None
    rates = None if no_label is None else _Rates(clicked.reshape(n_users, -1), (n - clicked).reshape(n_users, -1))
    while True:
        left_high, is_high = clicked.copy(), np.empty((len(user), n_steps), bool)
        for j, uniform in enumerate(rng.random((n_steps, len(user)))):
            is_high[:, j] = uniform * np.maximum(n - j, 1) < left_high
            left_high -= is_high[:, j]
        if rates is not None:
            rate = rates.draw(rng).reshape(-1, 1)
            is_high[no_label] = (rng.random(is_high.shape) < rate)[no_label]
        yield _build(labels.arms, user, arm, np.where(is_high, labels.high, labels.low), n, n_users, is_filled)


def _draw_values(labels: Values, n_steps: int, rng: np.random.Generator) -> Iterator[Queues]:
    n_users, n_arms = labels.n_users, len(labels.arms)
    is_filled = _can_fill(len(labels.reward), n_users, n_arms)
    pair = labels.user * n_arms + labels.arm
    pairs, n = np.unique(pair, return_counts=True)
    if is_filled:
        pairs, n = np.arange(n_users * n_arms), np.bincount(pair, minlength=n_users * n_arms)
    user, arm = np.divmod(pairs, n_arms)
    no_label = np.arange(n_steps) >= n[:, None] if is_filled and (n < n_steps).any() else None
    if no_label is not None:
        low, high = labels.reward.min(), labels.reward.max()
        share = (labels.reward - low) / (high - low)
        count = n.reshape(n_users, n_arms).astype(np.float64)
        total = np.bincount(pair, share, len(pairs)).reshape(count.shape).astype(np.float64)
        residuals, weight = find_residuals(labels.user, labels.arm, share, count, total)
        rates = _Rates(weight * total, weight * (count - total))
    while True:
        order = np.lexsort((rng.random(len(pair)), pair))
        of = np.searchsorted(pairs, pair[order])
        place = np.arange(len(pair)) - (np.cumsum(n) - n)[of]
        rewards, early = np.zeros((len(pairs), n_steps)), place < n_steps
        rewards[of[early], place[early]] = labels.reward[order][early]
        if no_label is not None:
            rate = rates.draw(rng)
            noise = np.stack([rng.choice(pool, (n_users, n_steps)) for pool in residuals], axis=1)
            drawn = low + (high - low) * np.clip(rate[..., None] + noise, 0, 1)
            rewards[no_label] = drawn.reshape(rewards.shape)[no_label]
        yield _build(labels.arms, user, arm, rewards, n, n_users, is_filled)


class _Rates:
    """Draws the rates of users again and again, from their numbers of clicks and passes (U, A); fitted at the first."""

    def __init__(self, clicked: Floats, passed: Floats) -> None:
        self.clicked, self.passed = clicked, passed
        self._drawn: DrawnRates | None = None

    def draw(self, rng: np.random.Generator) -> Floats:
        if self._drawn is None:
            self._drawn = draw_rates(self.clicked, self.passed, rng)
            return self._drawn.rate
        return self._drawn.draw_again(self.clicked, self.passed, rng)


def _can_fill(n_labels: float, n_users: int, n_arms: int) -> bool:
    return bool(n_labels >= FEWEST_LABELS * n_users * n_arms)


def _build(
    arms: Floats, user: Index, arm: Index, rewards: Floats, n: Floats | Integers, n_users: int, is_filled: bool
) -> Queues:
    """Return the queues of pairs (P,) with `n` labels each; those of a user are next to each other."""
    n_steps = rewards.shape[1]
    size, steps = np.minimum(n, n_steps).astype(np.int64), np.full(n_users, n_steps)
    if is_filled:
        size[:] = n_steps
    else:
        steps = np.minimum(steps, np.bincount(user, n, n_users).astype(np.int64) // 2)
    begin = np.searchsorted(user, np.arange(n_users + 1))
    return Queues(arms, begin, np.asarray(arm, np.intp), rewards, size, steps, is_filled)
