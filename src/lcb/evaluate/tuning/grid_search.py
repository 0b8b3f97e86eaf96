"""Searches an algorithm's grid of settings.

A grid of at most `most` combinations is tried in full.  A larger one is searched one setting at a time (all its values,
with the other settings at their best so far), starting from the defaults, until nothing changes or `most` are tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from lcb.evaluate.algorithms import ALGORITHMS, Settings
from lcb.evaluate.algorithms.algorithm import Value

Values = tuple[Value, ...]  # of the settings, in the order of the grid


def choose_trials(grid: Mapping[str, Values], regret: Mapping[Values, float], most: int) -> list[Values]:
    """Return the combinations to try next, given the regret of those tried; empty at the end of the search.

    >>> choose_trials({"eta": (1.0, 0.5), "uniform": (0.0, 0.1)}, {}, most=4)
    [(1.0, 0.0), (1.0, 0.1), (0.5, 0.0), (0.5, 0.1)]
    >>> choose_trials({"eta": (1.0, 0.5), "uniform": (0.0, 0.1)}, {}, most=3)
    [(1.0, 0.0), (0.5, 0.0)]
    >>> choose_trials({"eta": (1.0, 0.5), "uniform": (0.0, 0.1)}, {(1.0, 0.0): 7.0, (0.5, 0.0): 5.0}, most=3)
    [(0.5, 0.1)]
    """
    values = list(grid.values())
    if prod(map(len, values)) <= most:
        return [one for one in product(*values) if one not in regret]
    room = most - len(regret)
    best = tuple(tried[0] for tried in values)
    while room:
        before = best
        for i, tried in enumerate(values):
            line = [(*best[:i], value, *best[i + 1 :]) for value in tried]
            untried = [one for one in line if one not in regret]
            if untried:
                return untried[:room]
            best = min(line, key=lambda one: regret[one])
        if best == before:
            break
    return []


def name_values(algorithm: str, values: Values) -> Settings:
    """Return the values as settings of the algorithm, by name."""
    return dict(zip(ALGORITHMS[algorithm].grid, values, strict=True))
