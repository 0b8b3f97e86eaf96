"""The mixture learned from the log of past users, all at once and with equal weights.

Users are seated in random order; when their number has doubled, and at the end, Gibbs sweeps draw all seats again.
Each sample of the result is its classes and a new class, which comes last among its own.
"""

from __future__ import annotations

import numpy as np

from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.learners.mixture.seats import Seats
from lcb.learners.registry import Learner, list_settings
from lcb.models import Fit
from lcb.progress import Progress, silent

_FIRST_REFIT = 16  # users
_SWEEPS_ON_THE_WAY = 4


def fit(
    log: EventLog,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    n_samples: int = 1,
    n_sweeps: int = 16,
    concentration: float | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn the classes and their number; of these, `n_classes` keeps the largest (the new class may be among them).

    `trace` is the number of classes after each refit.

    >>> from lcb.stats import UserStats
    >>> rewards = [0.9, 1.0] * 10 + [0.1, 0.0] * 10
    >>> stats = UserStats.from_rows(user=np.repeat(range(8), 5), x=np.ones((40, 1)), reward=rewards)
    >>> models = fit(EventLog(stats), rng=np.random.default_rng(0), concentration=1.0).models
    >>> models.beta.round(2).ravel()  # two classes and a new one
    array([0.95, 0.05, 0.38])
    """
    if n_classes is not None and n_classes < 1:
        raise InputError(f"n_classes={n_classes}; give at least 1, or leave it out")
    if not n_samples >= 1 or not n_sweeps >= n_samples or not (concentration is None or 0 < concentration < np.inf):
        raise InputError(
            f"n_samples={n_samples}, n_sweeps={n_sweeps}, concentration={concentration}; "
            "give 1 or more samples, at least as many sweeps, and a positive finite concentration or none"
        )
    stats = log.stats
    if not stats.square_sum.any():
        raise InputError("every reward is 0, or there are none; the mixture needs at least one reward other than 0")
    if not np.isfinite(stats.packed).all():
        raise InputError("the sums of features and rewards are not finite; scale features and rewards down")
    seats = Seats(stats.n_features, rng=rng, n_samples=1, n_sweeps=_SWEEPS_ON_THE_WAY, concentration=concentration)
    trace, next_refit = [], _FIRST_REFIT
    for done, user in enumerate(rng.permutation(stats.n_users), start=1):
        position = seats.add_user()
        seats.rows[position] = stats.packed[:, user]
        seats.seat(position)
        if done == stats.n_users:
            seats.n_samples, seats.n_sweeps = n_samples, n_sweeps
        if done in (next_refit, stats.n_users):
            progress("users seated", done, stats.n_users)
            next_refit = 2 * done
            seats.refit()
            trace.append(float(len(seats.samples[-1].occupied)) if seats.samples else 0.0)
    models = seats.models(stats.features)
    if n_classes is not None:
        models = models.take(np.argsort(-models.pi, kind="stable")[:n_classes])
    return Fit(models, np.array(trace), converged=True)


LEARNER = Learner(
    "one mixture with a new class always possible, by Gibbs sampling",
    fit,
    list_settings(fit),
    finds_n_classes=True,
    only_here="every user takes a seat in turn, given the seats of all others",
)
