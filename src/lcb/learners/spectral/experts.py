"""Spectral Experts: latent classes from moments (Chaganty & Liang 2013, arXiv:1306.3729), pooled or grouped.

    M1 = sum_h pi_h beta_h     M2 = sum_h pi_h beta_h (x) beta_h     M3 = sum_h pi_h beta_h (x) beta_h (x) beta_h

    pooled (as published)      E[r^2 | x] = <M2, x(x)x> + sigma2       E[r^3 | x] = <M3, x(x)x(x)x> + 3 sigma2 <M1, x>
    grouped (one user's rows)  E[r1 r2 | x1, x2] = M2(x1, x2)          E[r1 r2 r3 | x1, x2, x3] = M3(x1, x2, x3)

Each line is a regression for a symmetric tensor, with a nuclear-norm penalty.  M2 whitens M3, whose components are then
orthogonal, and the tensor power method finds them: lambda_h = 1 / sqrt(pi_h), and beta_h is lambda_h times the
un-whitened eigenvector.  Different rewards of one user have independent noise, so the grouped form has no noise term
and holds for any noise, also for clicks.

We add three refinements: `centred` first subtracts one regression for all from the rewards, `matching` then fits pi and
beta to the three moments at once, and `polish` continues with EM.  Everything is computed in uncorrelated features and
rewards of size 1, so units do not matter.  Cost: one pass over the rows for the moments, O(rows * d^6 / 18); the rest
is O(d^9 / 200), for any number of rows.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.errors import ConvergenceWarning, InputError, TooFewRows
from lcb.event_log import EventLog
from lcb.learners.em import gaussian as em
from lcb.learners.registry import Learner, list_settings
from lcb.learners.spectral._lifted import unpack
from lcb.learners.spectral._low_rank import fit_low_rank
from lcb.learners.spectral._matching import match_moments
from lcb.learners.spectral._scaled import ScaledMoments, remove_noise, scale
from lcb.learners.spectral.moments import Form, Moments
from lcb.learners.spectral.tensor_power import tensor_power, whitening
from lcb.models import Fit, LatentModels
from lcb.models.prior import Prior
from lcb.progress import Progress, silent
from lcb.stats import UserStats
from lcb.words import format_count

_TINY = 1e-9  # smaller values, relative to their own scale, are rounding
_WEAK = 0.3  # true eigenvalues of the whitened tensor are at least 1; a smaller estimate than this is not a class


def fit(
    moments: Moments,
    n_classes: int,
    *,
    rng: np.random.Generator,
    sigma2: float | None = None,
    penalty: float = 0.1,
    centred: bool = True,
    matching: bool = True,
    polish: bool = False,
    prior: Prior | None = None,
    n_starts: int = 50,
    n_iterations: int = 100,
    progress: Progress = silent,
) -> Fit:
    """Learn `n_classes` latent models from moments of past users' rewards.

    `sigma2` is the variance of the noise if it is known (pooled only).  `penalty` weighs the nuclear norms, in
    units of 1 / sqrt(rows).  `centred=False, matching=False` with pooled moments is the published method.

    >>> rng = np.random.default_rng(0)
    >>> user, x = np.repeat(np.arange(300), 5), rng.standard_normal((1500, 2))
    >>> beta = np.array([[1.0, 0.0], [0.0, 1.0]])[user % 3 // 2]  # two users of three are of the first class
    >>> reward = (x * beta).sum(axis=1) + 0.1 * rng.standard_normal(1500)
    >>> models = fit(Moments.from_rows(user, x, reward), 2, rng=rng).models
    >>> abs(models.beta.round()), models.pi.round(1)
    (array([[1., 0.], [0., 1.]]), array([0.7, 0.3]))
    """
    _check(moments, n_classes, sigma2, penalty, polish)
    progress("spectral moments", 0, None)
    scaled = scale(moments, n_classes, centred)
    noise = None
    if moments.form == "pooled" and n_classes > 1:  # one class is one regression
        scaled, noise = remove_noise(scaled, n_classes, None if sigma2 is None else sigma2 / scaled.reward_size**2)
    strength = penalty / np.sqrt(moments.stats.n_events)
    pi, beta, weakest = _decompose(scaled, n_classes, strength, rng, n_starts, n_iterations)
    if matching and n_classes > 1:
        progress("matching moments", 0, None)
        pi, offset = match_moments(scaled.grams, scaled.moments, pi, beta - scaled.mean)
        beta = offset + scaled.mean
    order = np.argsort(-pi, kind="stable")
    pi, beta = pi[order], beta[order]
    if noise is None:  # the part of the mean square that the classes do not explain
        noise = scaled.square - float(pi @ np.square(beta - scaled.mean).sum(axis=1))
    n_smallest = float(pi.min() * moments.stats.n_users)
    sound = weakest >= _WEAK and n_smallest >= 1
    beta = scaled.reward_size * beta @ scaled.turn.T
    models = _fit_variances(moments.stats, pi, beta, noise * scaled.reward_size**2, scaled.reward_size**2)
    prior = prior or Prior.scaled(moments.stats)
    if polish:
        return em.fit(moments.stats, n_classes, rng=rng, prior=prior, start=models, n_starts=0, progress=progress)
    value = prior.log_density(models.pi, models.beta, models.sigma2, False) + models.user_scores(moments.stats).sum()
    if not sound:
        warnings.warn(
            f"the moments of {moments.stats.n_events} rows are too noisy for {n_classes} classes (smallest eigenvalue "
            f"{weakest:.2g}, at least 1 expected; the smallest class has {n_smallest:.2g} users); ask for fewer "
            "classes, learn from more rows, or by em",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Fit(models, np.array([value]), sound)


def _check(moments: Moments, n_classes: int, sigma2: float | None, penalty: float, polish: bool) -> None:
    stats = moments.stats
    if n_classes < 1:
        raise InputError(f"n_classes={n_classes}; ask for at least 1")
    if stats.n_users < n_classes:
        raise InputError(f"n_classes={n_classes}, but only {format_count(stats.n_users, 'user')} to learn from")
    if not (np.isfinite(penalty) and penalty >= 0):
        raise InputError(f"penalty={penalty}; it must be 0 or a positive number")
    if sigma2 is not None and not (np.isfinite(sigma2) and sigma2 >= 0):
        raise InputError(f"sigma2={sigma2}; it must be 0 or a positive number, or None if it is not known")
    if moments.form == "grouped" and sigma2 is not None:
        raise InputError(f"sigma2={sigma2}, but grouped moments have no noise term; leave it out")
    if moments.form == "grouped" and stats.count.max() < 3:
        raise InputError(
            f"no user has 3 rewards (the most is {stats.count.max():.0f}), and grouped moments multiply three "
            "different rewards of one user; use pooled moments, or learn by em"
        )
    if moments.form == "pooled" and moments.two_valued:
        raise InputError(
            f"all rewards are {' or '.join(f'{value:g}' for value in moments.values)}, so their squares and cubes "
            "contain nothing new, and pooled moments cannot tell classes apart with any number of rows; use grouped "
            "moments"
        )
    if polish and moments.two_valued:
        raise InputError(
            "polish continues with a Gaussian likelihood, which is biased for rewards of two values and makes the "
            "grouped estimate several times worse; leave polish out"
        )


def _decompose(
    scaled: ScaledMoments, n_classes: int, penalty: float, rng: np.random.Generator, n_starts: int, n_iterations: int
) -> tuple[Floats, Floats, float]:
    """Return `pi`, `beta` in the scaled features, and the smallest eigenvalue of the whitened tensor."""
    d = scaled.rank
    if n_classes == 1:
        return np.ones(1), (scaled.mean + scaled.moments[0])[None], 1.0  # one regression for all
    centred2, centred3 = (
        unpack(fit_low_rank(scaled.grams[k - 1], scaled.moments[k - 1], penalty, d, k), d, k) for k in (2, 3)
    )
    second, third = scaled.raw(centred2, centred3)
    values = np.linalg.eigvalsh(second)[::-1]
    n_positive = int((values > _TINY * max(values[0], _TINY)).sum())
    if n_positive < n_classes:
        raise TooFewRows(
            f"n_classes={n_classes}, but the second moments have rank {n_positive}, the most classes they can show; "
            "ask for fewer, lower the penalty, or learn from more rows"
        )
    white, back = whitening(second, n_classes)
    tensor = np.einsum("ijk,ia,jb,kc->abc", third, white, white, white, optimize=True)
    eigenvalues, vectors = tensor_power(tensor, rng, n_starts=n_starts, n_iterations=n_iterations)
    beta = eigenvalues[:, None] * vectors @ back.T
    pi = 1 / np.square(np.maximum(eigenvalues, 1.0))
    return pi / pi.sum(), beta, float(eigenvalues.min())


def _fit_variances(stats: UserStats, pi: Floats, beta: Floats, noise: float, reward_square: float) -> LatentModels:
    """Return the models with a variance for each class, from a few steps of EM for the variances alone."""
    floor = _TINY * reward_square
    models = LatentModels(pi, beta, np.full(len(pi), max(noise, 1e-3 * reward_square)), stats.features)
    for _ in range(20):
        sums = UserStats(stats.packed @ models.posterior(stats), stats.n_features)
        fitted = np.einsum("ni,nij,nj->n", beta, sums.gram, beta)
        residual = sums.square_sum - 2 * np.einsum("ni,ni->n", beta, sums.moment) + fitted
        seen = sums.count > 1e-6 * stats.n_events
        sigma2 = np.where(seen, np.maximum(residual / np.where(seen, sums.count, 1.0), floor), models.sigma2)
        moved = np.abs(sigma2 / models.sigma2 - 1).max()
        models = LatentModels(pi, beta, sigma2, stats.features)
        if moved < 1e-4:
            break
    return models


def _fit_rows(log: EventLog, n_classes: int, *, form: Form = "grouped", **settings: Any) -> Fit:
    assert log.rows is not None
    moments = Moments.from_rows(*log.rows, form=form)
    return fit(replace(moments, stats=replace(moments.stats, features=log.stats.features)), n_classes, **settings)


LEARNER = Learner(
    "Spectral Experts, from moments of rows",
    _fit_rows,
    list_settings(_fit_rows, fit),
    needs_rows=True,
    only_here="it learns from rows, and a cluster keeps sums",
    most_classes=lambda stats: stats.n_features,
    compared={
        "spectral-grouped": {"form": "grouped"},
        "spectral-pooled": {"form": "pooled"},
        "spectral-polished": {"form": "grouped", "polish": True},
    },
    why_gaussian="learned by spectral from moments of the rewards; served as Gaussian",
)
