"""The moments of Spectral Experts in features that are uncorrelated and rewards of size 1, without noise.

Nothing that is learned from them depends on the units, the order or the correlation of the features, nor on the
units of the rewards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from lcb.errors import InputError
from lcb.events import Floats
from lcb.learners._lifted import entries, lifted_map, pack, position, unpack, weights
from lcb.learners.moments import Moments

_TINY = 1e-9  # of a quantity's own scale: below this it is rounding


@dataclass(frozen=True, eq=False)
class ScaledMoments:
    """The normal equations of degree 1, 2, 3 per row, for features z = turn' x and rewards of mean square 1."""

    turn: Floats  # (d, rank)
    reward_size: float
    grams: tuple[Floats, Floats, Floats]
    moments: tuple[Floats, Floats, Floats]

    @property
    def rank(self) -> int:
        return int(self.turn.shape[1])


def scale(moments: Moments, n_classes: int) -> ScaledMoments:
    stats, form = moments.stats, moments.form
    total, n = stats.total, stats.n_events
    turn = _uncorrelated(total.gram[0] / n)
    rank = turn.shape[1]
    if n_classes > rank:
        spanned = "" if rank == stats.n_features else f" that span {rank} dimensions (the others are collinear)"
        raise InputError(
            f"n_classes={n_classes}, but {stats.n_features} features{spanned}: spectral learning needs linearly "
            f"independent weights, so at most {rank} classes; use em or gibbs, or more features"
        )
    size = float(np.sqrt(total.square_sum[0] / n))
    if size == 0:
        raise InputError("all rewards are 0: there is nothing to tell classes apart by")
    count = stats.count
    grams, rights = [np.eye(rank)], [turn.T @ total.moment[0] / n / size]
    for degree, gram, right in ((2, moments.gram2, moments.moment2), (3, moments.gram3, moments.moment3)):
        lift = lifted_map(turn, degree)
        rows = n if form == "pooled" else float(count[count >= degree].sum())
        grams.append(lift.T @ gram @ lift / rows)
        rights.append(lift.T @ right / rows / size**degree)
        _check_span(grams[-1], degree, form)
    return ScaledMoments(turn, size, (grams[0], grams[1], grams[2]), (rights[0], rights[1], rights[2]))


def _uncorrelated(gram: Floats) -> Floats:
    """`turn` (d, rank) such that the mean of (turn' x)(turn' x)' is the identity; collinear features share."""
    size = np.sqrt(np.diag(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    kept = values > 1e-13 * values[-1]
    if (kept & (values < _TINY * values[-1])).any():
        raise InputError(
            "some features are collinear but for one part in 10^4 or less, and third moments lose that part to "
            "rounding; centre the features (beside a constant one), or drop the duplicates"
        )
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]) / size[:, None])


def _check_span(gram: Floats, degree: int, form: str) -> None:
    values = np.linalg.eigvalsh(gram)
    spanned = int((values > _TINY * values[-1]).sum())
    if spanned == len(values):
        return
    word = {2: "two", 3: "three"}[degree]
    if form == "pooled":
        remedy = "one-hot and 0/1 features do that; use grouped moments, more rows, or em"
    else:
        remedy = "too few users have that many different rows; learn from more rows, or by em"
    raise InputError(
        f"the products of {word} features span {spanned} of {len(values)} dimensions, so that the moments of degree "
        f"{degree} cannot be found: {remedy}"
    )


def without_noise(scaled: ScaledMoments, n_classes: int, sigma2: float | None) -> tuple[ScaledMoments, float]:
    """Pooled moments with the noise taken out of r^2 and r^3, and its variance."""
    d, (one, gram2, _) = scaled.rank, scaled.grams
    first, second, third = scaled.moments
    mean2 = pack(one)  # of z (x) z
    if sigma2 is None:
        constant = np.asarray(np.linalg.solve(gram2, mean2), float)  # the quadratic form nearest to 1, as a regression
        left = 1.0 - float(constant @ mean2)
        if left > 1e-6:  # no quadratic form of the features is constant: an intercept is the noise
            raw = np.linalg.solve(gram2, second)
            sigma2 = (1.0 - float(mean2 @ raw)) / left
        elif n_classes < d:
            form, raw = unpack(constant, d, 2), unpack(np.asarray(np.linalg.solve(gram2, second), float), d, 2)
            sigma2 = _tail(raw, form, d - n_classes)
        else:
            raise InputError(
                f"n_classes={n_classes} with {d} features of constant length (or a constant among them): the noise "
                "cannot be told from the classes; give sigma2, ask for fewer classes, or use grouped moments"
            )
    sigma2 = min(max(sigma2, 0.0), 1.0)
    i, j, k = entries(d, 3)
    at, weight2, weight3 = position(d, 2), weights(d, 2), weights(d, 3)
    fourth = gram2 / np.outer(weight2, weight2)
    cross = fourth[at[i, j][:, None], at[k]] * weight3[:, None]  # mean of z(x)z(x)z and z
    cleaned = (first, second - sigma2 * mean2, third - 3 * sigma2 * cross @ first)
    return ScaledMoments(scaled.turn, scaled.reward_size, scaled.grams, cleaned), sigma2


def _tail(raw: Floats, form: Floats, n_small: int) -> float:
    """The sigma2 for which the `n_small` smallest eigenvalues of raw - sigma2 * form are nearest to 0.

    With features of length 1 the form is the identity, and the answer the mean of those eigenvalues.
    """

    def size(sigma2: float) -> float:
        return float(np.square(np.linalg.eigvalsh(raw - sigma2 * form)[:n_small]).sum())

    return float(minimize_scalar(size, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10}).x)
