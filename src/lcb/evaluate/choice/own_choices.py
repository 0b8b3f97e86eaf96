"""Learns classes from a log in which some arms have hardly any labels, as a recommender's own choices leave them.

There candidates cannot be compared by serving, and classes that take their weights for certain never try these arms.
The classes of a mixture (`lcb.learners.mixture`) know how uncertain their weights are, and the bonus tries what is not
known.  Where features differ at every event, all weights are learned from whatever was chosen, and classes are chosen
as in any log.
"""

from __future__ import annotations

import numpy as np

from lcb.evaluate.choice.candidates import DEFAULT_BONUS
from lcb.evaluate.choice.choose import MOST_USERS
from lcb.evaluate.choice.serving import find_labels
from lcb.event_log import Clicks, EventLog
from lcb.learners import fit
from lcb.models import LatentModels
from lcb.progress import Progress, silent

LEARNER = "mixture"
_LEAST_SHARE = 0.2  # of the mean number of labels of an arm


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


def learn_own_choices(log: EventLog, rng: np.random.Generator, progress: Progress = silent) -> LatentModels:
    """Learn a mixture from at most 5,000 users, drawn at random; the models keep the bonus in their provenance."""
    if log.n_users > MOST_USERS:
        log = log.take(np.sort(rng.permutation(log.n_users)[:MOST_USERS]))
    models = fit(log, None, rng=rng, learner=LEARNER, progress=progress).models
    return models.with_provenance({**models.provenance, "bonus": DEFAULT_BONUS})
