"""The robust tensor power method (Anandkumar, Ge, Hsu, Kakade, Telgarsky 2014, JMLR 15).

It decomposes a symmetric tensor T = sum_h lambda_h v_h (x) v_h (x) v_h with orthonormal v_h and lambda_h > 0, one
component at a time:

    v <- T(I, v, v) / |T(I, v, v)|       from many random starts; the one with the largest T(v, v, v) is kept
    T <- T - lambda v (x) v (x) v        lambda = T(v, v, v), then the next component

It is exact if T is orthogonal; under noise E the error of a component is of the order |E| / lambda.  Deflation adds the
errors of earlier components to later ones, so at the end each component is iterated again with all others subtracted.
A component costs O(starts * iterations * k^3).

`whitening` makes independent components orthogonal, as this method needs them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats
from lcb.errors import InputError

_TINY = 1e-12  # smaller values, relative to the tensor's size, are rounding
_SWEEPS = 20


def tensor_power(
    tensor: ArrayLike,
    rng: np.random.Generator,
    n_components: int | None = None,
    n_starts: int = 50,
    n_iterations: int = 100,
) -> tuple[Floats, Floats]:
    """Return eigenvalues (n,), largest first, and eigenvectors (n, k) of a symmetric tensor (k, k, k).

    >>> tensor = np.zeros((2, 2, 2))
    >>> tensor[0, 0, 0], tensor[1, 1, 1] = 2.0, 3.0
    >>> values, vectors = tensor_power(tensor, np.random.default_rng(0))
    >>> values.round(6), abs(vectors.round(6))
    (array([3., 2.]), array([[0., 1.], [1., 0.]]))
    """
    whole = np.array(tensor, dtype=np.float64)
    n_components = len(whole) if n_components is None and whole.ndim else n_components
    _check(whole, n_components, n_starts, n_iterations)
    assert n_components is not None
    size = float(np.abs(whole).max())
    left = whole / (size or 1.0)
    whole = left.copy()
    values, vectors = np.zeros(n_components), np.zeros((n_components, len(whole)))
    for h in range(n_components):
        starts = _unit(rng.standard_normal((n_starts, len(whole))))
        tried = _iterate(left, starts, n_iterations)
        best = tried[[np.argmax(_value(left, tried))]]
        vectors[h] = _iterate(left, best, n_iterations)[0]
        values[h] = _value(left, vectors[[h]])[0]
        left -= values[h] * _cubes(vectors[[h]])[0]
    _refine(whole, values, vectors)
    order = np.argsort(-values, kind="stable")
    return values[order] * size, vectors[order]


def whitening(matrix: ArrayLike, n_components: int) -> tuple[Floats, Floats]:
    """Return W (d, n) with W' M W = I, on the n = `n_components` largest eigenvectors of M, and B with W' B = I.

    If M = sum_h pi_h b_h b_h' has rank n, the vectors sqrt(pi_h) W' b_h are orthonormal, and B maps them back.

    >>> W, B = whitening([[4.0, 0.0], [0.0, 0.25]], 2)
    >>> abs(W), abs(B)
    (array([[0.5, 0. ], [0. , 2. ]]), array([[2. , 0. ], [0. , 0.5]]))
    """
    symmetric = np.asarray(matrix, dtype=np.float64)
    values, vectors = np.linalg.eigh((symmetric + symmetric.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    n_positive = int((values > _TINY * max(np.abs(values).max(), np.finfo(float).tiny)).sum())
    if not 1 <= n_components <= n_positive:
        raise InputError(
            f"the matrix of second moments has {n_positive} positive eigenvalues, {n_components} are needed; "
            f"ask for at most {n_positive} classes, or learn from more rows"
        )
    root = np.sqrt(values[:n_components])
    return vectors[:, :n_components] / root, vectors[:, :n_components] * root


def _check(tensor: Floats, n_components: int | None, n_starts: int, n_iterations: int) -> None:
    if tensor.ndim != 3 or len(set(tensor.shape)) != 1 or tensor.size == 0:
        raise InputError(f"the tensor has shape {tensor.shape}; wanted (k, k, k)")
    if not np.isfinite(tensor).all():
        raise InputError(f"the tensor has {int((~np.isfinite(tensor)).sum())} values that are not finite numbers")
    asymmetry = max(np.abs(tensor - tensor.transpose(axes)).max() for axes in ((1, 0, 2), (0, 2, 1)))
    if asymmetry > 1e-6 * np.abs(tensor).max():
        raise InputError(f"the tensor differs from its transposes by {asymmetry:g}; make it symmetric first")
    if n_components is None or not 1 <= n_components <= len(tensor):
        raise InputError(f"n_components={n_components}; a (k, k, k) tensor has 1 to k={len(tensor)} components")
    if n_starts < 1 or n_iterations < 1:
        raise InputError(f"n_starts={n_starts}, n_iterations={n_iterations}; both must be at least 1")


def _refine(whole: Floats, values: Floats, vectors: Floats) -> None:
    """Iterate each component with all others subtracted, in place, until none changes."""
    for _ in range(_SWEEPS):
        before = vectors.copy()
        for h in range(len(values)):
            others = np.arange(len(values)) != h
            rest = whole - np.tensordot(values[others], _cubes(vectors[others]), axes=1)
            vectors[h] = _iterate(rest, vectors[[h]], 2)[0]
            values[h] = _value(rest, vectors[[h]])[0]
        if np.abs(vectors - before).max() < _TINY:
            return


def _iterate(tensor: Floats, vectors: Floats, n_iterations: int) -> Floats:
    """Take `n_iterations` power steps from each row of `vectors` (starts, k); fewer if nothing changes."""
    for _ in range(n_iterations):
        moved = _apply(tensor, vectors)
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        moved = np.where(length > _TINY, moved / np.maximum(length, _TINY), vectors)  # a zero tensor moves nothing
        if np.abs(moved - vectors).max() < _TINY:
            return moved
        vectors = moved
    return vectors


def _apply(tensor: Floats, vectors: Floats) -> Floats:
    """Return T(I, v, v) for each row v, (starts, k)."""
    pairs = (vectors[:, :, None] * vectors[:, None, :]).reshape(len(vectors), -1)
    return np.asarray(pairs @ tensor.reshape(len(tensor), -1).T)


def _value(tensor: Floats, vectors: Floats) -> Floats:
    """Return T(v, v, v) for each row v, (starts,)."""
    return np.asarray((_apply(tensor, vectors) * vectors).sum(axis=1))


def _cubes(vectors: Floats) -> Floats:
    """Return v (x) v (x) v for each row v, (n, k, k, k)."""
    return np.asarray(np.einsum("hi,hj,hk->hijk", vectors, vectors, vectors))


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _TINY))
