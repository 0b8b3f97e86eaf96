"""Traces of a Gibbs sampler: the number of classes and the log joint by sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lcb.charts.style.theme import AREAS, GREY, apply_theme, inline_data, load_altair
from lcb.errors import InputError

if TYPE_CHECKING:
    import altair as alt

    from lcb.learners.gibbs.draws import GibbsFit

_MOST_POINTS = 400  # per line


def traces(fit: GibbsFit, title: str | None = None) -> alt.VConcatChart:
    """Draw two panels, one line per chain: the number of classes above, the log joint below; burn-in is grey.

    Chains that agree after burn-in overlap in both panels.
    """
    alt = load_altair()
    if fit.n_classes.size == 0:
        raise InputError("the fit has no draws to show; give the fit of a Gibbs sampler")
    panels = [
        _draw_panel(alt, fit.n_classes, fit.n_burn, "number of classes", last=False),
        _draw_panel(alt, fit.log_joint, fit.n_burn, "log joint", last=True),
    ]
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(color="shared")
    return apply_theme(chart, title)


def _draw_panel(alt: Any, values: NDArray[Any], n_burn: int, y_title: str, last: bool) -> Any:
    n_chains, n_sweeps = values.shape
    shown = np.unique(np.linspace(0, n_sweeps - 1, min(n_sweeps, _MOST_POINTS)).astype(int))
    names = [f"chain {chain + 1}" for chain in range(n_chains)]
    colours = [AREAS[chain % len(AREAS)] for chain in range(n_chains)]
    data = inline_data(
        chain=np.repeat(names, len(shown)), sweep=np.tile(shown + 1, n_chains), value=values[:, shown].ravel()
    )
    axis = alt.Axis(grid=False, tickCount=6, labels=last)
    x = alt.X("sweep:Q", title="sweep" if last else None, axis=axis).scale(domain=[1, max(n_sweeps, 2)], nice=False)
    y = alt.Y("value:Q", title=y_title).scale(zero=False, nice=True).axis(tickCount=4, tickMinStep=1)
    colour = alt.Color("chain:N", title=None).scale(domain=names, range=colours)
    layers = []
    if n_burn:
        burnt = alt.Chart(inline_data(sweep=[1], end=[n_burn + 1])).mark_rect(color=GREY, opacity=0.5)
        layers.append(burnt.encode(x=x, x2="end:Q"))
    layers.append(alt.Chart(data).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour))
    return alt.layer(*layers).properties(width=460, height=150)
