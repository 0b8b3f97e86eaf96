"""A panel per study: a bar for the mean of each recommender, with whiskers of one standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.charts.style.axes import axis_and_scale
from lcb.charts.style.formats import format_number
from lcb.charts.style.labels import check_names
from lcb.charts.style.theme import INK, SURFACE, apply_theme, inline_data, line_styles, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt

_WIDTH, _STEP = 460, 28
_ROOM = 1.3  # the axis is this much longer than the longest whisker, for the numbers at its end


@dataclass(frozen=True)
class StudyPanel:
    """One study: rows of (recommender, mean, standard deviation over its visitors or None)."""

    title: str
    rows: Sequence[tuple[str, float, float | None]]

    def __post_init__(self) -> None:
        check_names([name for name, _, _ in self.rows], "recommenders")
        for name, mean, deviation in self.rows:
            if not (np.isfinite([mean, deviation or 0.0]).all() and mean >= 0 and (deviation or 0.0) >= 0):
                raise InputError(f"{name} has mean {mean}, deviation {deviation}; both must be finite and at least 0")


def studies(panels: Sequence[StudyPanel], x_title: str, title: str | None = None) -> alt.VConcatChart:
    """Draw all studies on one x axis that starts at 0; a whisker that would go below 0 stops there, without a tick."""
    alt = load_altair()
    if not panels:
        raise InputError("there are no studies to draw; give at least one")
    longest = max(mean + (deviation or 0.0) for panel in panels for _, mean, deviation in panel.rows)
    ends = 0.0, _ROOM * longest or 1.0
    names = list(dict.fromkeys(name for panel in panels for name, _, _ in panel.rows))
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=line_styles(names)[0])
    drawn = [_draw_panel(alt, panel, x_title if panel is panels[-1] else None, ends, colour) for panel in panels]
    return apply_theme(alt.vconcat(*drawn, spacing=14), title, "whiskers: ± one standard deviation over visitors")


def _draw_panel(alt: Any, panel: StudyPanel, x_title: str | None, ends: tuple[float, float], colour: Any) -> Any:
    names = [name for name, _, _ in panel.rows]
    mean = np.array([mean for _, mean, _ in panel.rows], dtype=np.float64)
    spread = np.array([deviation or 0.0 for _, _, deviation in panel.rows], dtype=np.float64)
    whiskers = {"low": np.maximum(mean - spread, 0.0), "high": mean + spread, "cut": (mean < spread).tolist()}
    texts = [_format_mean(mean, deviation) for _, mean, deviation in panel.rows]
    data = inline_data(name=names, mean=mean, base=[0.0] * len(names), text=texts, **whiskers)
    x = {**axis_and_scale(ends, log=False), "title": x_title}
    y = alt.Y("name:N", sort=None, title=None)
    base = alt.Chart(data).encode(y=y)
    layers = [base.mark_bar(height=17, opacity=0.85).encode(x=alt.X("mean:Q", **x), x2="base:Q", color=colour)]
    spread_out = base.transform_filter("datum.high > datum.mean")
    for color, width, height in ((SURFACE, 4, 12), (INK, 1.5, 9)):  # the light one keeps whiskers visible on a dark bar
        tick = {"color": color, "thickness": width, "height": height}
        layers += [
            spread_out.mark_rule(color=color, strokeWidth=width).encode(x=alt.X("low:Q", **x), x2="high:Q"),
            spread_out.mark_tick(**tick).encode(x=alt.X("high:Q", **x)),
            spread_out.transform_filter("!datum.cut").mark_tick(**tick).encode(x=alt.X("low:Q", **x)),
        ]
    for halo in ({"stroke": SURFACE, "strokeWidth": 4}, {}):  # the halo keeps numbers legible on a grid line
        text = base.mark_text(align="left", dx=8, fontSize=12, **halo)
        layers.append(text.encode(x=alt.X("high:Q", **x), text="text:N"))
    title = {"text": panel.title, "fontSize": 12, "fontWeight": "normal", "offset": 6}
    return alt.layer(*layers).properties(width=_WIDTH, height=_STEP * len(names), title=title)


def _format_mean(mean: float, deviation: float | None) -> str:
    """
    >>> _format_mean(0.38, 0.076), _format_mean(0.0, None)
    ('0.380 ± 0.076', '0.000')
    """
    size = 0.01 if mean < 1 else mean
    return format_number(mean, size) + ("" if deviation is None else f" ± {format_number(deviation, size)}")
