"""Traffic of a service: decisions and rewards per second, and clicks per decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcb.charts.live import parts
from lcb.charts.live.parts import Rows
from lcb.charts.style.theme import ALGORITHMS, DASHES, OTHER_COLOURS, TRAFFIC, apply_theme, load_altair

if TYPE_CHECKING:
    import altair as alt

_SIZE: dict[str, Any] = {"width": parts.WIDTH, "height": parts.HEIGHT}


def rates(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw decisions and rewards per second over time, from rows {t, decisions, rewards}; t in seconds since 1970."""
    alt = load_altair()
    long = parts.time_chart().transform_fold(["decisions", "rewards"], as_=["name", "rate"])
    colour = alt.Color("name:N", legend=None).scale(domain=["decisions", "rewards"], range=TRAFFIC)
    x, y = parts.time_axis(), alt.Y("rate:Q", title="per second").scale(domainMin=0).axis(tickCount=4)
    line = long.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    ends = parts.keep_last(long, "t", "name").transform_calculate(
        text="datum.name + ' · ' + format(datum.rate, ',.1f') + '/s'"
    )
    layers = [line, *parts.ranked_labels(ends, "time", "rate", colour, 22)]
    return apply_theme(
        parts.layer_charts(layers, parts.table(rows, numbers=["t", "decisions", "rewards"])), title, **_SIZE
    )


def ctr_over_time(rows: Rows, title: str | None = None) -> alt.LayerChart:
    """Draw clicks per decision over time: a line per recommender and model version, with its 95 % Wilson band.

    Rows are {t, recommender, model, ctr, decisions}, one per interval of time.  A recommender has the same colour in
    every figure; its newest version is solid, the five before are dashed.  The band is too wide for rewards between 0
    and 1.

        middle +- half = (ctr + z^2 / 2 n +- z sqrt(ctr (1 - ctr) / n + z^2 / 4 n^2)) / (1 + z^2 / n),     z = 1.96
    """
    alt = load_altair()
    z2, n = 1.96**2, "max(1, datum.decisions)"
    root = f"{z2} * max(0, datum.ctr * (1 - datum.ctr)) / {n} + {z2**2 / 4} / ({n} * {n})"
    base = parts.keep_newest(parts.time_chart(), "recommender").transform_calculate(
        middle=f"(datum.ctr + {z2 / 2} / {n}) / (1 + {z2} / {n})",
        half=f"sqrt({root}) / (1 + {z2} / {n})",
        name="datum.recommender + ' v' + datum.model",
    )
    base = base.transform_calculate(family=_build_family_expression("datum.recommender"))
    base = base.transform_calculate(low="max(0, datum.middle - datum.half)", high="min(1, datum.middle + datum.half)")
    families = {name: colour for name, (colour, _) in ALGORITHMS.items()}
    families |= {f"stranger {number}": colour for number, colour in enumerate(OTHER_COLOURS)}
    colour = alt.Color("family:N", legend=None).scale(domain=list(families), range=list(families.values()))
    dash = alt.StrokeDash("age:O", legend=None).scale(
        domain=list(range(1, parts.SERIES + 1)), range=list(map(list, DASHES))
    )
    x, y = parts.time_axis(), alt.Y("ctr:Q", title="CTR", axis=parts.percent_axis()).scale(domainMin=0)
    low = alt.Y("low:Q", axis=parts.percent_axis())
    band = base.mark_area(opacity=0.14).encode(x=x, y=low, y2="high:Q", color=colour, detail="name:N")
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash, detail="name:N")
    hints = ["name:N", alt.Tooltip("time:T", format="%H:%M"), alt.Tooltip("ctr:Q", format=".1%"), "decisions:Q"]
    point = base.mark_point(filled=True, size=9, opacity=1).encode(x=x, y=y, color=colour, tooltip=hints)
    ends = parts.keep_last(base, "t", "name").transform_calculate(
        text=f"datum.name + ' · ' + {parts.percent_text('datum.ctr')}"
    )
    layers = [band, line, point, *parts.ranked_labels(ends, "time", "ctr", colour, 22)]
    data = parts.table(rows, texts=["recommender"], numbers=["t", "model", "ctr", "decisions"])
    return apply_theme(parts.layer_charts(layers, data), title, "bands of 95 %", **_SIZE)


def _build_family_expression(name: str) -> str:
    """Return a Vega expression for a recommender's colour: by its name, its first word, or a hash of its letters."""
    known, first = list(ALGORITHMS), f"split({name}, '-')[0]"
    letters = f"parseInt('1' + slice(replace(lower({name}), regexp('[^0-9a-z]', 'g'), ''), -6), 36)"
    stranger = f"'stranger ' + ({letters} % {len(OTHER_COLOURS)})"
    return f"indexof({known}, {name}) >= 0 ? {name} : indexof({known}, {first}) >= 0 ? {first} : {stranger}"
