"""Growth with a size in log-log panels: measured points with intervals, and the growth of a bound as a dashed line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.arrays import Floats
from lcb.charts.curve import Curve
from lcb.charts.style.axes import axis_and_scale, axis_ends, ladder
from lcb.charts.style.labels import check_names, end_labels, spread_labels
from lcb.charts.style.theme import apply_theme, inline_data, line_styles, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt

_WIDTH, _HEIGHT = 440, 240
_MOST_TICKS = 6


@dataclass(frozen=True, eq=False)
class GrowthPanel:
    """One panel: curves, for each a theoretical growth (up to a factor; may be empty) and the text of its label."""

    title: str
    x_title: str
    curves: Sequence[Curve]
    theory: Sequence[Sequence[float]]
    texts: Sequence[str]

    @property
    def scaled_theory(self) -> list[Floats]:
        """The theoretical values, scaled to start at the first measured points."""
        pairs = zip(self.curves, self.theory, strict=False)
        return [np.asarray(growth, np.float64) * curve.mean[0] / growth[0] for curve, growth in pairs]

    def __post_init__(self) -> None:
        check_names([curve.algorithm for curve in self.curves], "curves")
        n_curves, n_theory, n_texts = len(self.curves), len(self.theory), len(self.texts)
        if n_theory not in (0, n_curves) or n_texts != n_curves:
            raise InputError(f"{n_curves} curves, {n_theory} of a theory, {n_texts} texts; give as many of each")
        for curve, growth in zip(self.curves, self.theory or [()] * n_curves, strict=True):
            if self.theory and len(growth) != len(curve.at):
                raise InputError(f"{len(growth)} values of a theory for {len(curve.at)} places of {curve.algorithm}")
            if not (np.array([*curve.at, *curve.mean, *growth]) > 0).all():
                raise InputError(f"a value of {curve.algorithm} is not above 0, so a log axis cannot show it; drop it")


def growth(panels: Sequence[GrowthPanel], y_title: str, title: str | None = None) -> alt.VConcatChart:
    """Draw panels below each other, each with its own axes; theoretical lines start at the first measured point."""
    alt = load_altair()
    if not panels:
        raise InputError("there are no panels to draw; give at least one")
    drawn = [_draw_panel(alt, panel, y_title) for panel in panels]
    bars = any(np.nan_to_num(curve.se).any() for panel in panels for curve in panel.curves)
    dashed = ["dashed: growth of the bound, from the first point"] * any(panel.theory for panel in panels)
    note = "; ".join([*dashed, *["bars of ± 2 standard errors"] * bars])
    return apply_theme(alt.vconcat(*drawn, spacing=24), title, note)


def _draw_panel(alt: Any, panel: GrowthPanel, y_title: str) -> Any:
    names = [curve.algorithm for curve in panel.curves]
    series = ([curve.at, curve.mean, curve.se] for curve in panel.curves)
    at, mean, se = np.concatenate([np.asarray(column, dtype=np.float64) for column in series], axis=1)
    scaled = panel.scaled_theory
    half = 2 * np.nan_to_num(se)
    ends = axis_ends(np.concatenate([mean, mean + half, *scaled]), log=True)
    low = np.maximum(mean - half, ends[0])  # a log axis has no room for a bar that reaches 0
    owner = np.repeat(names, [len(curve.at) for curve in panel.curves])
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=line_styles(names)[0])
    x = alt.X("at:Q", title=panel.x_title, **_build_size_axis(alt, at))
    y = {"title": y_title, **axis_and_scale(ends, log=True)}
    base = alt.Chart(inline_data(name=owner, at=at, mean=mean, low=low, high=mean + half)).encode(x=x, color=colour)
    layers = []
    if scaled:
        said = alt.Chart(inline_data(name=owner, at=at, said=np.concatenate(scaled))).encode(x=x, color=colour)
        layers.append(said.mark_line(strokeWidth=1.5, strokeDash=[5, 4]).encode(y=alt.Y("said:Q", **y)))
    layers += [
        base.mark_line(strokeWidth=2).encode(y=alt.Y("mean:Q", **y)),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", **y), y2="high:Q"),
        base.mark_point(filled=True, size=40, opacity=1).encode(
            y=alt.Y("mean:Q", **y), tooltip=["name:N", "at:Q", "mean:Q"]
        ),
    ]
    last = np.array([curve.mean[-1] for curve in panel.curves], dtype=np.float64)
    texts = [f"{name} · {text}" for name, text in zip(names, panel.texts, strict=True)]
    places = spread_labels(last, ends, True, _HEIGHT)
    labels: dict[str, Any] = {"name": names, "text": texts, "value": last, "place": places}
    pixel = float(np.log(at.max() / at.min())) / _WIDTH
    layers += end_labels(pixel, colour, [float(curve.at[-1]) for curve in panel.curves], log=True, **labels)
    title = {"text": panel.title, "fontSize": 12, "fontWeight": "normal"}
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=title)


def _build_size_axis(alt: Any, at: Any) -> dict[str, Any]:
    """Return a log axis with a tick at every size, or at powers of ten if there are more than `_MOST_TICKS`."""
    sizes = np.unique(at).tolist()
    ticks = sizes if len(sizes) <= _MOST_TICKS else [n for n in ladder(sizes[0], sizes[-1]) if f"{n:e}".startswith("1")]
    scale = alt.Scale(type="log", domain=[sizes[0], sizes[-1]], nice=False)
    return {"scale": scale, "axis": alt.Axis(values=ticks, format=",~r", grid=False)}
