"""The moments that Spectral Experts learns from: products of two and of three rewards and of their features.

    pooled    every row alone                     r^2 on x (x) x           r^3 on x (x) x (x) x
    grouped   different rows of one user          r1 r2 on x1 (x) x2       r1 r2 r3 on x1 (x) x2 (x) x3

Both are least squares for a symmetric tensor.  With y = (x, r), a row and its reward, all their sums are contained in

    second   sum of x (x) x against y (x) y                     (q2, Q2)    q2 = d(d+1)/2,       Q2 the same for d + 1
    third    sum of x (x) x (x) x against y (x) y (x) y         (q3, Q3)    q3 = d(d+1)(d+2)/6

so that a matrix product gives the sums for centred rewards, r - b.x, and for features in other coordinates.  They take
one pass over the rows, in blocks; the cost of fitting does not depend on the number of rows.

Pairs and triples of different rows are not enumerated.  With A = sum y y', B = sum yy' (x) yy', C = sum of three,
all over one user's rows, the sum over different rows is A (x) A - B for pairs, and for triples

    A (x) A (x) A  -  (the three places of) B (x) A  +  2 C

A user with T rows has total weight T (a pair has weight 1 / (T - 1), a triple 1 / ((T - 1)(T - 2))), so that one user
with very many rows does not outweigh all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.learners.spectral._lifted import entries, monomials, n_entries, position, weights
from lcb.stats import UserStats

Form = Literal["pooled", "grouped"]

_BLOCK_BYTES = 16 << 20  # of the widest array of a block of rows
_MOST_BYTES = 512 << 20
_SMALLEST = 1e-45  # its sixth power does not underflow


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums above and the statistics of the users; additive over rows (pooled) or users (grouped).

    >>> moments = Moments.from_rows([0, 0, 0], x=[[1.0], [1.0], [2.0]], reward=[3.0, 4.0, 5.0])
    >>> moments.second[:, -1]  # (3*4*1 + 3*5*2 + 4*5*2) * 2 ordered pairs * weight 1/2
    array([82.])
    """

    form: Form
    stats: UserStats = field(repr=False)
    second: Floats = field(repr=False)
    third: Floats = field(repr=False)
    values: tuple[float, ...] = ()  # the different rewards, at most three of them

    @classmethod
    def from_rows(cls, user: ArrayLike, x: ArrayLike, reward: ArrayLike, *, form: Form = "grouped") -> Moments:
        """Sum the moments of rows (n, d) with rewards (n,) of users (n,)."""
        if form not in ("pooled", "grouped"):
            raise InputError(f"form={form!r}; it is 'pooled' (rows alone) or 'grouped' (different rows of one user)")
        stats = UserStats.from_rows(user, x, reward)
        check_memory(stats.n_features)
        rewards = np.asarray(reward, dtype=np.float64)
        columns = np.vstack([np.asarray(x, dtype=np.float64).T, rewards])
        with np.errstate(over="ignore", invalid="ignore"):
            if form == "pooled":
                second, third = _sum_pooled(columns)
            else:
                place = {name: i for i, name in enumerate(stats.users)}
                owner = np.array([place[name] for name in np.asarray(user).tolist()], np.intp)
                second, third = _sum_grouped(columns, owner, stats)
        sizes = np.abs(columns).max(axis=1)
        finite = np.isfinite(second).all() and np.isfinite(third).all()
        if not finite or ((sizes > 0) & (sizes < _SMALLEST)).any():
            raise InputError(
                f"features and rewards have sizes from {sizes[sizes > 0].min():g} to {sizes.max():g}, and products of "
                "six of them overflow or underflow; divide each by its size first"
            )
        return cls(form, stats, second, third, _find_different(rewards))

    @property
    def n_features(self) -> int:
        return self.stats.n_features

    @property
    def two_valued(self) -> bool:
        return len(self.values) <= 2

    def __add__(self, other: Moments) -> Moments:
        """Add the moments; grouped ones must not share a user, because pairs across the two would be lost."""
        if self.form != other.form:
            raise InputError(f"{other.form} moments cannot be added to {self.form} ones; build both in one form")
        shared = set(self.stats.users) & set(other.stats.users)
        if self.form == "grouped" and shared:
            raise InputError(
                f"user {next(iter(shared))!r} has rows in both; grouped moments need all rows of a user together"
            )
        stats = self.stats + other.stats
        values = _find_different(np.array(self.values + other.values))
        return Moments(self.form, stats, self.second + other.second, self.third + other.third, values)


def features_only(n_features: int, degree: int) -> NDArray[np.bool_]:
    """Return which entries of a tensor over (x, r) contain no reward; the last entry is the power of the reward."""
    return np.asarray((entries(n_features + 1, degree) < n_features).all(axis=0))


def check_memory(n_features: int) -> None:
    """Raise InputError if the moments of so many features would not fit into memory."""
    needed = _bytes(n_features)
    if needed > _MOST_BYTES:
        most = next(d for d in range(n_features, 0, -1) if _bytes(d) <= _MOST_BYTES)
        raise InputError(
            f"{n_features} features need {needed / 2**30:,.1f} GiB of third moments; reduce them to at most {most} "
            "(PCA, say), or learn by em or gibbs, whose memory grows with the square of the features"
        )


