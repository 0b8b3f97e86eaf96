"""Lines with bands of ± 2 standard errors, each named at its end.

With more than eight lines, those of the paper's figures are thick and the others thin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.arrays import Floats
from lcb.charts.curve import Curve
from lcb.charts.style.axes import axis_and_scale, axis_ends
from lcb.charts.style.formats import escape_unprintable, format_number
from lcb.charts.style.labels import LINE, check_names, end_labels, spread_labels
from lcb.charts.style.theme import STRONG, apply_theme, inline_data, line_styles, load_altair, normalize_name

if TYPE_CHECKING:
    import altair as alt

_REGRET = "averaged per-user regret"
_MANY = 8  # lines; with more, those that are not in the paper are thin


def regret_by_users(curves: Sequence[Curve], title: str | None = None) -> alt.LayerChart:
    """Draw averaged per-user regret against the number of users (Figure 2a of the paper)."""
    return _draw_lines(curves, "number of users", _REGRET, title, points=False)


def regret_by_steps(curves: Sequence[Curve], title: str | None = None) -> alt.LayerChart:
    """Draw averaged per-user regret against the interactions per user, T_u (Figure 2b of the paper)."""
    return _draw_lines(curves, "interactions per user", _REGRET, title, points=True)


def relative_ctr(curves: Sequence[Curve], x_title: str, title: str | None = None) -> alt.LayerChart:
    """Draw CTR divided by the CTR in the log (Figures 3a to 3c of the paper); the axis need not start at 0."""
    return _draw_lines(curves, x_title, "relative CTR", title, points=True, from_zero=False)


def _draw_lines(
    curves: Sequence[Curve], x_title: str, y_title: str, title: str | None, points: bool, from_zero: bool = True
) -> Any:
    """Draw a line, band and label per curve; with `from_zero`, on a log axis if means differ by more than 5 times."""
    alt = load_altair()
    names = [curve.algorithm for curve in curves]
    check_names(names, "curves")
    series = ([curve.at, curve.mean, curve.se] for curve in curves)
    at, mean, se = np.concatenate([np.asarray(column, dtype=np.float64) for column in series], axis=1)
    log = bool(from_zero and mean.min() > 0 and mean.max() > 5 * mean.min())
    width, height, right = 460, max(320, LINE * len(curves)), float(at.max()) or 1.0
    banded, half = ~np.isnan(se), 2 * np.nan_to_num(se)  # a single run has no standard error
    low, high = mean - half, mean + half
    reached = np.concatenate([mean if log else low, high])
    ends = axis_ends(reached, log) if from_zero else _pad_range(reached)
    low = np.maximum(low, ends[0])  # a log axis has no room for a band that reaches 0
    owner = np.repeat(names, [len(curve.at) for curve in curves])
    colours, dashes = line_styles(names)
    many = len(names) > _MANY
    weak = [escape_unprintable(name) for name in names if normalize_name(name) not in STRONG]
    if not many or len(weak) == len(names):
        weak = []
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=colours)
    dash = alt.StrokeDash("name:N", legend=None).scale(domain=names, range=dashes)
    x = alt.X("at:Q", title=x_title).scale(domain=[0, right], nice=False)
    y = {"title": y_title, **axis_and_scale(ends, log)}
    band = {"low": np.where(banded, low, None), "high": np.where(banded, high, None)}  # null: nothing is drawn
    base = alt.Chart(inline_data(name=owner, at=at, mean=mean, **band))
    base = base.encode(x=x.axis(grid=False, tickCount=6, tickMinStep=1), color=colour)
    is_weak = alt.FieldOneOfPredicate(field="name", oneOf=weak)
    parts = ((base.transform_filter(is_weak), 1.2), (base.transform_filter(~is_weak), 2.4)) if weak else ((base, 2),)
    layers = [part.mark_line(strokeWidth=w).encode(y=alt.Y("mean:Q", **y), strokeDash=dash) for part, w in parts]
    if banded.any():
        area = base.mark_area(opacity=0.08 if many else 0.16)
        layers.insert(0, area.encode(y=alt.Y("low:Q", **y), y2="high:Q"))
    if points or any(len(curve.at) == 1 for curve in curves):  # a single point draws no line
        point = base.mark_point(filled=True, size=16 if many else 36, opacity=1)
        layers.append(point.encode(y=alt.Y("mean:Q", **y), tooltip=["name:N", "at:Q", "mean:Q"]))
    last = [max(zip(curve.at, curve.mean, strict=True)) for curve in curves]
    values = np.array([value for _, value in last], dtype=np.float64)
    texts = [f"{name} · {format_number(value, value)}" for name, value in zip(names, values, strict=True)]
    places = spread_labels(values, ends, log, height)
    labels: dict[str, Any] = {"name": names, "text": texts, "value": values, "place": places}
    layers += end_labels(right / width, colour, [float(end) for end, _ in last], weak=weak, **labels)
    note = ", ".join(["log scale"] * log + ["bands of ± 2 standard errors"] * bool(half.any()))
    return apply_theme(alt.layer(*layers), title, note, width=width, height=height)


def _pad_range(values: Floats) -> tuple[float, float]:
    """Return the range of the values, widened by 5 % at each end."""
    low, high = float(values.min()), float(values.max())
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room
