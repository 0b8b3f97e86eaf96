"""Symmetric tensors of degree 2, 3, 4 as vectors of their different entries.

    monomials(x, 2) = x_i x_j for i <= j        weights(d, 2) = sqrt(how often the entry occurs in the tensor)

A tensor M is packed as v = weight * entry, so that |v| = |M| and <M, x (x) x> = v . (weights * monomials).
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, permutations
from math import comb, factorial

import numpy as np

from lcb.arrays import Floats, Index, add_up


def n_entries(n_features: int, degree: int) -> int:
    """Return the number of different entries of a symmetric tensor.

    >>> n_entries(10, 2), n_entries(10, 3)
    (55, 220)
    """
    return comb(n_features + degree - 1, degree)


@cache
def entries(n_features: int, degree: int) -> Index:
    """Return the sorted index tuples (degree, q) in packed order."""
    return np.array(list(combinations_with_replacement(range(n_features), degree)), dtype=np.intp).T


@cache
def position(n_features: int, degree: int) -> Index:
    """Return the packed position of the entry of every index tuple, (d, ..., d)."""
    places = np.empty((n_features,) * degree, np.intp)
    index = entries(n_features, degree)
    for order in permutations(range(degree)):
        places[tuple(index[list(order)])] = np.arange(index.shape[1])
    return places


@cache
def weights(n_features: int, degree: int) -> Floats:
    """Return the square root of how often each packed entry occurs in the whole tensor, (q,).

    >>> weights(2, 2)
    array([1.        , 1.41421356, 1.        ])
    """
    index = entries(n_features, degree)
    counts = (index[None] == np.arange(n_features)[:, None, None]).sum(axis=1)  # (d, q)
    repeats = np.prod(np.array([factorial(n) for n in range(degree + 1)])[counts], axis=0)
    return np.asarray(np.sqrt(factorial(degree) / repeats))


def monomials(columns: Floats, degree: int) -> Floats:
    """Return the products of `degree` features: (d, n) -> (q, n)."""
    index = entries(len(columns), degree)
    products = columns[index[0]]
    for rows in index[1:]:
        products = products * columns[rows]
    return np.asarray(products)


def pack(tensor: Floats) -> Floats:
    """Pack a tensor (d, ..., d) into (q,); it is made symmetric first."""
    d, degree = len(tensor), tensor.ndim
    orders = list(permutations(range(degree)))
    mean = np.asarray(add_up(tensor.transpose(order) for order in orders) / len(orders))
    return np.asarray(weights(d, degree) * mean[tuple(entries(d, degree))])


def unpack(packed: Floats, n_features: int, degree: int) -> Floats:
    """Return the whole tensor, (d, ..., d)."""
    return np.asarray((packed / weights(n_features, degree))[position(n_features, degree)])


def lifted_map(matrix: Floats, degree: int) -> Floats:
    """Return the matrix L with lifted(matrix.T @ x) = L.T @ lifted(x) for every x; lifted(x) are its monomials."""
    d, new = matrix.shape
    whole = np.ones((1, 1))
    index = entries(new, degree)
    for rows in index:  # the column of each new entry is an outer product of columns of `matrix`
        whole = (whole[:, None, :] * matrix[None, :, rows]).reshape(-1, index.shape[1])
    columns = whole.reshape((d,) * degree + (-1,))
    orders = list(permutations(range(degree)))
    mean = np.asarray(add_up(columns.transpose(*order, degree) for order in orders) / len(orders))
    packed = mean[tuple(entries(d, degree))]
    return np.asarray(weights(d, degree)[:, None] * packed * weights(new, degree))
