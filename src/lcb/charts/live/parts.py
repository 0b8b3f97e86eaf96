"""Parts of the live charts.

All rows are in one data source named `table`, from which Vega computes scales, labels and bands; to update a chart, a
page replaces the rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lcb.charts.style.formats import escape_unprintable
from lcb.charts.style.labels import LINE
from lcb.charts.style.theme import INK, VERSIONS, load_altair
from lcb.errors import InputError

SOURCE = "table"
WIDTH, HEIGHT = 460, 220
SERIES = 6  # only the newest versions are drawn; more lines could not be told apart

Rows = Sequence[Mapping[str, Any]]


def table(rows: Rows, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> Any:
    """Return these fields of the rows as the data source `table`; without rows, only the axes are drawn.

    >>> table([{"model": 3, "users": 7, "more": None}], numbers=["model", "users"]).to_dict()
    {'values': [{'model': 3, 'users': 7}], 'name': 'table'}
    """
    values = []
    for row in rows:
        missing = [field for field in (*texts, *numbers) if field not in row]
        if missing:
            came = ", ".join(map(str, row)) or "nothing"
            raise InputError(f"a row has {came}, but no {missing[0]}; give {missing[0]} in every row")
        text = {name: escape_unprintable(row[name]) if isinstance(row[name], str) else row[name] for name in texts}
        values.append(text | {field: _check_number(field, row[field]) for field in numbers})
    return load_altair().InlineData(values=values, name=SOURCE)


def time_axis() -> Any:
    """Return an x axis with the reader's local time: the date at midnight, and seconds if ticks are that close."""
    alt = load_altair()
    form = "seconds(datum.value) ? '%H:%M:%S' : hours(datum.value) || minutes(datum.value) ? '%H:%M' : '%d %b'"
    label = f"timeFormat(datum.value, {form})"
    axis = alt.Axis(grid=False, labelExpr=label, labelOverlap=True, tickCount={"expr": "max(2, width / 110)"})
    return alt.X("time:T", title=None, axis=axis).scale(nice=False)


def percent_axis() -> Any:
    return load_altair().Axis(tickCount=4, labelExpr=percent_text("datum.value", ".3~r"))


def percent_text(share: str, form: str = ".1f") -> str:
    return f"format(100 * {share}, '{form}') + ' %'"


def time_chart() -> Any:
    """Return a chart that computes `time` from the field `t`, seconds since 1970."""
    return load_altair().Chart().transform_calculate(time="toDate(1000 * datum.t)")


def keep_newest(chart: Any, *within: str) -> Any:
    """Keep the rows of the six newest model versions, of each group by the fields `within`; `age` 1 is the newest."""
    alt = load_altair()
    age = alt.WindowFieldDef(**{"op": "dense_rank", "as": "age"})
    groups = {"groupby": list(within)} if within else {}
    chart = chart.transform_window([age], sort=[alt.SortField("model", order="descending")], **groups)
    return chart.transform_filter(f"datum.age <= {SERIES}")


def keep_last(chart: Any, field: str, *each: str) -> Any:
    """Keep the row with the largest `field` of each group by the fields `each`."""
    alt = load_altair()
    back = alt.WindowFieldDef(**{"op": "row_number", "as": "back"})
    by = [alt.SortField(field, order="descending")]
    return chart.transform_window([back], sort=by, groupby=list(each)).transform_filter("datum.back == 1")


def add_version(chart: Any) -> Any:
    """Add the `name` of the version and the `slot` of its colour to every row."""
    return chart.transform_calculate(name="'v' + datum.model", slot=f"datum.model % {len(VERSIONS)}")


def version_colour() -> Any:
    """Return a colour that depends on the version alone, not on which other versions are drawn."""
    alt = load_altair()
    return alt.Color("slot:O", legend=None).scale(domain=list(range(len(VERSIONS))), range=list(VERSIONS))


def ranked_labels(ends: Any, x: str, y: str, colour: Any, below: int) -> list[Any]:
    """Write the `text` of each row of `ends` right of the plot, the largest `y` on top, with a line to the row's point.

    A narrow page sets the parameter `beside` to false: the texts are then a list `below` pixels under the plot, each
    with its colour in front.
    """
    alt = load_altair()
    rank = alt.WindowFieldDef(**{"op": "row_number", "as": "rank"})
    ranked = ends.transform_window([rank], sort=[alt.SortField(y, order="descending")])
    places = {
        "x": _beside_or_below(f"scale('x', datum.{x})", "0"),
        "y": _beside_or_below(f"scale('y', datum.{y})", f"height + {below} + {LINE} * datum.rank"),
        "x2": _beside_or_below("width + 16", "14"),
        "y2": _beside_or_below(f"{LINE} * datum.rank - {LINE // 2}", f"height + {below} + {LINE} * datum.rank"),
    }
    width = {"expr": "beside ? 1 : 3"}
    rule = ranked.mark_rule(strokeWidth=width, opacity={"expr": "beside ? 0.6 : 1"}).encode(**places, color=colour)
    text = ranked.mark_text(align="left", baseline="middle", fontSize=12, color=INK)
    return [rule, text.encode(x=_beside_or_below("width + 21", "21"), y=places["y2"], text="text:N")]


def layer_charts(layers: Sequence[Any], data: Any) -> Any:
    """Return the layers as one chart with this data; labels are beside the plot unless the page changes that."""
    alt = load_altair()
    return alt.layer(*layers, data=data).add_params(alt.param(name="beside", value=True))


def _beside_or_below(beside: str, below: str) -> Any:
    return load_altair().value({"expr": f"beside ? {beside} : {below}"})


def _check_number(field: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise InputError(f"{field} is {value!r} in a row; give a finite number, or leave the row out")
    return value.item() if isinstance(value, np.generic) else value
