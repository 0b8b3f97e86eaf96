"""Hash tables from ids to codes 0, 1, 2, ... in the order of first appearance; open addressing, at most half full.

slots (2^k,)   the code in each slot, -1 if it is empty; the search for an id starts at its hash and goes up
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lcb.runtime.compiled import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SEED, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_HALF = np.uint64(32)
Codes = NDArray[np.int32]
Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Ids = NDArray[np.int64] | NDArray[np.uint64]  # whole numbers, or hashes of texts
Bytes = NDArray[np.uint8]


@njit(cache=True, nogil=True)
def enter(slots: Codes, ids: Ids, n: int, values: Ids, out: Codes, first: int) -> tuple[int, int]:
    """Write the codes of `values` from index `first` on; return the number of ids and the index where it stopped.

    It stops early if the table is half full.  `ids` holds the id of each code, with space for half of the slots.
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
def find_differing(starts: Integers, letters: Bytes, offsets: Integers, data: Bytes, codes: Codes) -> NDArray[np.bool_]:
    """Mark texts that differ from the text of their code although the hashes are equal.

    Text i is data[offsets[i]:offsets[i + 1]]; the text of code c is letters[starts[c]:starts[c + 1]].
    """
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
def hash_texts(offsets: Integers, data: Bytes) -> Hashes:
    values = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(values)):
        value = _SEED
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[j])) * _PRIME
        values[i] = value ^ (value >> _HALF)
    return values


@njit(cache=True, nogil=True)
def settle(slots: Codes, ids: Ids, n: int) -> None:
    """Enter the first `n` ids into empty slots."""
    mask = np.uint64(len(slots) - 1)
    for code in range(n):
        slot = _mix(ids[code]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code


@njit(cache=True, nogil=True)
def scramble(values: Hashes) -> Hashes:
    """Return values whose every bit depends on all bits of the given ones (the last steps of SplitMix64)."""
    out = np.empty_like(values)
    for i in range(len(values)):
        value = values[i] + _MIX
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = value ^ (value >> np.uint64(31))
    return out


@njit(cache=True, nogil=True)
def _mix(value: np.int64 | np.uint64) -> np.uint64:
    """Spread consecutive ids over the table."""
    mixed = np.uint64(value) * _MIX
    return np.uint64(mixed ^ (mixed >> _HALF))
