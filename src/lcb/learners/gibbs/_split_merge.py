"""Split-merge moves of a partition, so that the classes found do not depend on the start.

Two users are drawn.  If they share a class, a split of it is proposed, else a merge of their classes.  With q the
probability of dividing the other users as in the split, the Metropolis-Hastings ratio is

    split    p(split) / p(merged) / q              merge    p(merged) / p(split) * q

`split_merge` divides them by restricted Gibbs scans (Jain & Neal 2004) from a launch state that does not depend on
their present classes: one by one in random order (Dahl 2003), then a few scans.  It finds splits.
`urn_split_merge` divides them by an urn, regardless of their rewards: q = n_0! n_1! / (n_0 + n_1 + 1)!.  Its splits are
seldom accepted, but merges of two halves of one class nearly always are, at the cost of one elimination (compare Wang &
Russell 2015).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from lcb.arrays import Floats
from lcb.learners.gibbs import _gibbs_numba as kernels
from lcb.learners.gibbs._partition import Partition
from lcb.learners.gibbs._split_merge_numba import restricted_scan

_NOBODY, _NOTHING = np.empty(0, np.int8), np.empty(0)


def split_merge(state: Partition, rng: np.random.Generator, n_scans: int = 4) -> bool:
    """Try one move with restricted scans; return whether it was accepted."""
    i, j, a, b = _draw_pair(state, rng)
    if a == b and _is_full(state):
        return False
    log_uniform = float(np.log(rng.random()))
    if a != b and not log_uniform < _log_merge(state, a, b):
        return False  # refused even with q = 1
    members = rng.permutation(_find_others(state, i, j, a, b))
    two = _Two(state, i, j, members)
    for _ in range(n_scans + 1):
        two.scan(rng.random(len(members)))
    if a == b:
        log_q = two.scan(rng.random(len(members)))
        return _try_split(state, i, a, two, log_q, log_uniform, rng)
    log_q = two.scan(_NOTHING, forced=(state.label[members] == b).astype(np.int8))
    return _try_merge(state, a, b, log_q, log_uniform)


def urn_split_merge(state: Partition, rng: np.random.Generator) -> bool:
    """Try one move with an urn; return whether it was accepted."""
    i, j, a, b = _draw_pair(state, rng)
    log_uniform = float(np.log(rng.random()))
    if a != b:
        return _try_merge(state, a, b, _log_urn(state.size[a] - 1, state.size[b] - 1), log_uniform)
    if _is_full(state):
        return False
    members = _find_others(state, i, j, a, b)
    two = _Two(state, i, j, members)
    two.divide((rng.random(len(members)) < rng.random()).astype(np.int8))
    return _try_split(state, i, a, two, _log_urn(two.size[0] - 1, two.size[1] - 1), log_uniform, rng)


class _Two:
    """Two sides of a split: side 0 has user i, side 1 user j; `members` are the others."""

    def __init__(self, state: Partition, i: int, j: int, members: NDArray[np.intp]) -> None:
        design = state.design
        self.design, self.members, self.hyper, self.share = design, members, state.hyper, state.share
        self.side = np.full(len(members), -1, np.int8)
        self.sums = design.precision[:, None] + design.rows[[i, j]].T.astype(np.float64)
        self.size, self.log_evidence = np.ones(2), _evidence(state, self.sums)

    def scan(self, uniform: Floats, forced: NDArray[np.int8] = _NOBODY) -> float:
        """Draw every member's side, or take the `forced` ones; return the log probability of the outcome."""
        classes = self.sums, self.size, self.log_evidence, self.design.floor, self.hyper, self.share
        return float(restricted_scan(self.design.rows, self.members, self.side, forced, *classes, uniform))

    def divide(self, side: NDArray[np.int8]) -> None:
        self.side = side
        kernels.add_members(self.design.rows, self.members, side, self.sums, self.size)
        self.log_evidence = kernels.evidence_of(self.sums, self.design.floor, self.hyper)


def _draw_pair(state: Partition, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw two different users; return them and their classes."""
    i, j = int(rng.integers(state.design.n_users)), int(rng.integers(state.design.n_users - 1))
    j += j >= i
    return i, j, int(state.label[i]), int(state.label[j])


def _find_others(state: Partition, i: int, j: int, a: int, b: int) -> NDArray[np.intp]:
    members = np.flatnonzero((state.label == a) | (state.label == b))
    return members[(members != i) & (members != j)]


def _is_full(state: Partition) -> bool:
    """Whether there is no empty class to split into."""
    return state.n_classes is not None and len(state.occupied) == state.n_classes


def _evidence(state: Partition, sums: Floats) -> Floats:
    return np.asarray(kernels.evidence_of(sums, state.design.floor, state.hyper))


def _log_urn(n_0: float, n_1: float) -> float:
    """Return the log probability that n_0 and n_1 given users get sides 0 and 1, the proportion uniform on [0, 1]."""
    return float(gammaln(n_0 + 1) + gammaln(n_1 + 1) - gammaln(n_0 + n_1 + 2))


def _log_split(state: Partition, sizes: Floats, log_evidence: Floats, merged: float, n_empty: int) -> float:
    """Return log p(split) - log p(merged).

    With a given number of classes, a split draws one of `n_empty` empty classes; a merge has no choice.
    """
    value = float(log_evidence.sum()) - merged
    if state.n_classes is None:
        return value + float(np.log(state.concentration) + gammaln(sizes).sum() - gammaln(sizes.sum()))
    share = state.share
    value += float(gammaln(sizes + share).sum() - gammaln(sizes.sum() + share) - gammaln(share))
    return value + float(np.log(n_empty))


def _count_empty(state: Partition) -> int:
    return (state.n_classes or 0) - len(state.occupied)


def _log_merge(state: Partition, a: int, b: int) -> float:
    """Return log p(merged) - log p(split) of two classes."""
    merged = float(_evidence(state, _join(state, a, b)[:, None])[0])
    return -_log_split(state, state.size[[a, b]], state.log_evidence[[a, b]], merged, _count_empty(state) + 1)


def _join(state: Partition, a: int, b: int) -> Floats:
    return state.sums[:, a] + state.sums[:, b] - state.design.precision


def _try_split(
    state: Partition, i: int, a: int, two: _Two, log_q: float, log_uniform: float, rng: np.random.Generator
) -> bool:
    merged = float(state.log_evidence[a])
    if not log_uniform < _log_split(state, two.size, two.log_evidence, merged, _count_empty(state)) - log_q:
        return False
    new = state.free_slot(rng)
    state.label[i] = new
    state.label[two.members[two.side == 0]] = new
    state.sums[:, new], state.sums[:, a] = two.sums.T
    state.size[new], state.size[a] = two.size
    state.log_evidence[new], state.log_evidence[a] = two.log_evidence
    return True


def _try_merge(state: Partition, a: int, b: int, log_q: float, log_uniform: float) -> bool:
    if not log_uniform < _log_merge(state, a, b) + log_q:
        return False
    joined = _join(state, a, b)
    state.label[state.label == a] = b
    state.sums[:, b], state.sums[:, a] = joined, state.design.precision
    state.size[b] += state.size[a]
    state.size[a] = 0.0
    state.log_evidence[b], state.log_evidence[a] = _evidence(state, joined[:, None])[0], 0.0
    return True
