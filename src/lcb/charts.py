"""Every picture: a figure in a report and a live chart are the same function.

    heat_map(models)            the classes: a row each, a column per feature
    regret_by_users(curves)     regret per user as users come, with a band of +- 2 standard errors
    regret_by_steps(curves)     the same against the number of interactions per user
    bars(rows, x_title)         a comparison, the value printed at each bar
    posterior_path(posterior)   how sure one can be of a new user's class, reward by reward
    save(chart, "regret.png")   as .png, .svg, .html that works offline, or .json (Vega-Lite)

Altair and vl-convert come with the extra `plots` and are loaded when a chart is drawn, not before.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lcb.errors import InputError, MissingExtra, OutputError
from lcb.events import Floats
from lcb.models import LatentModels

if TYPE_CHECKING:
    import altair as alt

_INK, _GREY, _LINE = "#222222", "#dddddd", 16  # _LINE: pixels from one label to the next
_SEQUENTIAL = ("#f7fbff", "#9ecae1", "#3182bd", "#08306b")
_DIVERGING = ("#7f3b08", "#d9740e", "#fdc892", "#f7f7f7", "#9ecae1", "#3182bd", "#08306b")
_AREAS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#aaaa00", "#bbcc33")

# One hue per family, so that an algorithm looks the same in every figure; dashes for print without colour.
_DASHES = ((1, 0), (6, 3), (2, 2), (9, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3))
_ALGORITHMS = {
    "lcb": ("#0b5394", _DASHES[0]),
    "lcb-mean": ("#56b4e9", _DASHES[1]),
    "lcb-gt": ("#00694e", _DASHES[3]),
    "lcb-gt-mean": ("#2bb58a", _DASHES[2]),
    "linucb": ("#d55e00", _DASHES[0]),
    "linucb-population": ("#d55e00", _DASHES[4]),
    "linucb-individual": ("#e69f00", _DASHES[5]),
    "club": ("#a03c78", _DASHES[0]),
    "random": ("#777777", _DASHES[6]),
}
_STRANGERS = ("#882255", "#44aa99", "#999933", "#aa4499", "#661100", "#332288")


@dataclass(frozen=True, eq=False)
class Curve:
    """The regret of one algorithm: its mean and standard error `at` each number of users or steps.

    >>> Curve("lcb", at=[50, 100], mean=[4.1, 2.8], se=[0.1, 0.1]).algorithm
    'lcb'
    """

    algorithm: str
    at: Sequence[float]
    mean: Sequence[float]
    se: Sequence[float]

    def __post_init__(self) -> None:
        n, n_means, n_errors = len(self.at), len(self.mean), len(self.se)
        if n == 0 or n_means != n or n_errors != n:
            came = f"curve {self.algorithm} has {n} places, {n_means} means and {n_errors} standard errors"
            raise InputError(f"{came}; send as many of each, and at least one")
        if not np.isfinite([self.at, self.mean, self.se]).all() or min(self.se) < 0:
            raise InputError(
                f"curve {self.algorithm} has a value that is not finite, or a standard error below 0; "
                "drop such places, and for a single run send standard errors of 0"
            )


def heat_map(models: LatentModels, title: str | None = None) -> alt.LayerChart:
    """The classes as a heat map: a row per class with its share and noise, a column per feature.

    The colours diverge around 0 when signs are mixed; up to 25 features the weight is printed in its cell.
    """
    alt = _altair()
    largest = float(np.abs(models.beta).max()) or 1.0
    low, colours = (-largest, _DIVERGING) if models.beta.min() < 0 else (0.0, _SEQUENTIAL)
    printed = models.n_features <= 25
    step = 8 + max(36, 7 * len(_number(-largest, largest))) if printed else 15
    data = _data(
        name=np.repeat(_class_labels(models), models.n_features),
        feature=models.features * models.n_classes,
        weight=models.beta.ravel(),
        text=[_number(weight, largest) for weight in models.beta.flat],
        ink=_ink((models.beta.ravel() - low) / (largest - low), colours),
    )
    angle = 0 if 7 * max(map(len, models.features)) <= step else -45 if printed else -90
    x, y = (alt.X("feature:N", sort=None, title=None), alt.Y("name:N", sort=None, title=None))
    x = x.axis(labelAngle=angle, labelLimit=240, labelOverlap=False, domain=False)
    base = alt.Chart(data).encode(x=x, y=y.axis(domain=False))
    length = float(np.clip(28 * models.n_classes - 18, 50, 200))
    colour = alt.Color("weight:Q").scale(domain=[low, largest], range=colours)
    colour = colour.legend(gradientLength=length, values=sorted({low, 0.0, largest}), format=_form(largest))
    hints = ["name:N", "feature:N", "weight:Q"]
    layers = [base.mark_rect(stroke="white").encode(color=colour, tooltip=hints)]
    if printed:
        layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=alt.Color("ink:N", scale=None)))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return _dressed(chart, title, width=alt.Step(step), height=alt.Step(28))


def regret_by_users(curves: Sequence[Curve], title: str | None = None) -> alt.LayerChart:
    """Averaged per-user regret against the number of users (Figure 2a of the paper)."""
    return _regret(curves, "number of users", title, points=False)


def regret_by_steps(curves: Sequence[Curve], title: str | None = None) -> alt.LayerChart:
    """Averaged per-user regret against the interactions per user, T_u (Figure 2b of the paper)."""
    return _regret(curves, "interactions per user", title, points=True)


def bars(
    rows: Sequence[tuple[str, float]],
    x_title: str,
    title: str | None = None,
    reference: float | None = None,
    log: bool = False,
) -> alt.LayerChart:
    """Horizontal bars in the order given, each with its value; a dashed rule at `reference`."""
    alt = _altair()
    names, values = [name for name, _ in rows], np.array([value for _, value in rows], dtype=np.float64)
    _check_names(names, "bars")
    shown = values if reference is None else np.append(values, reference)
    wrong = ~np.isfinite(shown) | (log & (shown <= 0))
    if wrong.any():
        wanted = "above 0 on a log axis; drop it, or draw with log=False" if log else "finite; drop it"
        raise InputError(f"a bar or the reference is {shown[wrong][0]}; it must be {wanted}")
    ends = _ends(shown, log)
    if ends[0] < 0:  # room for the value left of a negative bar
        ends = ends[0] - 0.14 * (ends[1] - ends[0]), ends[1]
    texts = [_number(value, value) for value in values]
    data = _data(name=names, value=values, base=[ends[0] if log else 0.0] * len(rows), text=texts)
    colours = [_ALGORITHMS.get(_plain(name), ("#6b8cae",))[0] for name in names]
    base = alt.Chart(data).encode(
        x=alt.X("value:Q", title=x_title, **_axis(ends, log)), y=alt.Y("name:N", sort=None, title=None)
    )
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=colours)
    layers = [base.mark_bar(height=18).encode(x2="base:Q", color=colour)]
    if reference is not None:
        rule = alt.Chart(_data(value=[reference], text=[_number(reference, reference)])).encode(x="value:Q")
        layers.append(rule.mark_rule(color=_INK, strokeDash=[4, 3]))
        layers.append(rule.mark_text(dy=-9, fontSize=11).encode(y=alt.value(0), text="text:N"))
    for halo in ({"stroke": "white", "strokeWidth": 4}, {}):  # the value stays legible on a rule or grid line
        for side, align, dx in (("datum.value >= 0", "left", 5), ("datum.value < 0", "right", -5)):
            text = base.transform_filter(side).mark_text(align=align, dx=dx, fontSize=12, **halo)
            layers.append(text.encode(text="text:N"))
    return _dressed(alt.layer(*layers), title, width=420, height=alt.Step(28))


def posterior_path(
    posterior: ArrayLike, title: str | None = None, labels: Sequence[str] | None = None
) -> alt.LayerChart:
    """How the class probabilities (steps + 1, N) of one new user move: row t holds once t rewards are seen.

    The eight classes that ever were most probable have a band each; the others share a grey one.
    """
    alt = _altair()
    paths, names = _bands(np.asarray(posterior, dtype=np.float64), labels)
    width, height, steps = 460, max(260, _LINE * len(names)), len(paths)
    stride = int(_ladder(max(steps / 12, 1), 10 * steps)[0])  # ticks only where a row begins
    paths = np.vstack([paths, paths[-1:]])  # so that the last row, too, has a width
    tops = 1 - np.cumsum(paths, axis=1) + paths
    data = _data(
        name=names * len(paths),
        seen=np.repeat(np.arange(len(paths)), len(names)),
        probability=paths.ravel(),
        low=(tops - paths).clip(0).ravel(),
        high=tops.ravel(),
    )
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=[*_AREAS, _GREY][: len(names)])
    x = alt.X("seen:Q", title="rewards seen from this user").scale(domain=[0, steps], nice=False)
    y = alt.Y("low:Q", title="probability of each class").scale(domain=[0, 1])
    area = alt.Chart(data).mark_area(interpolate="step-after", stroke="white", strokeWidth=0.7)
    area = area.encode(
        x=x.axis(values=list(range(0, steps, stride)), format=",d", grid=False),
        y=y.axis(values=[0, 0.25, 0.5, 0.75, 1], labelExpr="100 * datum.value + ' %'"),
        y2="high:Q",
        color=colour,
        tooltip=["name:N", "seen:Q", alt.Tooltip("probability:Q", format=".3f")],
    )
    texts = [f"{name} · {_percent(p)}" for name, p in zip(names, paths[-1], strict=True)]
    middles = np.minimum.accumulate((tops - paths / 2)[-1])[::-1]  # from the bottom up, as labels are placed
    places = _apart(middles, (0.0, 1.0), False, height)
    columns = {"name": names[::-1], "text": texts[::-1], "value": middles, "place": places}
    texts_layer = _end_labels(steps / width, colour, [float(steps)] * len(names), **columns)
    return _dressed(alt.layer(area, *texts_layer), title, width=width, height=height)


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write the chart in the form its suffix names; a failure leaves what was there before."""
    path = Path(path)
    content = _content(chart, path)
    temporary = path.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        came = f"{path} cannot be written ({error.strerror or error})"
        raise OutputError(f"{came}; save to a file in a folder that exists and is yours to write") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _altair() -> Any:
    try:
        import altair as alt
    except ImportError:
        raise MissingExtra("altair", "plots") from None
    return alt


