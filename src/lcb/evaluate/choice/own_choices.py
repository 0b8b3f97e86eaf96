"""Learns a mixture from the log of a recommender that chose by what it had learned, among arms that come again.

Such a log tells what was shown, and what was shown is what the last classes liked.  Candidates that serve held-out
users from these labels are compared on it alone, and classes that take their weights for certain never try another arm:
two classes found where there are three are found again from what they chose.  The classes of a mixture
(`lcb.learners.mixture`) know how uncertain their weights are, and the bonus tries what is not known.

Where features differ at every event, all weights are learned from whatever was chosen, and classes are chosen as in any
log.  So are they in a log in which somebody else chose, unless some arms have hardly any labels, or most labels of a
user are of one arm, as where a good recommender chose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lcb.evaluate.choice.candidates import DEFAULT_BONUS, MOST_USERS
from lcb.evaluate.choice.serving import MOST_FAVOURED, find_favour, find_labels
from lcb.event_log import Clicks, EventLog
from lcb.learners import fit
from lcb.learners.shared.users import Users, find_users, map_here, take_most
from lcb.models import Fit
from lcb.progress import Progress, silent
from lcb.stats import UserStats

LEARNER = "mixture"
_LEAST_SHARE = 0.2  # of the mean number of labels of an arm
_MOST_FEATURES = 100  # of a mixture: a seat costs O(d^3)


@dataclass(frozen=True)
class Mixture:
    """The classes of a mixture, as many as the sampler finds: what is chosen where candidates cannot be compared."""

    def learn(self, log: EventLog | Users, rng: np.random.Generator, progress: Progress = silent, **_: Any) -> Fit:
        """Learn them here, wherever the users are; threads and a cluster are of no use."""
        return learn_own_choices(log, rng, progress)

    def __str__(self) -> str:
        return "a mixture"


def is_own_choice(log: EventLog) -> bool:
    """Whether a mixture is learned from the log of a recommender that chose by itself: arms come again.

    >>> is_own_choice(EventLog.from_counts(np.eye(2), np.full((30, 2), 2), np.full((30, 2), 3)))
    True
    """
    return log.stats.n_features <= _MOST_FEATURES and find_labels(log) is not None


def is_favoured(log: EventLog) -> bool:
    """Whether a mixture can be learned from the log, and most labels of a user are of one arm.

    >>> shown = np.tile([[19, 1], [1, 19]], (15, 1))
    >>> is_favoured(EventLog.from_counts(np.eye(2), shown // 2, shown - shown // 2))
    True
    >>> is_favoured(EventLog.from_counts(np.eye(2), np.full((30, 2), 4), np.full((30, 2), 6)))
    False
    """
    labels = find_labels(log)
    return labels is not None and log.stats.n_features <= _MOST_FEATURES and find_favour(labels) > MOST_FAVOURED


def is_one_sided(log: EventLog) -> bool:
    """Whether arms come again, and some have few labels or none: less than a fifth of the mean number.

    An arm without labels is not in the log; it shows if its features are not those of others.

    >>> def count(shown):
    ...     clicked = np.minimum(np.tile([1, 0, 1], (30, 1)), shown)
    ...     return EventLog.from_counts(np.eye(3), clicked, np.array(shown) - clicked)
    >>> is_one_sided(count([4, 5, 4])), is_one_sided(count([40, 2, 20])), is_one_sided(count([5, 0, 5]))
    (False, True, True)
    """
    labels = find_labels(log)
    if labels is None:
        return False
    if isinstance(labels, Clicks):
        count = np.asarray((labels.clicked + labels.passed).sum(axis=0)).ravel()
    else:
        count = np.bincount(labels.arm, minlength=len(labels.arms))
    shown = labels.arms[count > 0]
    return bool(count.min() < _LEAST_SHARE * count.mean() or np.linalg.matrix_rank(shown) < log.stats.n_features)


def learn_own_choices(log: EventLog | Users, rng: np.random.Generator, progress: Progress = silent) -> Fit:
    """Learn a mixture from at most 5,000 users, drawn at random; the models keep the bonus in their provenance.

    The weights of a mixture are 0 where nothing is known.  Where the features of every arm sum to 1, as categories do,
    rewards are counted from their mean, so that an arm that was never shown is expected to be like the others.
    """
    users = find_users(log, map_here)
    few = take_most(users, MOST_USERS, lambda: np.sort(rng.permutation(users.n_users)[:MOST_USERS]))
    level = _find_level(few)
    found = fit(EventLog(_count_from(level, few.stats)), None, rng=rng, learner=LEARNER, progress=progress)
    models = replace(found.models, beta=found.models.beta + level)
    return replace(found, models=models.with_provenance({**models.provenance, "bonus": DEFAULT_BONUS}))


def _find_level(log: EventLog) -> float:
    """Return the mean reward if the features of every arm sum to 1 and rewards differ, else 0."""
    labels = find_labels(log)
    if labels is None or log.constant is not None or not np.allclose(labels.arms.sum(axis=1), 1.0):
        return 0.0
    return float(log.stats.moment.sum() / log.stats.count.sum())


def _count_from(level: float, stats: UserStats) -> UserStats:
    """Return the statistics of r - level, for features that sum to 1.

    >>> stats = UserStats.from_rows([0, 0], np.eye(2), [1.0, 0.5])
    >>> _count_from(0.5, stats).packed.T == UserStats.from_rows([0, 0], np.eye(2), [0.5, 0.0]).packed.T
    array([[ True,  True,  True,  True,  True,  True,  True]])
    """
    packed = np.array(stats.packed, np.float64)
    total = stats.moment.sum(axis=1)
    packed[-2 - stats.n_features : -2] -= level * stats.gram.sum(axis=2).T
    packed[-2] += level * (level * stats.count - 2 * total)
    return replace(stats, packed=packed)
