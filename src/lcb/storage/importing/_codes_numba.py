"""Hash tables from ids to codes 0, 1, 2, ... in the order of first appearance; open addressing, at most half full.

slots (2^k,)   the code at home in each slot, or -1; the search for an id starts at its hash and goes up
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lcb._compiled import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def enter_integers(
    slots: NDArray[np.int32],
    ids: NDArray[np.int64],
    n: int,
    values: NDArray[np.int64],
    out: NDArray[np.int32],
    first: int,
) -> tuple[int, int]:
    """Code `values` from index `first` on; returns the number of ids and the index where the table was full.

    ids   the id of each code, with room for as many as half of the slots
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(first, len(values)):
        value = values[i]
        slot = _mix(value) & mask
        while slots[slot] >= 0 and ids[slots[slot]] != value:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            if 2 * (n + 1) > len(slots):
                return n, i
            slots[slot] = n
            ids[n] = value
            n += 1
        out[i] = slots[slot]
    return n, len(values)


@njit(cache=True, nogil=True)
def enter_hashes(
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    n: int,
    values: NDArray[np.uint64],
    out: NDArray[np.int32],
    first: int,
) -> tuple[int, int]:
    """The same for hashes of texts, which need no further mixing."""
    mask = np.uint64(len(slots) - 1)
    for i in range(first, len(values)):
        value = values[i]
        slot = value & mask
        while slots[slot] >= 0 and hashes[slots[slot]] != value:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            if 2 * (n + 1) > len(slots):
                return n, i
            slots[slot] = n
            hashes[n] = value
            n += 1
        out[i] = slots[slot]
    return n, len(values)


@njit(cache=True, nogil=True)
def find_differing(
    starts: NDArray[np.int64],
    letters: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    codes: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Which texts differ from that of their code although the hashes agree; text i: offsets[i] to offsets[i + 1]."""
    found = np.zeros(len(codes), np.bool_)
    for i in range(len(codes)):
        start, low, length = starts[codes[i]], offsets[i], offsets[i + 1] - offsets[i]
        same = starts[codes[i] + 1] - start == length
        j = 0
        while same and j < length:
            same = letters[start + j] == data[low + j]
            j += 1
        found[i] = not same
    return found


@njit(cache=True, nogil=True)
def hash_texts(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """A hash of each text."""
    values = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(values)):
        value = _SEED
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[j])) * _PRIME
        values[i] = value ^ (value >> _HALF)
    return values


@njit(cache=True, nogil=True)
def settle_integers(slots: NDArray[np.int32], ids: NDArray[np.int64], n: int) -> None:
    """Enter the first `n` ids into empty slots."""
    mask = np.uint64(len(slots) - 1)
    for code in range(n):
        _settle(slots, _mix(ids[code]) & mask, mask, code)


@njit(cache=True, nogil=True)
def settle_hashes(slots: NDArray[np.int32], hashes: NDArray[np.uint64], n: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for code in range(n):
        _settle(slots, hashes[code] & mask, mask, code)


@njit(cache=True, nogil=True)
def _settle(slots: NDArray[np.int32], slot: np.uint64, mask: np.uint64, code: int) -> None:
    while slots[slot] >= 0:
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = code


@njit(cache=True, nogil=True)
def _mix(value: np.int64) -> np.uint64:
    """Spread consecutive ids over the table."""
    mixed = np.uint64(value) * _MIX
    return np.uint64(mixed ^ (mixed >> _HALF))
