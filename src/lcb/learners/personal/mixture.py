"""Personal classes: a class is a normal distribution over people (a mixture of linear mixed models), learned by EM.

A user u of class h has weights of their own, w_u ~ N(mu_h, Sigma_h), and rewards N(w_u . x, s2).  The noise s2 is the
same in all classes; there is one for each arm where two-valued rewards are counted by arm, else one for all.

    E   L_uh = Sigma_h^-1 + sum x x'/s2      M_uh = mu_h + L_uh^-1 sum x (r - x . mu_h)/s2
        resp_uh = softmax_h( log pi_h + log p(rewards of u | mu_h, Sigma_h) )       the weights integrated out
    M   mu_h    = (W_h Sigma_h^-1 + K)^-1 (Sigma_h^-1 sum_u resp_uh M_uh + K m)     W_h = sum_u resp_uh
        Sigma_h = (sum_u resp_uh (L_uh^-1 + (M_uh - mu_h)(M_uh - mu_h)') + shrink S) / (W_h + shrink)
        s2_a    = (expected squared residuals + c s) / (count_a + c)                c = 10 rewards
        pi_h    = (W_h + 1/N) / (U + 1)

Three fits follow each other.  Each has a prior that stays fixed, so every step raises the log posterior of its fit:
1. one class, the empirical-Bayes mixed model: the mean m and the covariance K^-1 of all people;
2. N classes of one common covariance, from k-means on the users' means;
3. the classes with a covariance each, shrunk to that common one, S.  The trace is of this fit.
A step costs O(users (classes + d) d^2) with one covariance, O(users classes d^3) with one for each class.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from lcb.errors import ConvergenceWarning, InputError
from lcb.event_log import EventLog
from lcb.learners.personal._steps import (
    CountRewards,
    Parameters,
    SpreadPrior,
    climb,
    get_rewards,
    has_settled,
    user_means,
)
from lcb.learners.registry import Learner, list_settings
from lcb.learners.shared.starts import cluster
from lcb.learners.shared.users import CountNotFinite, Local, Map, Users, find_users, sample_users, scale_prior
from lcb.models import Fit, LatentModels
from lcb.models.marginal import Rewards, Totals
from lcb.progress import Progress, silent
from lcb.runtime import parallel
from lcb.words import format_count

_MOST_ARMS = 256  # with more, noise is shared
_TRIAL_STEPS = 10
_TRIAL_USERS = 10_000


def fit(
    log: EventLog | Users,
    n_classes: int,
    *,
    rng: np.random.Generator,
    noise: Literal["arm", "shared"] | None = None,
    shrink: float = 100.0,
    start: LatentModels | None = None,
    n_starts: int = 2,
    tol: float = 0.005,
    max_steps: int = 200,
    n_threads: int | None = None,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` normal distributions over people; 1 is the mixed model.

    `noise` is one per arm or one for all; None chooses per arm where the log has counts of at most 256 arms.  `shrink`
    is the weight, in users, of the common covariance in each class's own.  `start` joins the starts.

    >>> rng = np.random.default_rng(0)
    >>> own = rng.normal(0.5, 0.2, 500)  # every user has a level of their own
    >>> log = EventLog.from_rows(np.repeat(np.arange(500), 4), np.ones((2000, 1)), rng.normal(np.repeat(own, 4), 0.1))
    >>> models = fit(log, 1, rng=rng, tol=1e-6).models
    >>> models.beta.round(2), np.sqrt(models.covariance).round(2), np.sqrt(models.sigma2).round(2)
    (array([[0.49]]), array([[[0.2]]]), array([0.1]))
    """
    progress("compiling, the first time", 0, None)
    with parallel.threads(n_threads) as map_spans:
        users = find_users(log, map_spans)
        per_arm = _choose_noise(users, noise)
        _check(users, n_classes, shrink, start, n_starts, tol, max_steps)
        totals, n_users = users.sums(CountRewards(per_arm)), users.n_users

        def run(
            at: Parameters, prior: SpreadPrior, what: str, data: Users = users, most: int = max_steps
        ) -> tuple[Parameters, list[float]]:
            own = totals if data is users else data.sums(CountRewards(per_arm))
            return climb(data, own, at, prior, tol, most, progress, what, per_arm=per_arm)

        at, prior = begin(users, len(totals.count))
        at, trace = run(at, prior, "EM steps, one class")
        if n_classes > 1:
            weight = prior.weight
            prior = _scale_prior(at, totals, weight)
            some = get_rewards(sample_users(users, rng), per_arm)
            trials = list(_starts(some, at, n_classes, start, n_starts, rng, map_spans))
            if len(trials) > 1:
                few = users
                if n_users > _TRIAL_USERS:
                    few = Local(users.take(np.sort(rng.choice(n_users, _TRIAL_USERS, replace=False))), map_spans)
                found = [run(trial, prior, "trying starts", few, _TRIAL_STEPS) for trial in trials]
                trials = [max(found, key=lambda one: one[1][-1])[0]]
            at, _ = run(trials[0], prior, "EM steps, one covariance")
            prior = replace(prior, spread=at.sigma[0], weight=shrink, noise=_mean_noise(at, totals))
            at = replace(at, sigma=np.tile(at.sigma, (n_classes, 1, 1)))
            at, trace = run(at, prior, "EM steps")
    converged = has_settled(trace, tol, n_users)
    if not converged:
        gain = (trace[-1] - trace[-2]) / n_users
        warnings.warn(
            f"personal classes stopped at {max_steps} steps, last gain {gain:.2g} per user (tol {tol:g}); "
            "raise max_steps, or ask for fewer classes",
            ConvergenceWarning,
            stacklevel=2,
        )
    models = LatentModels(
        at.pi,
        at.mu,
        np.full(len(at.mu), _mean_noise(at, totals)),
        users.features,
        covariance=at.sigma,
        personal=True,
        arms=users.arms if per_arm else None,
        arm_sigma2=at.noise if per_arm else None,
    )
    return Fit(models, np.array(trace), converged)


