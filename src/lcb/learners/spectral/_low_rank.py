"""Least squares for a symmetric tensor with a nuclear-norm penalty, from its normal equations.

    min_v  v'Gv / 2 - b.v + penalty * |mat(v)|_*        mat: the matrix, or the (d, d^2) unfolding of a degree-3 tensor

Solved by ADMM: a proximal step for the penalty (singular values shrunk by a constant) and one for the least squares (a
solve with an eigendecomposition computed once), until both agree.  The three unfoldings of a symmetric tensor have the
same singular values, so one penalty is enough.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.learners.spectral._lifted import pack, unpack

_TOL = 1e-9
_MOST_STEPS = 2_000


def fit_low_rank(gram: Floats, moment: Floats, penalty: float, n_features: int, degree: int) -> Floats:
    """Return the packed solution (q,) of the problem above; plain least squares if `penalty` is 0."""
    values, vectors = np.linalg.eigh(gram)
    start = np.asarray(vectors @ ((vectors.T @ moment) / values))
    if penalty == 0:
        return start
    step = float(np.exp(np.log(values).mean()))  # the penalty parameter of ADMM
    shape = (n_features,) * degree
    low, dual = _unfold(start, shape), np.zeros((n_features, n_features ** (degree - 1)))
    size = max(float(np.abs(start).max()), np.finfo(float).tiny)
    for _ in range(_MOST_STEPS):
        target = pack((low - dual).reshape(shape))
        fitted = vectors @ ((vectors.T @ (moment + step * target)) / (values + step))
        unfolded, before = _unfold(fitted, shape), low
        low = shrink(unfolded + dual, penalty / step)
        dual = dual + unfolded - low
        if max(np.abs(unfolded - low).max(), np.abs(low - before).max()) < _TOL * size:
            break
    return pack(low.reshape(shape))


def shrink(matrix: Floats, by: float) -> Floats:
    """Reduce every singular value by `by`, but not below 0."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray((left * np.maximum(values - by, 0.0)) @ right)


def _unfold(packed: Floats, shape: tuple[int, ...]) -> Floats:
    return unpack(packed, shape[0], len(shape)).reshape(shape[0], -1)
