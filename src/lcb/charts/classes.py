"""Charts of the latent classes: their weights, and the posterior of one new user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats
from lcb.charts.style.axes import ladder
from lcb.charts.style.formats import format_number, format_percent, number_format
from lcb.charts.style.labels import LINE, check_names, end_labels, spread_labels
from lcb.charts.style.theme import (
    AREAS,
    CELL_INK,
    DIVERGING,
    GREY,
    SEQUENTIAL,
    SURFACE,
    apply_theme,
    inline_data,
    load_altair,
)
from lcb.errors import InputError
from lcb.models import LatentModels

if TYPE_CHECKING:
    import altair as alt


def heat_map(models: LatentModels, title: str | None = None) -> alt.LayerChart:
    """Draw the classes as a heat map: a row per class with its share and noise, a column per feature.

    Colours diverge around 0 if some weight is negative.  With up to 25 features, cells contain the weights and, for
    personal classes, the standard deviation of the people of the class, after ±.
    """
    alt = load_altair()
    largest = float(np.abs(models.beta).max()) or 1.0
    low, colours = (-largest, DIVERGING) if models.beta.min() < 0 else (0.0, SEQUENTIAL)
    printed = models.n_features <= 25
    texts = [format_number(weight, largest) for weight in models.beta.ravel().tolist()]
    spread = models.spread
    if spread is not None:
        texts = [
            f"{text} ± {format_number(sd, largest)}" for text, sd in zip(texts, spread.ravel().tolist(), strict=True)
        ]
    step = 8 + max(36, 7 * max(map(len, [*texts, format_number(-largest, largest)]))) if printed else 15
    data = inline_data(
        name=np.repeat(_format_class_labels(models), models.n_features),
        feature=models.features * models.n_classes,
        weight=models.beta.ravel(),
        text=texts,
        ink=_choose_ink((models.beta.ravel() - low) / (largest - low), colours),
    )
    angle = 0 if 7 * max(map(len, models.features)) <= step else -45 if printed else -90
    x, y = (alt.X("feature:N", sort=None, title=None), alt.Y("name:N", sort=None, title=None))
    x = x.axis(labelAngle=angle, labelLimit=240, labelOverlap=False, domain=False)
    base = alt.Chart(data).encode(x=x, y=y.axis(domain=False))
    length = float(np.clip(28 * models.n_classes - 18, 50, 200))
    colour = alt.Color("weight:Q").scale(domain=[low, largest], range=colours)
    colour = colour.legend(gradientLength=length, values=sorted({low, 0.0, largest}), format=number_format(largest))
    hints = ["name:N", "feature:N", "weight:Q"]
    layers = [base.mark_rect(stroke=SURFACE).encode(color=colour, tooltip=hints)]
    if printed:
        layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=alt.Color("ink:N", scale=None)))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return apply_theme(chart, title, width=alt.Step(step), height=alt.Step(28))


def posterior_path(
    posterior: ArrayLike, title: str | None = None, labels: Sequence[str] | None = None
) -> alt.LayerChart:
    """Draw the class probabilities (steps + 1, N) of one new user; row t is the posterior after t rewards.

    Row t is drawn from t - 1/2 to t + 1/2, clipped at 0 and at the last reward.  Of more than eight classes, the eight
    with the highest probability at any step have a band each; the others share a grey one.
    """
    alt = load_altair()
    paths, names = _select_bands(np.asarray(posterior, dtype=np.float64), labels)
    width, height, steps = 460, max(260, LINE * len(names)), max(len(paths) - 1, 1)
    stride = int(ladder(max(steps / 12, 1), 10 * steps)[0])  # ticks only at whole rewards
    ticks = list(range(0, len(paths), stride))
    if len(paths) == 1:
        paths = np.vstack([paths, paths])  # an area needs two points, also for a user without rewards
    tops = 1 - np.cumsum(paths, axis=1) + paths
    data = inline_data(
        name=names * len(paths),
        seen=np.repeat(np.arange(len(paths)), len(names)),
        probability=paths.ravel(),
        low=(tops - paths).clip(0).ravel(),
        high=tops.ravel(),
    )
    colour = alt.Color("name:N", legend=None).scale(domain=names, range=[*AREAS, GREY][: len(names)])
    x = alt.X("seen:Q", title="rewards seen from this user").scale(domain=[0, steps], nice=False)
    y = alt.Y("low:Q", title="probability of each class").scale(domain=[0, 1])
    area = alt.Chart(data).mark_area(interpolate="step", stroke=SURFACE, strokeWidth=0.7)
    area = area.encode(
        x=x.axis(values=ticks, format=",d", grid=False),
        y=y.axis(values=[0, 0.25, 0.5, 0.75, 1], labelExpr="100 * datum.value + ' %'"),
        y2="high:Q",
        color=colour,
        tooltip=["name:N", "seen:Q", alt.Tooltip("probability:Q", format=".3f")],
    )
    texts = [f"{name} · {format_percent(p)}" for name, p in zip(names, paths[-1], strict=True)]
    middles = np.minimum.accumulate((tops - paths / 2)[-1])[::-1]  # from the bottom up, as labels are placed
    places = spread_labels(middles, (0.0, 1.0), False, height)
    columns: dict[str, Any] = {"name": names[::-1], "text": texts[::-1], "value": middles, "place": places}
    texts_layer = end_labels(steps / width, colour, [float(steps)] * len(names), **columns)
    return apply_theme(alt.layer(area, *texts_layer), title, width=width, height=height)


def _format_class_labels(models: LatentModels) -> list[str]:
    noise = np.sqrt(models.sigma2)
    rows = zip(models.pi, noise, strict=True)
    texts = (f"{format_percent(share)} · noise {format_number(sd, noise.max())}" for share, sd in rows)
    return [f"{'new class' if h == models.new_class else f'class {h + 1}'} · {text}" for h, text in enumerate(texts)]


def _choose_ink(places: Floats, colours: Sequence[str]) -> list[str]:
    """Choose the text colour at each position in [0, 1] of the colour scale: white where it is legible, else black."""
    stops = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    channels = [np.interp(places * (len(stops) - 1), range(len(stops)), stop) ** 2.2 for stop in stops.T]
    luminance = np.array([0.2126, 0.7152, 0.0722]) @ channels
    return [CELL_INK[0] if 1.05 / (value + 0.05) > 3.5 else CELL_INK[1] for value in luminance]


def _select_bands(posterior: Floats, labels: Sequence[str] | None) -> tuple[Floats, list[str]]:
    """Return the probabilities of the classes that get a band, (steps + 1, at most 9), and their names."""
    if posterior.ndim != 2 or not posterior.size:
        raise InputError(f"the posterior has shape {posterior.shape}; give (steps + 1, N), a row per step")
    wrong = ~(np.isclose(posterior.sum(axis=1), 1, atol=1e-6) & (posterior >= 0).all(axis=1))
    if wrong.any():
        row = posterior[np.argmax(wrong)]
        came = f"row {np.argmax(wrong)} of the posterior sums to {row.sum():g}, with smallest {row.min():g}"
        raise InputError(f"{came}; give probabilities, which are >= 0 and sum to 1")
    n_classes = posterior.shape[1]
    names = [f"class {h + 1}" for h in range(n_classes)] if labels is None else list(labels)
    if len(names) != n_classes:
        raise InputError(f"{len(names)} labels for {n_classes} classes; give one per class")
    check_names(names, "classes")
    if n_classes <= len(AREAS):
        return posterior, names
    kept = np.sort(np.argsort(-posterior.max(axis=0), kind="stable")[: len(AREAS)])
    rest = 1 - posterior[:, kept].sum(axis=1, keepdims=True)
    names = [*(names[h] for h in kept), f"{n_classes - len(kept)} others"]
    return np.hstack([posterior[:, kept], rest.clip(0)]), names
