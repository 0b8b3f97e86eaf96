"""Recommenders that cluster users while they serve them: CLUB on three graphs, and SCLUB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.recommenders.clustering.club import MOST_COMPLETE, Club
from lcb.recommenders.clustering.sclub import Sclub
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

_WIDTHS = (0.1, 0.25, 0.5)


def _anonymous_past(task: Task) -> UserStats | None:
    """Return the past users without ids, so that no test user is mistaken for one of them."""
    history = task.past
    return None if history is None else UserStats(history.packed, history.n_features)


def _club(**fixed: Any) -> Callable[..., Recommender]:
    def build(task: Task, rng: np.random.Generator, threshold: float, width: float, ridge: float) -> Recommender:
        n_all = task.n_users + (0 if task.past is None else task.past.n_users)
        graph = {"graph": "sparse"} if n_all > MOST_COMPLETE else {}
        return Club(
            task.n_features,
            task.n_users,
            threshold=threshold,
            width=width,
            ridge=ridge,
            history=_anonymous_past(task),
            rng=rng,
            **{**fixed, **graph},
        )

    return build


def _sclub(task: Task, rng: np.random.Generator, threshold: float, width: float, ridge: float) -> Recommender:
    return Sclub(
        task.n_features, task.n_users, threshold=threshold, width=width, ridge=ridge, history=_anonymous_past(task)
    )


ALGORITHMS = (
    Algorithm(
        "club", "users of one component of a graph (sparse above 30,000 users) share a LinUCB", "Gentile et al. 2014",
        build=_club(),
        grid={"threshold": (0.4, 0.2, 0.3, 0.35, 0.45, 0.5, 0.7, 1.0), "width": _WIDTHS, "ridge": (1.0, 0.1)},
        cost="d^3 + K d^2 + n d",
    ),
    Algorithm(
        "club-sparse", "CLUB from a random graph with 3 ln n neighbours per user", "Gentile et al. 2014",
        build=_club(graph="sparse"),
        grid={"threshold": (0.4, 0.2, 0.3, 0.35, 0.45, 0.5, 0.7, 1.0), "width": _WIDTHS, "ridge": (1.0, 0.1)},
        cost="d^3 + K d^2 + d ln n",
    ),
    Algorithm(
        "club-one-hop", "CLUB's graph, but only direct neighbours share", "Gentile et al. 2014, one hop: ours",
        build=_club(one_hop=True),
        grid={"threshold": (0.75, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "width": _WIDTHS, "ridge": (0.1, 1.0)},
        cost="n d^2 + d^3 + K d^2",
    ),
    Algorithm(
        "sclub", "clusters as sets that split and merge, phase by phase", "Li et al. 2019",
        build=_sclub,
        grid={"threshold": (1.0, 0.4, 0.5, 0.6, 0.8, 0.9, 1.2, 1.5), "width": _WIDTHS, "ridge": (0.1, 1.0)},
        cost="d^3 + K d^2 + clusters d + n",
    ),
)  # fmt: skip
