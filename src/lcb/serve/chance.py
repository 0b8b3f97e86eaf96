"""Random numbers that can be drawn again: they depend on the log's seed and a name only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache

import numpy as np

from lcb.arrays import Floats


def draw_number(seed: bytes, name: str) -> float:
    """Return a number in [0, 1), uniform over names, computed from the seed and the name.

    >>> draw_number(b"seed", "d1") == draw_number(b"seed", "d1") != draw_number(b"seed", "d2")
    True
    """
    keyed = _key(seed).copy()
    keyed.update(name.encode())
    return (int.from_bytes(keyed.digest(), "big") >> 11) * 2.0**-53


def draw_numbers(seed: bytes, names: Iterable[str]) -> Floats:
    """Return the number of each name.

    >>> draw_numbers(b"seed", ["d1", "d2"]).tolist() == [draw_number(b"seed", "d1"), draw_number(b"seed", "d2")]
    True
    """
    begin, digests = _key(seed).copy, []
    for name in names:
        keyed = begin()
        keyed.update(name.encode())
        digests.append(keyed.digest())
    return (np.frombuffer(b"".join(digests), ">u8") >> 11) * 2.0**-53


@cache
def _key(seed: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8, key=seed)
