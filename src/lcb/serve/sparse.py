"""Distributions over many arms in few bytes: most arms have the same probability, such as that of the uniform share.

Stored are the indices (int32) and then the probabilities (float64) of the arms that differ from `rest`, which is the
median probability.  A distribution in which more than a third of the arms differ is stored whole, as float64.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats

FEWEST_ARMS = 64  # with fewer, a distribution is always stored whole


def pack_distribution(p: Floats) -> tuple[bytes, float | None]:
    """Return the bytes of a distribution and `rest`, which is None if it is stored whole.

    >>> data, rest = pack_distribution(np.r_[0.9, np.full(99, 0.1 / 99)])
    >>> len(data), round(rest, 6)
    (12, 0.00101)
    """
    if len(p) < FEWEST_ARMS:
        return p.tobytes(), None
    rest = float(np.partition(p, len(p) // 2)[len(p) // 2])
    others = np.flatnonzero(p != rest)
    if 3 * len(others) > len(p):
        return p.tobytes(), None
    return others.astype(np.int32).tobytes() + p[others].tobytes(), rest


def unpack_distribution(data: bytes, rest: float | None, n_arms: int) -> Floats:
    """Return the probability of every arm, (n_arms,), exactly as it was packed.

    >>> p = np.r_[0.9, np.full(99, 0.1 / 99)]
    >>> bool((unpack_distribution(*pack_distribution(p), 100) == p).all())
    True
    """
    if rest is None:
        return np.frombuffer(data, np.float64)
    n_others = len(data) // 12
    p = np.full(n_arms, rest)
    p[np.frombuffer(data, np.int32, n_others)] = np.frombuffer(data, np.float64, n_others, 4 * n_others)
    return p
