"""The plan of an evaluation, and the random split of a log's users into training and test users."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Index
from lcb.errors import InputError
from lcb.evaluate.offline.log_sources import LogSource
from lcb.words import format_count

_MOST_TESTED = 10_000  # test users, if their number is not given
_SPLIT = 0x5B  # part of the seed, so that splits share no random numbers with anything else


@dataclass(frozen=True)
class Plan:
    """The sizes of an evaluation, its features and its training rows."""

    n_train_users: int
    n_test_users: int
    n_steps: int = 20
    n_classes: int | None = 30  # None: chosen on the training users
    features: str | None = "one-hot"  # None: chosen on the training users
    train_on: str = "all"  # all rows of the training users, or uniform:n for n arms of each, drawn uniformly
    fixes_classes: bool = False  # lcb-auto has to use n_classes too, instead of choosing a number
    why_features: str = ""  # why they were chosen; empty if they were given

    def __post_init__(self) -> None:
        for name in ("n_train_users", "n_test_users", "n_steps", "n_classes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}; it must be at least 1")
        _ = self.n_pulls

    @property
    def n_pulls(self) -> int | None:
        """Arms drawn from each training user; None to train on all rows."""
        if self.train_on == "all":
            return None
        kind, _, number = self.train_on.partition(":")
        if kind != "uniform" or not number.isdigit() or int(number) < 1:
            raise InputError(f"train_on={self.train_on!r}; give all, or uniform:n for n uniform pulls per user")
        return int(number)


@dataclass(frozen=True)
class Split:
    """The users to train on and those to test on."""

    train: Index = field(repr=False)
    test: Index = field(repr=False)


def choose_sizes(
    n_events: NDArray[np.int64], n_steps: int, n_train_users: int | None = None, n_test_users: int | None = None
) -> tuple[int, int]:
    """Return the numbers of training and test users; those given stay as they are.

    The default is to test a quarter of the users with `n_steps` events, at most 10,000, and to train on all others.

    >>> choose_sizes(np.array([25] * 80 + [3] * 20), n_steps=20)
    (80, 20)
    """
    n_able, n_any = int((n_events >= n_steps).sum()), int((n_events > 0).sum())
    if n_any < 2:
        raise InputError("the log has events of one user only; a test needs some users to train on and others to test")
    n_test = n_test_users if n_test_users is not None else max(1, min(n_able // 4, _MOST_TESTED))
    return n_train_users if n_train_users is not None else max(1, n_any - n_test), n_test


def split_users(source: LogSource, plan: Plan, seed: int) -> Split:
    """Draw test users from those with `n_steps` events, then training users, those with `n_steps` events first."""
    rng = np.random.default_rng((seed, _SPLIT))
    n_events = source.n_events
    able = rng.permutation(np.flatnonzero(n_events >= plan.n_steps))
    others = rng.permutation(np.flatnonzero((n_events > 0) & (n_events < plan.n_steps)))
    if len(able) == 0:
        raise InputError(
            f"no user has the {format_count(plan.n_steps, 'labelled event')} that a test needs; the most that one has "
            f"is {n_events.max(initial=0):,}: ask for at most that many steps (--steps)"
        )
    if len(able) < plan.n_test_users:
        raise InputError(
            f"{format_count(plan.n_test_users, 'test user')} asked for, but only {len(able):,} of "
            f"{format_count(len(n_events), 'user')} have the "
            f"{format_count(plan.n_steps, 'labelled event')} that a test needs; ask for fewer test users or fewer steps"
        )
    test, rest = able[: plan.n_test_users], np.concatenate([able[plan.n_test_users :], others])
    if len(rest) < plan.n_train_users:
        raise InputError(
            f"{format_count(plan.n_train_users, 'training user')} asked for, but "
            f"{format_count(len(rest), 'user', 'are')} left beside the "
            f"{plan.n_test_users:,} tested; ask for fewer"
        )
    return Split(np.sort(rest[: plan.n_train_users]), test)
