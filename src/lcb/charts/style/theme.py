"""The theme of all charts: colours, the colour and dash of each algorithm, fonts and axes.

Altair is imported when the first chart is drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lcb.charts.style.formats import escape_unprintable
from lcb.charts.style.palette import PALETTE
from lcb.errors import MissingExtra

_CHARTS = PALETTE["charts"]
SURFACE, INK, NOTE, AXIS, GRID, GREY = _CHARTS["light"].values()
SEQUENTIAL, DIVERGING, AREAS = _CHARTS["sequential"], _CHARTS["diverging"], _CHARTS["areas"]
CELL_INK, BAR, TRAFFIC, VERSIONS = _CHARTS["cell-ink"], _CHARTS["bar"], _CHARTS["traffic"], _CHARTS["versions"]

# Algorithms of one family share a hue, and an algorithm looks the same in every figure; dashes help in black and white.
DASHES = ((1, 0), (6, 3), (2, 2), (9, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3))
ALGORITHMS = {name: (colour, DASHES[dash]) for name, (colour, dash) in _CHARTS["algorithms"].items()}
STRONG = ("lcb", "lcb-mean", "lcb-gt", "club", "linucb-population", "linucb-individual", "random")  # thick lines
OTHER_COLOURS = _CHARTS["other-algorithms"]


def load_altair() -> Any:
    try:
        import altair as alt
    except ImportError:
        raise MissingExtra("altair", "plots") from None
    return alt


def inline_data(**columns: Any) -> Any:
    """Return columns of equal length as inline rows of Vega-Lite."""
    lists = [
        [escape_unprintable(value) if isinstance(value, str) else value for value in np.asarray(column).tolist()]
        for column in columns.values()
    ]
    return load_altair().InlineData([dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)])


def apply_theme(chart: Any, title: str | None, note: str = "", **size: Any) -> Any:
    """Return the chart with the theme: white, a light grid, no frame, the title at the left."""
    axis: dict[str, Any] = {"labelFontSize": 12, "labelLimit": 0, "labelPadding": 6, "labelFlush": False}
    axis |= {"ticks": False, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10}
    axis |= {"labelColor": INK, "titleColor": INK, "domainColor": AXIS, "gridColor": GRID}
    legend = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    heading: dict[str, Any] = {"anchor": "start", "fontSize": 15, "color": INK, "offset": 14, "limit": 0}
    heading |= {"subtitleFontSize": 12, "subtitleColor": NOTE, "subtitlePadding": 6}
    if title:
        size["title"] = {"text": title, "subtitle": note} if note else title
    elif note:
        size["title"] = {"text": note, "fontSize": 12, "fontWeight": "normal", "color": NOTE}
    look = {"axis": axis, "legend": legend, "title": heading, "view": {"stroke": None}, "padding": 12}
    return chart.properties(**size).configure(background=SURFACE, font="Helvetica, Arial, sans-serif", **look)


def line_styles(names: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Return a colour per name, which depends on the name alone, and a dash that is unique among lines of that colour.

    `lcb-em` has the colour of `lcb`; the colour of an unknown family follows from the letters of its name.
    """
    styles: list[tuple[str, tuple[int, ...]]] = []
    for name in map(normalize_name, names):
        parts, number = name.split("-"), zlib.crc32(name.encode())
        families = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
        stranger = OTHER_COLOURS[number % len(OTHER_COLOURS)], DASHES[number % len(DASHES)]
        colour, dash = next((ALGORITHMS[f] for f in families if f in ALGORITHMS), stranger)
        free = [d for d in (dash, *DASHES) if (colour, d) not in styles]
        styles.append((colour, free[0] if free else dash))
    return [colour for colour, _ in styles], [list(dash) for _, dash in styles]


def normalize_name(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