def _choose_noise(users: Users, noise: str | None) -> bool:
    """Whether every arm has a noise of its own."""
    if noise not in (None, "arm", "shared"):
        raise InputError(f"noise={noise!r}; it is 'arm' (one per arm), 'shared' (one for all), or None to choose")
    if noise == "arm" and users.arms is None:
        raise InputError("noise='arm' needs a log with counts of two-valued rewards; use 'shared', or None to choose")
    return users.arms is not None and (noise == "arm" or (noise is None and len(users.arms) <= _MOST_ARMS))


def _check(
    users: Users, n_classes: int, shrink: float, start: LatentModels | None, n_starts: int, tol: float, max_steps: int
) -> None:
    if not 1 <= n_classes <= users.n_users:
        raise InputError(
            f"n_classes={n_classes} of {format_count(users.n_users, 'user')}; "
            "ask for at least 1 and at most one per user"
        )
    if not (0 < shrink < np.inf and tol > 0 and max_steps >= 1):
        raise InputError(f"shrink={shrink}, tol={tol}, max_steps={max_steps}; each must be a positive finite number")
    if n_starts < (start is None):
        raise InputError(f"n_starts={n_starts}; give at least 1, or 0 with a start")
    if start is not None:
        start.check_features(users)
        if start.n_classes != n_classes:
            raise InputError(f"start has {start.n_classes} classes, n_classes={n_classes}; ask for the same number")
    if users.sums(CountNotFinite()):
        raise InputError("the sums of features and rewards are not finite; scale features and rewards down")


def begin(users: Users, n_noises: int) -> tuple[Parameters, SpreadPrior]:
    """Return one class on the scale of the data, and the weak prior of the first fit."""
    d = users.n_features
    scaled = scale_prior(users)
    mean, precision = scaled.arrays(d)
    spread = scaled.rate * np.linalg.inv(precision)
    prior = SpreadPrior(mean, np.linalg.inv(spread), spread, weight=d + 1.0, noise=scaled.rate)
    at = Parameters(np.ones(1), np.array(mean[None]), spread[None], np.full(n_noises, scaled.rate))
    return at, prior


def _scale_prior(one: Parameters, totals: Totals, weight: float) -> SpreadPrior:
    """Return the prior for several classes: class means vary as much as users do in a single class."""
    sigma = one.sigma[0]
    return SpreadPrior(one.mu[0], np.linalg.inv(sigma), sigma, weight, _mean_noise(one, totals))


def _mean_noise(at: Parameters, totals: Totals) -> float:
    return float(at.noise @ totals.count / totals.count.sum())


def _starts(
    rewards: Rewards,
    one: Parameters,
    n_classes: int,
    start: LatentModels | None,
    n_starts: int,
    rng: np.random.Generator,
    map_spans: Map,
) -> Iterator[Parameters]:
    """Yield starts by k-means on the users' mean weights, in units in which the spread of all users is 1.

    A start gives half of that spread to the differences within a class.  `start` comes last, if given.
    """
    means = user_means(rewards, one, map_spans)
    points = np.linalg.solve(np.linalg.cholesky(one.sigma[0]), (means - one.mu).T).T
    for labels in cluster(np.asarray(points, np.float64), n_classes, n_starts, rng):
        member = (labels.label[None, :] == np.arange(n_classes)[:, None]).astype(np.float64)
        count = member.sum(axis=1)
        mu = (member @ means + one.mu) / (count + 1)[:, None]
        yield Parameters((count + 1 / n_classes) / (count.sum() + 1), mu, one.sigma / 2, one.noise)
    if start is not None:
        pi = (start.pi + 1e-6) / (1 + 1e-6 * n_classes)
        sigma = one.sigma / 2
        if start.personal and start.covariance is not None:
            sigma = np.tensordot(pi, start.covariance, axes=1)[None]
        yield Parameters(pi, np.array(start.beta), sigma, one.noise)


LEARNER = Learner("classes of people who differ: a mixture of mixed models", fit, list_settings(fit), start="models")