def _content(chart: Any, path: Path) -> bytes:
    form = path.suffix.lower().removeprefix(".")
    if form not in ("png", "svg", "html", "json"):
        raise InputError(f"{path} ends in {path.suffix or 'no suffix'}; name it .png, .svg, .html or .json")
    if form != "json":
        try:
            import vl_convert  # noqa: F401
        except ImportError:
            raise MissingExtra("vl-convert-python", "plots") from None
    sink = io.BytesIO() if form == "png" else io.StringIO()
    chart.save(sink, format=form, scale_factor=2 if form == "png" else 1, inline=form == "html")
    written = sink.getvalue()
    return written if isinstance(written, bytes) else written.encode()


def _dressed(chart: Any, title: str | None, note: str = "", **size: Any) -> Any:
    """The one look of all figures: white, a quiet grid, no frame, the title at the left."""
    axis: dict[str, Any] = {"labelFontSize": 12, "labelLimit": 0, "labelPadding": 6, "labelFlush": False}
    axis |= {"ticks": False, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10}
    axis |= {"labelColor": _INK, "titleColor": _INK, "domainColor": "#888888", "gridColor": "#e6e6e6"}
    legend = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
    heading: dict[str, Any] = {"anchor": "start", "fontSize": 15, "color": _INK, "offset": 14, "limit": 0}
    heading |= {"subtitleFontSize": 12, "subtitleColor": "#555555", "subtitlePadding": 6}
    if title:
        size["title"] = {"text": title, "subtitle": note} if note else title
    elif note:
        size["title"] = {"text": note, "fontSize": 12, "fontWeight": "normal", "color": "#555555"}
    look = {"axis": axis, "legend": legend, "title": heading, "view": {"stroke": None}, "padding": 12}
    return chart.properties(**size).configure(background="white", font="Helvetica, Arial, sans-serif", **look)