def _bytes(d: int) -> int:
    q2, q3, q4 = (n_entries(d + 1, degree) for degree in (2, 3, 4))
    return 8 * (2 * q2**3 + 8 * q3**2 + 2 * (d + 1) ** 3 * q3 + q2 * q4) + 2 * _BLOCK_BYTES


def _find_different(rewards: Floats) -> tuple[float, ...]:
    low, high = float(rewards.min()), float(rewards.max())
    between = rewards[(rewards != low) & (rewards != high)]
    return tuple(sorted({low, high, *between[:1].tolist()}))


def _blocks(n: int, width: int) -> list[slice]:
    size = max(_BLOCK_BYTES // (8 * width), 64)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _sum_pooled(columns: Floats) -> tuple[Floats, Floats]:
    d, n = len(columns) - 1, columns.shape[1]
    x2, x3 = features_only(d, 2), features_only(d, 3)
    second, third = np.zeros((x2.sum(), len(x2))), np.zeros((x3.sum(), len(x3)))
    for block in _blocks(n, len(x3)):
        two, three = monomials(columns[:, block], 2), monomials(columns[:, block], 3)
        second += two[x2] @ two.T
        third += three[x3] @ three.T
    return _apply_weights(second, d, 2), _apply_weights(third, d, 3)


def _sum_grouped(columns: Floats, owner: Index, stats: UserStats) -> tuple[Floats, Floats]:
    d, n = len(columns) - 1, columns.shape[1]
    x2, x3 = features_only(d, 2), features_only(d, 3)
    q2, q4 = len(x2), n_entries(d + 1, 4)
    count = stats.count
    pair = np.where(count >= 2, 1 / np.maximum(count - 1, 1), 0.0)
    triple = np.where(count >= 3, pair / np.maximum(count - 2, 1), 0.0)
    user_sums = _sum_users(stats)  # A, (q2, users)

    aa, aaa = np.zeros((q2, q2)), np.zeros((q2, n_entries(q2, 2)))
    for block in _blocks(stats.n_users, n_entries(q2, 2)):
        a = user_sums[:, block]
        aa += (a * pair[block]) @ a.T
        aaa += (a * triple[block]) @ monomials(a, 2).T

    b, c, ba = np.zeros((x2.sum(), q2)), np.zeros((x3.sum(), len(x3))), np.zeros((q4, q2))
    for block in _blocks(n, q4):
        mine = owner[block]
        two, three, four = (monomials(columns[:, block], degree) for degree in (2, 3, 4))
        b += (two[x2] * pair[mine]) @ two.T
        c += (three[x3] * triple[mine]) @ three.T
        ba += four @ (user_sums[:, mine] * triple[mine]).T
    return _apply_weights(_pair_gram(aa, b, d), d, 2), _apply_weights(_triple_gram(aaa, ba, c, d), d, 3)


def _sum_users(stats: UserStats) -> Floats:
    """Return the different entries of sum y y' of each user, (Q2, users)."""
    d, at = stats.n_features, position(stats.n_features + 1, 2)
    sums = np.empty((n_entries(d + 1, 2), stats.n_users))
    sums[features_only(d, 2)] = stats.packed[: -d - 2]
    sums[at[:d, d]] = stats.moment.T
    sums[at[d, d]] = stats.square_sum
    return sums


def _apply_weights(sums: Floats, d: int, degree: int) -> Floats:
    weight = weights(d + 1, degree)
    return np.asarray(sums * np.outer(weight[features_only(d, degree)], weight))


def _pair_gram(aa: Floats, b: Floats, d: int) -> Floats:
    """Return the sum over pairs of different rows, entry (ij, ef) made symmetric in e, f."""
    at = position(d + 1, 2)
    i, j = (index[:, None] for index in entries(d, 2))
    e, f = (index[None, :] for index in entries(d + 1, 2))
    return np.asarray((aa[at[i, e], at[j, f]] + aa[at[i, f], at[j, e]]) / 2 - b)


def _triple_gram(aaa: Floats, ba: Floats, c: Floats, d: int) -> Floats:
    """Return the sum over triples of different rows, entry (ijk, efg) made symmetric in e, f, g."""
    at2, at4 = position(d + 1, 2), position(d + 1, 4)
    couple = position(n_entries(d + 1, 2), 2)
    i, j, k = (index[:, None] for index in entries(d, 3))
    total = np.zeros_like(c)
    for order in permutations(range(3)):
        e, f, g = (index[None, :] for index in entries(d + 1, 3)[list(order)])
        ie, jf, kg = at2[i, e], at2[j, f], at2[k, g]
        total += aaa[ie, couple[jf, kg]]
        total -= ba[at4[i, e, j, f], kg] + ba[at4[i, e, k, g], jf] + ba[at4[j, f, k, g], ie]
    return total / 6 + 2 * c
