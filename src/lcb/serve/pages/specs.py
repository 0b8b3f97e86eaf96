"""The charts of the pages as Vega-Lite specifications, made by `lcb.charts`.

A live chart is sent without rows; the event stream sends them, as the named data source `table`.  The charts of the
classes and of one user's class probabilities change rarely and contain their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lcb import charts
from lcb.models import LatentModels
from lcb.words import format_count

_LIVE: dict[str, tuple[Callable[..., Any], str]] = {
    "rates": (charts.rates, "Decisions and rewards per second over the last five minutes"),
    "ctr": (charts.ctr_over_time, "Clicks per decision over time, per recommender and model version"),
    "concentration": (charts.concentration, "Share of new users with one class at 90 %, by number of decisions"),
    "users_per_model": (charts.users_per_model, "Users per model version"),
    "mixture": (charts.class_shares, "Share of each class of the mixture, as users leave"),
    "scores": (charts.model_scores, "Held-out score of the model versions over time"),
    "items": (charts.items_by_appeal, "What items are liked beyond their features, with intervals of 95 %"),
    "item_rates": (charts.item_rates, "Reward per offer of items over time"),
}
_HEIGHT = 200
_HEIGHTS = {"items": 340}  # of up to 15 items
_MOST_STEPS = 400  # shown in the chart of a user's class probabilities
_MOST_LETTERS = 28  # of a class's label


@cache
def live_specs() -> dict[str, dict[str, Any]]:
    """Return the live charts by name, without rows, as wide as their container; they are built once (0.7 s of CPU).

    >>> sorted(live_specs())
    ['concentration', 'ctr', 'item_rates', 'items', 'mixture', 'rates', 'scores', 'users_per_model']
    >>> live_specs()["rates"]["data"], live_specs()["rates"]["width"]
    ({'name': 'table'}, 'container')
    """
    return {
        name: _make_live(chart([]).to_dict(), line, _HEIGHTS.get(name, _HEIGHT))
        for name, (chart, line) in _LIVE.items()
    }


def classes_spec(models: LatentModels) -> dict[str, Any]:
    """Return the heat map of the classes, with its rows."""
    weights = f"{format_count(models.n_classes, 'class')} over {format_count(models.n_features, 'feature')}"
    line = f"Weights of {weights}, with their shares"
    return charts.heat_map(models).to_dict() | {"description": line}


def posterior_spec(
    posterior: ArrayLike, words: Sequence[str] | None = None, *, numbered: bool = True
) -> dict[str, Any]:
    """Return the chart of one user's class probabilities (rewards + 1, N), for at most the first 400 rewards.

    Classes are labelled by `words`, with their number in front if `numbered`.
    """
    paths = np.asarray(posterior, dtype=np.float64)
    title = f"the first {_MOST_STEPS} of {len(paths) - 1:,} rewards" if len(paths) > _MOST_STEPS + 1 else None
    labels = None if words is None else list(words)
    if words is not None and numbered:
        labels = [_shorten_label(h, text) for h, text in enumerate(words, start=1)]
    chart = charts.posterior_path(paths[: _MOST_STEPS + 1], title, labels)
    return chart.to_dict() | {"description": "Probability of each class after each reward of this user"}


def _shorten_label(h: int, words: str) -> str:
    text = f"{h} {words}".strip()
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1].rstrip() + "…"


def _make_live(spec: dict[str, Any], line: str, most: int) -> dict[str, Any]:
    height = spec["height"] if isinstance(spec["height"], int) else most  # pages need a fixed height
    return spec | {"description": line, "data": {"name": "table"}, "width": "container", "height": height}
