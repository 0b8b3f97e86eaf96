"""The regret charts, read back from their Vega-Lite specification."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from lcb.charts import Curve, regret_by_steps, regret_by_users, save
from lcb.errors import InputError
from support.chart_reading import ALGORITHMS, encodings, rows, some_curves


def n_paths(svg: str, mark: str) -> int:
    """How many areas or lines of this kind the picture has."""
    groups = re.findall(rf'<g class="{mark} [^"]*"[^>]*>(.*?)</g>', svg, re.S)
    return sum(len(re.findall(r'<path [^>]*\bd="M', group)) for group in groups)


@pytest.mark.parametrize("draw", [regret_by_users, regret_by_steps])
@pytest.mark.parametrize("names", [ALGORITHMS, ["lcb"]])
def test_bands_are_two_standard_errors_either_side_of_the_mean(draw, names):
    curves = some_curves(names, scale=10)
    data = rows(draw(curves), "low")
    mean, se = (np.concatenate([getattr(curve, name) for curve in curves]) for name in ("mean", "se"))
    np.testing.assert_allclose([row["mean"] for row in data], mean)
    np.testing.assert_allclose([row["low"] for row in data], mean - 2 * se)
    np.testing.assert_allclose([row["high"] for row in data], mean + 2 * se)


def test_a_band_that_reaches_zero_ends_at_the_foot_of_a_log_axis():
    chart = regret_by_users([Curve("lcb", [1, 2], [1.0, 0.3], [0.2, 0.2]), Curve("random", [1, 2], [9, 9], [0, 0])])
    foot = encodings(chart, "y")[0]["scale"]["domain"][0]
    assert 0 < foot < 0.3
    assert [row["low"] for row in rows(chart, "low")] == [0.6, foot, 9, 9]


@pytest.mark.parametrize("draw", [regret_by_users, regret_by_steps])
@pytest.mark.parametrize("scale", [1.0, 10.0])  # on a linear and on a log axis
def test_only_a_curve_of_a_single_run_has_no_band(draw, scale, tmp_path):
    single = Curve("lcb-gt", [10, 50, 100], [scale * 3.0, scale * 2.0, scale * 1.5], [math.nan] * 3)
    chart = draw([Curve("lcb", [10, 50, 100], [1.3, 1.1, 1.0], [0.1] * 3), single])
    assert encodings(chart, "y")[0]["scale"]["type"] == ("linear" if scale == 1 else "log")
    save(chart, tmp_path / "regret.svg")
    svg = (tmp_path / "regret.svg").read_text(encoding="utf-8")
    assert (n_paths(svg, "mark-area"), n_paths(svg, "mark-line")) == (1, 2)
    assert {row["name"] for row in rows(chart, "low") if row["low"] is not None} == {"lcb"}
    json.dumps(chart.to_dict(), allow_nan=False)


def test_single_runs_alone_are_lines_without_bands_or_a_note_of_them():
    chart = regret_by_users([Curve("lcb", [1, 2], [1.0, 2.0], [math.nan, math.nan])])
    assert "area" not in {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}
    assert "standard errors" not in json.dumps(chart.to_dict(), allow_nan=False)
    assert encodings(chart, "y")[0]["scale"]["domain"] == [0, 2]


def test_the_axis_is_logarithmic_only_when_one_regret_dwarfs_another():
    kinds = [
        encodings(regret_by_users(curves), "y")[0]["scale"]["type"]
        for curves in (some_curves(), some_curves(["lcb", "lcb-gt"]), [Curve("lcb", [1, 2], [0, 9], [0, 0])])
    ]
    assert kinds == ["log", "linear", "linear"]


def test_a_log_axis_has_round_ticks_and_holds_every_mean():
    y = encodings(regret_by_users(some_curves()), "y")[0]
    assert y["axis"]["values"] == [0.2, 0.5, 1, 2, 5, 10, 20]
    assert y["scale"]["domain"] == [0.2, 20]


def test_only_the_chart_by_steps_has_points():
    marks = [
        {m["mark"]["type"] for m in draw(some_curves()).to_dict()["layer"]}
        for draw in (regret_by_users, regret_by_steps)
    ]
    assert marks[1] - marks[0] == {"point"}


def test_a_single_place_is_drawn_as_a_point():
    chart = regret_by_users([Curve("lcb", [100], [2.0], [0.1])])
    assert "point" in {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}


def test_curves_must_exist_and_have_different_names():
    with pytest.raises(InputError, match="there are no curves to draw; give at least one"):
        regret_by_users([])
    with pytest.raises(InputError, match="two curves are named lcb; names must be unique"):
        regret_by_steps(some_curves(["lcb", "random", "lcb"]))
