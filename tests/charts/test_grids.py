"""The chart of a tuning, read back from its Vega-Lite specification."""

from __future__ import annotations

import math

import pytest

from lcb.charts import grids, save
from lcb.errors import InputError
from support.chart_reading import encodings, rows, style

ROWS = [("lcb", [0.6, 0.5, 0.9], "eta 2, uniform 0"), ("random", [11.4], ""), ("club", [math.inf, 2.0, 3.0], "width 1")]


def test_every_regret_is_shown_the_defaults_apart_and_refused_settings_not_at_all():
    data = rows(grids(ROWS), "kind")
    assert [(row["name"], row["regret"], row["kind"]) for row in data] == [
        ("lcb", 0.6, "defaults"), ("lcb", 0.5, "other"), ("lcb", 0.9, "other"), ("random", 11.4, "defaults"),
        ("club", 2.0, "other"), ("club", 3.0, "other"),
    ]  # fmt: skip


def test_the_least_regret_is_written_with_its_settings():
    data = rows(grids(ROWS), "text")
    assert [(row["name"], row["regret"], row["text"]) for row in data] == [
        ("lcb", 0.5, "0.50 · eta 2, uniform 0"), ("random", 11.4, "11.4"), ("club", 2.0, "2.00 · width 1")
    ]  # fmt: skip


def test_the_axis_is_logarithmic_only_when_one_regret_dwarfs_another():
    kinds = [encodings(grids(some), "x")[0]["scale"]["type"] for some in (ROWS, ROWS[:1])]
    assert kinds == ["log", "linear"]


def test_algorithms_keep_their_colours():
    assert style(grids(ROWS), "color")["lcb"] == "#0b5394"


def test_a_tuning_is_drawn_as_any_picture(tmp_path):
    for suffix in ("png", "svg"):
        save(grids(ROWS, title="Regret of all settings"), tmp_path / f"grid.{suffix}")
        assert (tmp_path / f"grid.{suffix}").stat().st_size > 1000


def test_grids_must_exist_and_hold_a_regret():
    with pytest.raises(InputError, match="there are no grids to draw"):
        grids([])
    with pytest.raises(InputError, match="grid lcb has no finite regret"):
        grids([("lcb", [math.inf], "")])
