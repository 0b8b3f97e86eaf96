"""The growth charts, read back from their Vega-Lite specification."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lcb.charts import Curve, GrowthPanel, growth, save
from lcb.errors import InputError
from support.chart_reading import rows

AT = [10, 100, 1000]


def panel(mean=(4.0, 8.0, 20.0), se=(0.5, 1.0, 2.0), theory=(1.0, 3.0, 9.0), at=AT):
    curves = [Curve("exp3", at, mean, se), Curve("exp4p", at, [2 * m for m in mean], se)]
    return GrowthPanel("a world", "steps", curves, [theory, theory], ["slope 1", "slope 2"])


def test_a_theorys_line_starts_at_the_first_measured_point():
    chart = growth([panel()], "regret")
    said = [row["said"] for row in rows(chart, "said")]
    np.testing.assert_allclose(said, [4, 12, 36, 8, 24, 72])


def test_bars_are_two_standard_errors_either_side_and_stop_at_the_foot_of_the_axis():
    chart = growth([panel(se=(3.0, 1.0, 2.0))], "regret")
    data = rows(chart, "low", "high")
    foot = chart.to_dict()["vconcat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"][0]
    np.testing.assert_allclose([row["high"] for row in data], [10, 10, 24, 14, 18, 44])
    np.testing.assert_allclose([row["low"] for row in data], [foot, 6, 16, 2, 14, 36])


def test_both_axes_are_logarithmic_and_hold_everything():
    layer = growth([panel()], "regret").to_dict()["vconcat"][0]["layer"][0]["encoding"]
    assert (layer["x"]["scale"]["type"], layer["y"]["scale"]["type"]) == ("log", "log")
    assert layer["x"]["scale"]["domain"] == [10, 1000]
    low, high = layer["y"]["scale"]["domain"]
    assert low <= 3
    assert high >= 72


@pytest.mark.parametrize(("n", "ticks"), [(3, [1.0, 2.0, 4.0]), (12, [1.0, 10.0, 100.0, 1000.0])])
def test_every_size_has_a_tick_unless_there_are_many(n, ticks):
    at = [2.0**i for i in range(n)]
    curve = Curve("exp3", at, at, [0.0] * n)
    chart = growth([GrowthPanel("a world", "steps", [curve], [at], ["slope 1"])], "regret")
    assert chart.to_dict()["vconcat"][0]["layer"][0]["encoding"]["x"]["axis"]["values"] == ticks


def test_names_and_texts_stand_at_the_ends():
    texts = [row["text"] for row in rows(growth([panel()], "regret"), "text")]
    assert set(texts) == {"exp3 · slope 1", "exp4p · slope 2"}
    beyond = {row["beyond"] for row in rows(growth([panel()], "regret"), "beyond")}
    assert min(beyond) > 1000


def test_single_runs_are_points_without_bars(tmp_path):
    chart = growth([panel(se=(math.nan,) * 3), panel()], "regret", "two panels")
    assert len(chart.to_dict()["vconcat"]) == 2
    save(chart, tmp_path / "growth.png")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: growth([], "regret"), "no panels"),
        (lambda: panel(theory=(1.0, 2.0)), "2 values of a theory for 3 places of exp3"),
        (lambda: panel(mean=(0.0, 1.0, 2.0)), "a value of exp3 is not above 0"),
        (lambda: panel(theory=(0.0, 1.0, 2.0)), "a value of exp3 is not above 0"),
        (
            lambda: GrowthPanel("a world", "steps", [Curve("exp3", [1], [1], [0])], [[1]], []),
            "1 curves, 1 of a theory, 0 texts",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
