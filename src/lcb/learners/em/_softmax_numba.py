"""Compiled softmax over classes for a block of users.

It takes three vectorised passes over the block, NumPy five; `fast_exp` replaces libm's exp, which is not vectorised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.learners.shared._exp_numba import fast_exp, fast_exp32
from lcb.runtime.compiled import njit

_COMPILED = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract", "nnan", "ninf", "nsz"}}


def softmax(
    block: NDArray[Any], log_pi: NDArray[Any], top: NDArray[Any], total: NDArray[Any], mass: NDArray[np.float64]
) -> None:
    """Turn (N, users) log likelihoods into responsibilities in place, adding each class's sum to `mass` (N,).

    `top` + log `total`, (users,), is then the log evidence of each user.
    """
    (softmax64 if block.dtype == np.float64 else softmax32)(block, log_pi, top, total, mass)


@njit(**_COMPILED)
def softmax64(block, log_pi, top, total, mass):  # type: ignore[no-untyped-def]
    _find_largest(block, log_pi, top)
    total[:] = 0.0
    for h in range(len(block)):
        for j in range(len(top)):
            value = fast_exp(block[h, j] + log_pi[h] - top[j])
            block[h, j] = value
            total[j] += value
    _divide(block, total, mass)


@njit(**_COMPILED)
def softmax32(block, log_pi, top, total, mass):  # type: ignore[no-untyped-def]
    _find_largest(block, log_pi, top)
    total[:] = 0.0
    for h in range(len(block)):
        for j in range(len(top)):
            value = fast_exp32(block[h, j] + log_pi[h] - top[j])
            block[h, j] = value
            total[j] += value
    _divide(block, total, mass)


@njit(**_COMPILED)
def _find_largest(block, log_pi, top):  # type: ignore[no-untyped-def]
    n_classes, n = block.shape
    for j in range(n):
        top[j] = block[0, j] + log_pi[0]
    for h in range(1, n_classes):
        for j in range(n):
            top[j] = max(top[j], block[h, j] + log_pi[h])


@njit(**(_COMPILED | {"fastmath": True}))
def _divide(block, total, mass):  # type: ignore[no-untyped-def]
    n_classes, n = block.shape
    inverse = 1 / total
    for h in range(n_classes):
        in_class = 0.0
        for j in range(n):
            value = block[h, j] * inverse[j]
            block[h, j] = value
            in_class += value
        mass[h] += in_class
