"""Compiled draw of the classes of a block of users."""

from __future__ import annotations

import numpy as np

from lcb.learners.shared._exp_numba import COMPILED, fast_exp
from lcb.runtime.compiled import njit


@njit(**COMPILED)
def draw_classes(block, log_pi, uniform, label):  # type: ignore[no-untyped-def]
    """Draw each user's class from exp(block[h, user] + log_pi[h]); `block` (N, users) is overwritten.

    The inner loops run over users, so that they are vectorised.
    """
    n_classes, n = block.shape
    top, total, passed = np.full(n, -np.inf), np.zeros(n), np.zeros(n)
    for h in range(n_classes):
        for j in range(n):
            value = block[h, j] + log_pi[h]
            block[h, j] = value
            top[j] = max(top[j], value)
    for h in range(n_classes):
        for j in range(n):
            value = fast_exp(block[h, j] - top[j])
            block[h, j] = value
            total[j] += value
    for j in range(n):
        total[j] *= uniform[j]
        label[j] = 0
    for h in range(n_classes - 1):
        for j in range(n):
            passed[j] += block[h, j]
            label[j] += passed[j] <= total[j]
