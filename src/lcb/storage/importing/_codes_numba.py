"""A table from 64-bit ids to 0, 1, 2, ... in the order of their first appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lcb._compiled import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def enter(slots: NDArray[np.int32], ids: NDArray[np.int64], n: int, values: NDArray[np.int64],
          out: NDArray[np.int32], first: int) -> tuple[int, int]:  # fmt: skip
    """Code `values` from `first` on; returns how many ids there are now, and where it stopped for want of room.

    slots (2^k,)   the code at home in each slot, or -1; an id's search starts at its hash and goes up
    ids            the id of each code, with room for as many as half of the slots
    """
    mask = len(slots) - 1
    shift = np.uint64(64 - int(np.log2(len(slots))))
    for i in range(first, len(values)):
        value = values[i]
        slot = np.int64((np.uint64(value) * _MIX) >> shift) & mask
        while slots[slot] >= 0 and ids[slots[slot]] != value:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            if 2 * (n + 1) > len(slots):
                return n, i
            slots[slot] = n
            ids[n] = value
            n += 1
        out[i] = slots[slot]
    return n, len(values)


@njit(cache=True, nogil=True)
def settle(slots: NDArray[np.int32], ids: NDArray[np.int64], n: int) -> None:
    """Enter the first `n` ids into empty slots."""
    mask = len(slots) - 1
    shift = np.uint64(64 - int(np.log2(len(slots))))
    for code in range(n):
        slot = np.int64((np.uint64(ids[code]) * _MIX) >> shift) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code