def _data(**columns: Any) -> Any:
    """Columns of equal length as the rows Vega-Lite wants."""
    lists = [np.asarray(column).tolist() for column in columns.values()]
    return _altair().InlineData([dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)])


def _regret(curves: Sequence[Curve], x_title: str, title: str | None, points: bool) -> Any:
    """A line, band and label per curve; a log axis when the largest mean is over 5 times the smallest."""
    alt = _altair()
    names = [curve.algorithm for curve in curves]
    _check_names(names, "curves")
    series = ([curve.at, curve.mean, curve.se] for curve in curves)
    at, mean, se = np.concatenate([np.asarray(column, dtype=np.float64) for column in series], axis=1)
    log = bool(mean.min() > 0 and mean.max() > 5 * mean.min())
    width, height, right = 460, max(320, _LINE * len(curves)), float(at.max()) or 1.0
    low, high = mean - 2 * se, mean + 2 * se
    ends = _ends(np.concatenate([mean if log else low, high]), log)
    low = np.maximum(low, ends[0])  # a log axis has no room for a band that reaches 0
    owner = np.repeat(names, [len(curve.at) for curve in curves])
    colours, dashes = _styles(names)
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=colours)
    dash = alt.StrokeDash("name:N", legend=None).scale(domain=names, range=dashes)
    x = alt.X("at:Q", title=x_title).scale(domain=[0, right], nice=False)
    y = {"title": "averaged per-user regret", **_axis(ends, log)}
    base = alt.Chart(_data(name=owner, at=at, mean=mean, low=low, high=high))
    base = base.encode(x=x.axis(grid=False, tickCount=6, tickMinStep=1), color=colour)
    line = base.mark_line(strokeWidth=2).encode(y=alt.Y("mean:Q", **y), strokeDash=dash)
    layers = [base.mark_area(opacity=0.16).encode(y=alt.Y("low:Q", **y), y2="high:Q"), line]
    if points or any(len(curve.at) == 1 for curve in curves):  # one place alone draws no line
        point = base.mark_point(filled=True, size=36, opacity=1)
        layers.append(point.encode(y=alt.Y("mean:Q", **y), tooltip=["name:N", "at:Q", "mean:Q"]))
    last = [max(zip(curve.at, curve.mean, strict=True)) for curve in curves]
    values = np.array([value for _, value in last], dtype=np.float64)
    texts = [f"{name} · {_number(value, value)}" for name, value in zip(names, values, strict=True)]
    places = _apart(values, ends, log, height)
    labels = {"name": names, "text": texts, "value": values, "place": places}
    layers += _end_labels(right / width, colour, [float(end) for end, _ in last], **labels)
    note = ", ".join(["log scale"] * log + ["bands of ± 2 standard errors"] * bool(se.any()))
    return _dressed(alt.layer(*layers), title, note, width=width, height=height)


