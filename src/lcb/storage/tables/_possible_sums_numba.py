"""Compiled search for sums that cannot be those of some rows: pivoted Cholesky steps on the sums of each user."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.runtime.compiled import njit


@njit(cache=True, nogil=True)
def find_suspects(sums: Floats, count: Floats, room: float) -> NDArray[np.bool_]:
    """Mark users whose sums (n, k, k), with a diagonal of 1 or 0, are not those of `count` rows to within `room`.

    `sums` is overwritten.  With u rows, u steps leave zeros; k steps do in any case.  If an eigenvalue is below
    -k * room, or the one after the first `count` above k * room, something larger than `room` is left.
    """
    n, k = sums.shape[0], sums.shape[1]
    found = np.zeros(n, np.bool_)
    for i in range(n):
        rest = sums[i]
        done = np.zeros(k, np.bool_)
        for _ in range(min(k, int(count[i]))):
            p, largest = -1, room
            for a in range(k):
                if not done[a] and rest[a, a] > largest:
                    p, largest = a, rest[a, a]
            if p < 0:
                break
            done[p] = True
            for a in range(k):
                if not done[a]:
                    share = rest[a, p] / largest
                    for b in range(k):
                        rest[a, b] -= share * rest[p, b]
        for a in range(k):
            for b in range(k):
                if not done[a] and not done[b] and abs(rest[a, b]) > room:
                    found[i] = True
    return found
