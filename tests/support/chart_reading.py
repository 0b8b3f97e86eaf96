"""Curves to draw, and functions that read a chart's rows and styles from its Vega-Lite specification."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from lcb.charts import Curve

ALGORITHMS = ["lcb", "lcb-mean", "lcb-gt", "lcb-gt-mean", "linucb-population", "linucb-individual", "random"]
ENDS = [0.55, 0.48, 0.36, 0.31, 4.9, 5.9, 11.4]


def some_curves(names: list[str] = ALGORITHMS, scale: float = 1.0) -> list[Curve]:
    ends = dict(zip(ALGORITHMS, ENDS, strict=True))
    at = [10.0, 50.0, 100.0]
    return [Curve(n, at, [scale * ends[n] * f for f in (1.3, 1.1, 1)], [0.1, 0.05, 0.02]) for n in names]


def rows(chart: Any, *fields: str) -> list[dict[str, Any]]:
    """The data rows of the chart that have all these fields."""
    data = [row for part in chart.to_dict()["datasets"].values() for row in part]
    return [row for row in data if set(fields) <= set(row)]


def encodings(chart: Any, channel: str) -> list[dict[str, Any]]:
    layers = chart.to_dict()["layer"]
    return [layer["encoding"][channel] for layer in layers if channel in layer["encoding"]]


def style(chart: Any, channel: str) -> dict[str, Any]:
    scale = encodings(chart, channel)[0]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