def _end_labels(pixel: float, colour: Any, end: Sequence[float], **columns: Any) -> list[Any]:
    """Each `text` at its `place` right of the plot, with a line to the `end` and `value` of what it names."""
    alt = _altair()
    near, beyond = ([max(end) + n * pixel] * len(end) for n in (16, 21))
    data = _data(end=end, near=near, beyond=beyond, **columns)
    leader = alt.Chart(data).mark_rule(strokeWidth=1.5)
    text = alt.Chart(data).mark_text(align="left", baseline="middle", fontSize=12, color=_INK)
    return [
        leader.encode(x="end:Q", x2="near:Q", y="value:Q", y2="place:Q", color=colour),
        text.encode(x="beyond:Q", y="place:Q", text="text:N"),
    ]


def _ends(values: Floats, log: bool) -> tuple[float, float]:
    """The ends of an axis: from 0 to the largest value, or between round numbers if it is a log axis."""
    low, high = float(values.min()), float(values.max())
    if log:
        return _ladder(low / 100, 0.8 * low)[-1], _ladder(high, 100 * high)[0]
    return min(low, 0.0), max(high, 0.0 if low < 0 else high or 1.0)


def _axis(ends: tuple[float, float], log: bool) -> dict[str, Any]:
    alt = _altair()
    scale = alt.Scale(type="log" if log else "linear", domain=list(ends), nice=False, zero=False)
    if not log:
        return {"scale": scale, "axis": alt.Axis(tickCount=6)}
    ticks = _ladder(*ends)
    if len(ticks) > 12:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    return {"scale": scale, "axis": alt.Axis(values=ticks, format=",~r")}


def _ladder(low: float, high: float) -> list[float]:
    """The numbers 1, 2, 5, 10, 20, ... from low to high.

    >>> _ladder(0.2, 10)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    """
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [x for n in powers for x in (float(f"{digit}e{n}") for digit in (1, 2, 5)) if low <= x <= high]


def _apart(values: Floats, ends: tuple[float, float], log: bool, pixels: int) -> Floats:
    """The values moved as little as can be, in the same order, so that labels there do not overlap.

    >>> _apart(np.array([10.0, 11.0, 60.0]), (0.0, 64.0), log=False, pixels=320)  # labels take 16 pixels
    array([ 8.9, 12.1, 60. ])
    """
    from scipy.optimize import isotonic_regression

    to, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    low, high = to(ends)
    order = np.argsort(values, kind="stable")
    room = min(_LINE / pixels, 1 / max(len(values) - 1, 1)) * np.arange(len(values))
    level = isotonic_regression((to(values)[order] - low) / (high - low) - room).x
    places = np.empty(len(values))
    places[order] = np.clip(level, 0, 1 - room[-1]) + room
    return np.asarray(back(low + (high - low) * places))


