"""The moments of Spectral Experts in uncorrelated features and rewards of size 1, without noise.

    z = turn' x                   the mean of z z' is the identity
    c = (r - b.x) / reward_size   b: one regression for all, M1; or 0, as published

Rewards minus one regression for all have the moments C2 = M2 - M1 M1' and C3, which need fewer rows: what all users
have in common no longer adds to the variance of products.  Pooled, their third moment has no noise term, since the
classes' distances to the mean sum to 0.  The result does not depend on the units, the order or the correlation of the
features, nor on the units of the rewards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import comb

from lcb.arrays import Floats
from lcb.errors import InputError, TooFewRows
from lcb.learners.spectral._lifted import entries, lifted_map, pack, position, unpack, weights
from lcb.learners.spectral.moments import Moments, features_only

_TINY = 1e-9  # smaller values, relative to their own scale, are rounding
_SMALLEST_PART = 1e-5  # its third power is just above rounding, relative to 1


@dataclass(frozen=True, eq=False)
class ScaledMoments:
    """The normal equations of degree 1, 2, 3 per row, for z and c."""

    turn: Floats  # (d, rank)
    reward_size: float
    mean: Floats  # (rank,) b in the coordinates of z and c
    square: float  # the mean of c^2
    grams: tuple[Floats, Floats, Floats]
    moments: tuple[Floats, Floats, Floats]

    @property
    def rank(self) -> int:
        return int(self.turn.shape[1])

    def raw(self, second: Floats, third: Floats) -> tuple[Floats, Floats]:
        """Return M2 and M3 of the rewards, given those of c."""
        mean = self.mean
        mixed = np.einsum("ij,k->ijk", second, mean)
        mixed = mixed + mixed.transpose(0, 2, 1) + mixed.transpose(2, 0, 1)
        return second + np.outer(mean, mean), third + mixed + np.einsum("i,j,k->ijk", mean, mean, mean)


def scale(moments: Moments, n_classes: int, centred: bool) -> ScaledMoments:
    stats, d = moments.stats, moments.n_features
    total, n = stats.total, stats.n_events
    turn = _decorrelate(total.gram[0] / n)
    rank = turn.shape[1]
    if n_classes > rank:
        spanned = "" if rank == d else f" that span {rank} dimensions (the others are collinear)"
        raise InputError(
            f"n_classes={n_classes}, but {d} features{spanned}: spectral learning needs linearly "
            f"independent weights, so at most {rank} classes; use em or gibbs, or more features"
        )
    square = float(total.square_sum[0] / n)
    if square == 0:
        raise InputError("all rewards are 0, so classes cannot be told apart; give rewards that differ")
    size = np.sqrt(square)
    first = turn.T @ total.moment[0] / n
    mean = np.zeros(rank)
    if centred:
        mean, first, square = first, mean, square - float(first @ first)
        if n_classes > 1 and square < (_SMALLEST_PART * size) ** 2:
            raise InputError(
                f"n_classes={n_classes}, but one regression explains all rewards to one part in 100,000, so there is "
                "one class; ask for 1, or subtract that regression from the rewards first"
            )
        size = max(np.sqrt(max(square, 0.0)), _SMALLEST_PART * size)

    change = np.zeros((d + 1, rank + 1))  # (x, r) to (z, c)
    change[:d, :rank], change[:d, rank], change[d, rank] = turn, -turn @ mean / size, 1 / size
    grams: list[Floats] = [np.eye(rank)]
    rights: list[Floats] = [first / size]
    for degree, sums in ((2, moments.second), (3, moments.third)):
        rows = n if moments.form == "pooled" else float(stats.count[stats.count >= degree].sum())
        changed = lifted_map(turn, degree).T @ (sums / rows) @ lifted_map(change, degree)
        grams.append(changed[:, features_only(rank, degree)])
        rights.append(changed[:, -1])
        products = n if moments.form == "pooled" else float(comb(stats.count, degree).sum())
        _check_span(grams[-1], degree, moments.form, products)
    three = (grams[0], grams[1], grams[2]), (rights[0], rights[1], rights[2])
    return ScaledMoments(turn, float(size), mean / size, max(square, 0.0) / size**2, *three)


def _decorrelate(gram: Floats) -> Floats:
    """Return `turn` (d, rank) such that the mean of (turn' x)(turn' x)' is the identity."""
    size = np.sqrt(np.diag(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    kept = values > 1e-13 * values[-1]
    if (kept & (values < _TINY * values[-1])).any():
        raise InputError(
            "some features are collinear up to one part in 10^4 or less, which third moments lose to rounding; "
            "centre the features (beside a constant one), or drop the duplicates"
        )
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]) / size[:, None])


def _check_span(gram: Floats, degree: int, form: str, n_products: float) -> None:
    values = np.linalg.eigvalsh(gram)
    spanned = int((values > _TINY * values[-1]).sum())
    if spanned == len(values):
        return
    word = {2: "two", 3: "three"}[degree]
    if form == "pooled":
        remedy = "one-hot and 0/1 features do that; use grouped moments, more rows, or em"
    else:
        remedy = "too few users have that many different rows; learn from more rows, or by em"
    few = n_products < 2 * len(values)  # else products of such features never span all dimensions
    raise (TooFewRows if few else InputError)(
        f"the products of {word} features span {spanned} of {len(values)} dimensions, so the moments of degree "
        f"{degree} cannot be estimated: {remedy}"
    )


def remove_noise(scaled: ScaledMoments, n_classes: int, sigma2: float | None) -> tuple[ScaledMoments, float]:
    """Return pooled moments without the noise in c^2 and c^3, and the variance of the noise."""
    d, (one, gram2, _) = scaled.rank, scaled.grams
    first, second, third = scaled.moments
    mean2 = pack(one)  # of z (x) z
    if sigma2 is None:
        constant = np.asarray(np.linalg.solve(gram2, mean2), float)  # the quadratic form nearest to 1
        found = np.asarray(np.linalg.solve(gram2, second), float)
        left = 1.0 - float(constant @ mean2)
        if left > 1e-6:  # no quadratic form of the features is constant: the intercept is the noise
            sigma2 = (scaled.square - float(mean2 @ found)) / left
        elif n_classes < d:
            raw = unpack(found, d, 2) + np.outer(scaled.mean, scaled.mean)
            sigma2 = _fit_noise(raw, unpack(constant, d, 2), d - n_classes)
        else:
            raise InputError(
                f"n_classes={n_classes} with {d} features of constant length (or a constant among them): the noise "
                "cannot be told from the classes; give sigma2, ask for fewer classes, or use grouped moments"
            )
    sigma2 = min(max(sigma2, 0.0), 1.0)
    i, j, k = entries(d, 3)
    at, weight2, weight3 = position(d, 2), weights(d, 2), weights(d, 3)
    fourth = gram2 / np.outer(weight2, weight2)
    cross = fourth[at[i, j][:, None], at[k]] * weight3[:, None]  # mean of z (x) z (x) z and z
    cleaned = (first, second - sigma2 * mean2, third - 3 * sigma2 * cross @ first)
    return replace(scaled, moments=cleaned), sigma2


def _fit_noise(raw: Floats, form: Floats, n_small: int) -> float:
    """Return the sigma2 for which the `n_small` smallest eigenvalues of raw - sigma2 * form are nearest to 0.

    With features of length 1 the form is the identity, and sigma2 the mean of those eigenvalues.
    """

    def size(sigma2: float) -> float:
        return float(np.square(np.linalg.eigvalsh(raw - sigma2 * form)[:n_small]).sum())

    return float(minimize_scalar(size, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10}).x)
