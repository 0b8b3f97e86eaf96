"""Copies and sums of arrays in compiled code: `into[:] = source` without the three seconds that it takes to compile.

Numba compiles the message of an error about shapes with that line, text functions and all, and again in every process
that compiles a function with such a line; `rows[i] = source` and `rows[i] += source` are such lines too.
"""

from __future__ import annotations

from lcb.runtime.compiled import njit


@njit(cache=True, nogil=True)
def copy_vector(source, into):  # type: ignore[no-untyped-def]
    """into[i] = source[i]; both (n,)"""
    for i in range(len(into)):
        into[i] = source[i]


@njit(cache=True, nogil=True)
def add_vector(source, sign, into):  # type: ignore[no-untyped-def]
    """into[i] += sign * source[i]; both (n,), `sign` is 1.0 or -1.0"""
    for i in range(len(into)):
        into[i] += sign * source[i]


@njit(cache=True, nogil=True)
def copy_matrix(source, into):  # type: ignore[no-untyped-def]
    """into[i, j] = source[i, j]; both (n, m)"""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] = source[i, j]