def _styles(names: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """A colour that depends on the name alone, and a dash that no other line of that colour has.

    `lcb-em` takes the colour of `lcb`; a name of no known family draws one by its letters.
    """
    styles: list[tuple[str, tuple[int, ...]]] = []
    for name in map(_plain, names):
        parts, number = name.split("-"), zlib.crc32(name.encode())
        families = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
        stranger = _STRANGERS[number % len(_STRANGERS)], _DASHES[number % len(_DASHES)]
        colour, dash = next((_ALGORITHMS[f] for f in families if f in _ALGORITHMS), stranger)
        free = [d for d in (dash, *_DASHES) if (colour, d) not in styles]
        styles.append((colour, free[0] if free else dash))
    return [colour for colour, _ in styles], [list(dash) for _, dash in styles]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


def _check_names(names: Sequence[str], what: str) -> None:
    if not names:
        raise InputError(f"there are no {what} to draw; send at least one")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"two {what} are named {twice}; give each a name of its own")


def _bands(posterior: Floats, labels: Sequence[str] | None) -> tuple[Floats, list[str]]:
    """The classes with a band (steps + 1, at most 9) and their names."""
    if posterior.ndim != 2 or not posterior.size:
        raise InputError(f"the posterior has shape {posterior.shape}; send (steps + 1, N), a row per step")
    wrong = ~(np.isclose(posterior.sum(axis=1), 1, atol=1e-6) & (posterior >= 0).all(axis=1))
    if wrong.any():
        row = posterior[np.argmax(wrong)]
        came = f"row {np.argmax(wrong)} of the posterior sums to {row.sum():g}, with smallest {row.min():g}"
        raise InputError(f"{came}; send probabilities, which are >= 0 and sum to 1")
    n_classes = posterior.shape[1]
    names = [f"class {h + 1}" for h in range(n_classes)] if labels is None else list(labels)
    if len(names) != n_classes:
        raise InputError(f"{len(names)} labels for {n_classes} classes; send one per class")
    _check_names(names, "classes")
    if n_classes <= len(_AREAS):
        return posterior, names
    kept = np.sort(np.argsort(-posterior.max(axis=0), kind="stable")[: len(_AREAS)])
    rest = 1 - posterior[:, kept].sum(axis=1, keepdims=True)
    names = [*(names[h] for h in kept), f"{n_classes - len(kept)} others"]
    return np.hstack([posterior[:, kept], rest.clip(0)]), names


def _class_labels(models: LatentModels) -> list[str]:
    noise = np.sqrt(models.sigma2)
    rows = zip(models.pi, noise, strict=True)
    texts = (f"{_percent(share)} · noise {_number(sd, noise.max())}" for share, sd in rows)
    return [f"class {h} · {text}" for h, text in enumerate(texts, start=1)]


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.01 else ">99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def _number(value: float, size: float) -> str:
    """With the two or three digits that matter among numbers of this size.

    >>> _number(-0.251, 0.9), _number(18.42, 18.42), _number(12345.0, 12345.0), _number(2e-7, 2e-7)
    ('−0.25', '18.4', '12,345', '2.0e-07')
    """
    text = format(abs(value), _form(size))
    return f"−{text}" if value < 0 and text.strip("0.") else text


def _form(size: float) -> str:
    """As Python and Vega both read it."""
    power = int(np.floor(np.log10(abs(size)))) if size else 2
    return f",.{max(2 - power, 0) - (power < 0)}f" if -5 < power < 9 else ".1e"


def _ink(places: Floats, colours: Sequence[str]) -> list[str]:
    """White where it can be read on the colour at that place in [0, 1] of the scale, elsewhere black."""
    stops = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    channels = [np.interp(places * (len(stops) - 1), range(len(stops)), stop) ** 2.2 for stop in stops.T]
    luminance = np.array([0.2126, 0.7152, 0.0722]) @ channels
    return ["#ffffff" if 1.05 / (value + 0.05) > 3.5 else "#000000" for value in luminance]
