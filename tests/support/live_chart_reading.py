"""Reads what a live chart draws from the marks that Vega computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import vl_convert


def marks(chart: Any, kind: str) -> list[dict[str, Any]]:
    """Return the marks of this kind that belong to rows, with their parsed ARIA description as `says`."""
    graph = vl_convert.vegalite_to_scenegraph(chart.to_dict())
    items = [item for group in _groups(graph, kind) for item in group["items"] if "description" in item]
    return [item | {"says": _parts(item["description"])} for item in items]


def texts(chart: Any) -> list[str]:
    """The labels of rows from top to bottom."""
    return [item["text"] for item in sorted(marks(chart, "text"), key=lambda item: item["y"])]


def _parts(description: str) -> dict[str, str]:
    return dict(part.split(": ", 1) for part in description.split("; "))


def _groups(node: Any, kind: str) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("marktype") == kind and node.get("role") == "mark":
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _groups(value, kind)
