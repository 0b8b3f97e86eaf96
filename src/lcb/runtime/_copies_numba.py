"""Copies of matrices in compiled code: `into[:] = source` without the four seconds that Numba needs to compile it.

For arrays of several axes Numba compiles the message of an error about shapes with that line, text functions and all.
"""

from __future__ import annotations

from lcb.runtime.compiled import njit


@njit(cache=True, nogil=True)
def copy_matrix(source, into):  # type: ignore[no-untyped-def]
    """into[i, j] = source[i, j]; both (n, m)"""
    for i in range(into.shape[0]):
        for j in range(into.shape[1]):
            into[i, j] = source[i, j]
