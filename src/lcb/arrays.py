"""Types of the arrays that all modules pass to each other, sums that round alike everywhere, bitmaps."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]
T = TypeVar("T")
LARGEST = 1e100  # absolute value of a feature or a reward: their squares and sums stay finite


def add_up(parts: Iterable[T]) -> T:
    """Add from left to right; the built-in `sum` does so up to Python 3.11 and corrects the rounding of floats later.

    >>> add_up([1e16, 1.0, 1.0]) == 1e16
    True
    """
    return reduce(add, parts)


def lay_out(values: Floats) -> Floats:
    """Return the values aligned and in C order, copied if they are not.

    Sums over arrays with gaps, in another order or at odd addresses are other code, which adds in another order: bits
    would depend on where an array came from.

    >>> lay_out(np.arange(6.0).reshape(2, 3).T).flags.c_contiguous
    True
    """
    flags = values.flags
    return values if flags.c_contiguous and flags.aligned else np.array(values, order="C")


def pack_bools(values: NDArray[np.bool_]) -> bytes:
    """Return booleans (n,) as a bitmap.

    >>> unpack_bools(pack_bools(np.array([True, False, True])), 3).tolist()
    [True, False, True]
    """
    return np.packbits(values).tobytes()


def unpack_bools(data: bytes, n: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=n).astype(bool)
