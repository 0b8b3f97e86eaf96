"""The initial graphs of CLUB.

A complete graph is a matrix of n^2 bytes.  A sparse one is a list of neighbours per user; the first `live` entries are
those whose edge has not been deleted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Graph(NamedTuple):
    """Either `matrix` (n, n) or the three other arrays are used."""

    matrix: NDArray[np.uint8]
    starts: NDArray[np.int64]  # (n,) where a user's neighbours begin in `others`
    live: NDArray[np.int64]  # (n,) how many of them are left
    others: NDArray[np.int32]


def build_complete_graph(n: int) -> Graph:
    """Build the graph with all edges."""
    matrix = np.ones((n, n), np.uint8)
    np.fill_diagonal(matrix, 0)
    return Graph(matrix, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


def build_sparse_graph(n: int, degree: float, rng: np.random.Generator) -> Graph:
    """Build a graph that has each of the n (n - 1) / 2 edges with probability degree / (n - 1) (Erdos & Renyi).

    The gaps between edges, counted row by row, are geometric, so the cost is proportional to the number of edges.
    """
    row, column = _draw_pairs(n, min(1.0, degree / max(1, n - 1)), rng)
    ends = np.concatenate([row, column])
    others = np.concatenate([column, row])[np.argsort(ends, kind="stable")]
    live = np.bincount(ends, minlength=n)
    return Graph(np.empty((0, 0), np.uint8), np.cumsum(live) - live, live, others.astype(np.int32))


def _draw_pairs(n: int, probability: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the rows and columns, row < column, of the edges."""
    n_pairs = n * (n - 1) // 2
    expected = n_pairs * probability
    n_drawn = int(expected + 10 * np.sqrt(expected) + 100)
    places: list[NDArray[np.int64]] = []
    last = -1
    while last < n_pairs and probability > 0:
        gaps = rng.geometric(probability, n_drawn)
        places.append(last + np.cumsum(np.minimum(gaps, n_pairs + 1)))
        last = int(places[-1][-1])
    found = np.concatenate([*places, np.empty(0, np.int64)])
    found = found[found < n_pairs]
    before = np.arange(n, dtype=np.int64)
    before = before * (2 * n - before - 1) // 2  # pairs of earlier rows
    row = np.searchsorted(before, found, side="right") - 1
    return row, found - before[row] + row + 1
