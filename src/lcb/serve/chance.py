"""Random numbers that can be drawn again: they depend on the log's seed and a name only."""

from __future__ import annotations

import hashlib
from functools import cache


def draw_number(seed: bytes, name: str) -> float:
    """Return a number in [0, 1), uniform over names, computed from the seed and the name.

    >>> draw_number(b"seed", "d1") == draw_number(b"seed", "d1") != draw_number(b"seed", "d2")
    True
    """
    keyed = _key(seed).copy()
    keyed.update(name.encode())
    return (int.from_bytes(keyed.digest(), "big") >> 11) * 2.0**-53


@cache
def _key(seed: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8, key=seed)
