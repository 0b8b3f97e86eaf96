"""The moments Spectral Experts learns from: products of two and of three rewards against their features.

    pooled    every row alone                     r^2 on x (x) x           r^3 on x (x) x (x) x
    grouped   different rows of one user          r1 r2 on x1 (x) x2       r1 r2 r3 on x1 (x) x2 (x) x3

Both are least squares for a symmetric tensor, so all that is kept are their normal equations: `gram2` (q2, q2),
`moment2` (q2,), `gram3` (q3, q3), `moment3` (q3,) with q2 = d(d+1)/2, q3 = d(d+1)(d+2)/6, beside the statistics
of the users.  One pass over the rows, in blocks; nothing that is fitted afterwards depends on their number.

Pairs and triples of different rows are not enumerated.  With A = sum x x', B = sum xx' (x) xx', C = sum of three,
all over one user's rows, the sum over different rows is A (x) A for pairs less B, and for triples

    A (x) A (x) A  -  (the three places of) B (x) A  +  2 C

and likewise for rewards.  A user with T rows has total weight T (weight 1 / (T - 1) a pair, 1 / ((T - 1)(T - 2)) a
triple), so that one user with very many rows does not outweigh all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from lcb.errors import InputError
from lcb.events import Floats
from lcb.learners._lifted import entries, monomials, n_entries, position, weights
from lcb.stats import Index, UserStats

Form = Literal["pooled", "grouped"]

_BLOCK_BYTES = 16 << 20  # of the widest array of a block of rows
_MOST_BYTES = 512 << 20
_SMALLEST = 1e-45  # its sixth power is a number still


@dataclass(frozen=True, eq=False)
class Moments:
    """Normal equations of the two regressions, additive over rows (pooled) or users (grouped).

    >>> moments = Moments.from_rows([0, 0, 0], x=[[1.0], [1.0], [2.0]], reward=[3.0, 4.0, 5.0])
    >>> moments.moment2  # (3*4*1 + 3*5*2 + 4*5*2) * 2 ordered pairs * weight 1/2
    array([82.])
    """

    form: Form
    stats: UserStats = field(repr=False)
    gram2: Floats = field(repr=False)
    moment2: Floats = field(repr=False)
    gram3: Floats = field(repr=False)
    moment3: Floats = field(repr=False)
    values: tuple[float, ...] = ()  # the different rewards, up to three of them

    @classmethod
    def from_rows(cls, user: ArrayLike, x: ArrayLike, reward: ArrayLike, *, form: Form = "grouped") -> Moments:
        """Sum the moments of rows (n, d) with rewards (n,) of users (n,)."""
        if form not in ("pooled", "grouped"):
            raise InputError(f"form={form!r}; it is 'pooled' (rows alone) or 'grouped' (different rows of one user)")
        stats = UserStats.from_rows(user, x, reward)
        check_memory(stats.n_features)
        columns = np.ascontiguousarray(np.asarray(x, dtype=np.float64).T)
        rewards = np.asarray(reward, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if form == "pooled":
                sums = _pooled(columns, rewards)
            else:
                place = {name: i for i, name in enumerate(stats.users)}
                owner = np.array([place[name] for name in np.asarray(user).tolist()], np.intp)
                sums = _grouped(columns, rewards, owner, stats)
        sizes = np.append(np.abs(columns).max(axis=1), np.abs(rewards).max())
        if not all(np.isfinite(part).all() for part in sums) or ((sizes > 0) & (sizes < _SMALLEST)).any():
            raise InputError(
                f"features and rewards have sizes from {sizes[sizes > 0].min():g} to {sizes.max():g}, and products of "
                "six features or three rewards leave the range of numbers; divide each by its size first"
            )
        return cls(form, stats, *sums, values=_different(rewards))

    @property
    def n_features(self) -> int:
        return self.stats.n_features

    @property
    def two_valued(self) -> bool:
        return len(self.values) <= 2

    def __add__(self, other: Moments) -> Moments:
        """The moments of both; grouped ones must not share a user, whose pairs across the two are lost."""
        if self.form != other.form:
            raise InputError(f"{other.form} moments cannot be added to {self.form} ones; build both in one form")
        shared = set(self.stats.users) & set(other.stats.users)
        if self.form == "grouped" and shared:
            raise InputError(
                f"user {next(iter(shared))!r} has rows in both; grouped moments need all rows of a user together"
            )
        stats = self.stats + other.stats
        return Moments(
            self.form,
            stats,
            self.gram2 + other.gram2,
            self.moment2 + other.moment2,
            self.gram3 + other.gram3,
            self.moment3 + other.moment3,
            _different(np.array(self.values + other.values)),
        )


def check_memory(n_features: int) -> None:
    """Refuse features whose moments would not fit."""
    needed = _bytes(n_features)
    if needed > _MOST_BYTES:
        most = next(d for d in range(n_features, 0, -1) if _bytes(d) <= _MOST_BYTES)
        raise InputError(
            f"{n_features} features need {needed / 2**30:,.1f} GiB of third moments; reduce them to at most {most} "
            "(PCA, say), or learn by em or gibbs, whose memory grows with the square of the features"
        )


def _bytes(d: int) -> int:
    q2, q3, q4 = (n_entries(d, degree) for degree in (2, 3, 4))
    return 8 * (2 * q2**3 + 8 * q3**2 + 2 * d**3 * q3 + q2 * q4) + 2 * _BLOCK_BYTES


def _different(rewards: Floats) -> tuple[float, ...]:
    low, high = float(rewards.min()), float(rewards.max())
    between = rewards[(rewards != low) & (rewards != high)]
    return tuple(sorted({low, high, *between[:1].tolist()}))


def _blocks(n: int, width: int) -> list[slice]:
    size = max(_BLOCK_BYTES // (8 * width), 64)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _pooled(columns: Floats, rewards: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    d, n = columns.shape
    q2, q3 = n_entries(d, 2), n_entries(d, 3)
    gram2, moment2, gram3, moment3 = np.zeros((q2, q2)), np.zeros(q2), np.zeros((q3, q3)), np.zeros(q3)
    for block in _blocks(n, q3):
        r = rewards[block]
        two, three = monomials(columns[:, block], 2), monomials(columns[:, block], 3)
        gram2 += two @ two.T
        moment2 += two @ r**2
        gram3 += three @ three.T
        moment3 += three @ r**3
    w2, w3 = weights(d, 2), weights(d, 3)
    return gram2 * np.outer(w2, w2), moment2 * w2, gram3 * np.outer(w3, w3), moment3 * w3


def _grouped(columns: Floats, rewards: Floats, owner: Index, stats: UserStats) -> tuple[Floats, Floats, Floats, Floats]:
    d, n = columns.shape
    q2, q3, q4 = (n_entries(d, degree) for degree in (2, 3, 4))
    count = stats.count
    pair = np.where(count >= 2, 1 / np.maximum(count - 1, 1), 0.0)
    triple = np.where(count >= 3, pair / np.maximum(count - 2, 1), 0.0)
    gram, moment = stats.packed[:q2], stats.moment.T  # (q2, users), (d, users)

    aa, mm = np.zeros((q2, q2)), np.zeros(q2)  # sums over users, for pairs
    aaa, mmm = np.zeros((q2, n_entries(q2, 2))), np.zeros(q3)  # for triples
    for block in _blocks(stats.n_users, n_entries(q2, 2)):
        a, m = gram[:, block], moment[:, block]
        aa += (a * pair[block]) @ a.T
        mm += monomials(m, 2) @ pair[block]
        aaa += (a * triple[block]) @ monomials(a, 2).T
        mmm += monomials(m, 3) @ triple[block]

    b, bb = np.zeros((q2, q2)), np.zeros(q2)  # sums over rows, for pairs
    ba, bm, c, cc = np.zeros((q4, q2)), np.zeros((q2, d)), np.zeros((q3, q3)), np.zeros(q3)  # for triples
    for block in _blocks(n, q4):
        mine, x, r = owner[block], columns[:, block], rewards[block]
        two, three, four = (monomials(x, degree) for degree in (2, 3, 4))
        b += (two * pair[mine]) @ two.T
        bb += two @ (pair[mine] * r**2)
        weight = triple[mine]
        ba += four @ (gram[:, mine] * weight).T
        bm += (two * (weight * r**2)) @ moment[:, mine].T
        c += (three * weight) @ three.T
        cc += three @ (weight * r**3)

    w2, w3 = weights(d, 2), weights(d, 3)
    gram2, gram3 = _pair_gram(aa, b, d), _triple_gram(aaa, ba, c, d)
    moment3 = mmm - _reward_pairs(bm, d) + 2 * cc
    return gram2 * np.outer(w2, w2), (mm - bb) * w2, gram3 * np.outer(w3, w3), moment3 * w3


def _pair_gram(aa: Floats, b: Floats, d: int) -> Floats:
    """Entry (ij, ab) of the sum over pairs of different rows, made symmetric in a, b."""
    at = position(d, 2)
    i, j = (index[:, None] for index in entries(d, 2))
    a, b_ = (index[None, :] for index in entries(d, 2))
    return np.asarray((aa[at[i, a], at[j, b_]] + aa[at[i, b_], at[j, a]]) / 2 - b)


def _triple_gram(aaa: Floats, ba: Floats, c: Floats, d: int) -> Floats:
    """Entry (ijk, abc) of the sum over triples of different rows, made symmetric in a, b, c."""
    at2, at4 = position(d, 2), position(d, 4)
    couple = position(n_entries(d, 2), 2)
    i, j, k = (index[:, None] for index in entries(d, 3))
    total = np.zeros_like(c)
    for order in permutations(range(3)):
        e, f, g = (index[None, :] for index in entries(d, 3)[list(order)])
        ie, jf, kg = at2[i, e], at2[j, f], at2[k, g]
        total += aaa[ie, couple[jf, kg]]
        total -= ba[at4[i, e, j, f], kg] + ba[at4[i, e, k, g], jf] + ba[at4[j, f, k, g], ie]
    return total / 6 + 2 * c


def _reward_pairs(bm: Floats, d: int) -> Floats:
    at = position(d, 2)
    i, j, k = entries(d, 3)
    return np.asarray(bm[at[i, j], k] + bm[at[i, k], j] + bm[at[j, k], i])
