"""The one look of all figures: palette, the colour and dash of each algorithm, the dress.

Altair is loaded by the first chart drawn, not by an import of this file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lcb.charts.style.formats import printable
from lcb.errors import MissingExtra

INK, GREY = "#222222", "#dddddd"
SEQUENTIAL = ("#f7fbff", "#9ecae1", "#3182bd", "#08306b")
DIVERGING = ("#7f3b08", "#d9740e", "#fdc892", "#f7f7f7", "#9ecae1", "#3182bd", "#08306b")
AREAS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#aaaa00", "#bbcc33")

# One hue per family, so that an algorithm looks the same in every figure; dashes for print without colour.
DASHES = ((1, 0), (6, 3), (2, 2), (9, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3))
ALGORITHMS = {
    "lcb": ("#0b5394", DASHES[0]),
    "lcb-mean": ("#56b4e9", DASHES[1]),
    "lcb-gt": ("#00694e", DASHES[3]),
    "lcb-gt-mean": ("#2bb58a", DASHES[2]),
    "lcb-spectral": ("#17344f", DASHES[4]),
    "lcb-exp4p": ("#6a3fb5", DASHES[0]),
    "lcb-exp4": ("#8f6fd1", DASHES[4]),
    "lcb-exp3": ("#b39ddb", DASHES[1]),
    "lcb-epoch": ("#7a5c2e", DASHES[0]),
    "lcb-iltcb": ("#a98b4f", DASHES[4]),
    "exp4p": ("#3f007d", DASHES[3]),
    "exp4p-individual": ("#9e3fbf", DASHES[5]),
    "mts": ("#0f7b83", DASHES[4]),
    "mucb": ("#4fb3b9", DASHES[5]),
    "linucb": ("#d55e00", DASHES[0]),
    "linucb-population": ("#d55e00", DASHES[4]),
    "linucb-individual": ("#e69f00", DASHES[5]),
    "lints": ("#b01e28", DASHES[1]),
    "lints-individual": ("#e2747b", DASHES[5]),
    "cofineucb": ("#7d8000", DASHES[3]),
    "club": ("#a03c78", DASHES[0]),
    "club-one-hop": ("#d673ae", DASHES[4]),
    "sclub": ("#5e1f45", DASHES[1]),
    "random": ("#777777", DASHES[6]),
}
STRONG = ("lcb", "lcb-mean", "lcb-gt", "club", "linucb-population", "linucb-individual", "random")  # among many
STRANGERS = ("#882255", "#44aa99", "#999933", "#aa4499", "#661100", "#332288")


def load_altair() -> Any:
    try:
        import altair as alt
    except ImportError:
        raise MissingExtra("altair", "plots") from None
    return alt


def inline(**columns: Any) -> Any:
    """Columns of equal length as the rows Vega-Lite wants."""
    lists = [
        [printable(value) if isinstance(value, str) else value for value in np.asarray(column).tolist()]
        for column in columns.values()
    ]
    return load_altair().InlineData([dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)])


def dressed(chart: Any, title: str | None, note: str = "", **size: Any) -> Any:
    """The one look of all figures: white, a quiet grid, no frame, the title at the left."""
    axis: dict[str, Any] = {"labelFontSize": 12, "labelLimit": 0, "labelPadding": 6, "labelFlush": False}
    axis |= {"ticks": False, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10}
    axis |= {"labelColor": INK, "titleColor": INK, "domainColor": "#888888", "gridColor": "#e6e6e6"}
    legend = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    heading: dict[str, Any] = {"anchor": "start", "fontSize": 15, "color": INK, "offset": 14, "limit": 0}
    heading |= {"subtitleFontSize": 12, "subtitleColor": "#555555", "subtitlePadding": 6}
    if title:
        size["title"] = {"text": title, "subtitle": note} if note else title
    elif note:
        size["title"] = {"text": note, "fontSize": 12, "fontWeight": "normal", "color": "#555555"}
    look = {"axis": axis, "legend": legend, "title": heading, "view": {"stroke": None}, "padding": 12}
    return chart.properties(**size).configure(background="white", font="Helvetica, Arial, sans-serif", **look)


def line_styles(names: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """A colour that depends on the name alone, and a dash that no other line of that colour has.

    `lcb-em` takes the colour of `lcb`; a name of no known family draws one by its letters.
    """
    styles: list[tuple[str, tuple[int, ...]]] = []
    for name in map(plain, names):
        parts, number = name.split("-"), zlib.crc32(name.encode())
        families = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
        stranger = STRANGERS[number % len(STRANGERS)], DASHES[number % len(DASHES)]
        colour, dash = next((ALGORITHMS[f] for f in families if f in ALGORITHMS), stranger)
        free = [d for d in (dash, *DASHES) if (colour, d) not in styles]
        styles.append((colour, free[0] if free else dash))
    return [colour for colour, _ in styles], [list(dash) for _, dash in styles]


def plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
