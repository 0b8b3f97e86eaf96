"""The charts of model versions, evaluated as a browser would and read back."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.charts import concentration, model_scores, save, users_per_model
from lcb.errors import InputError
from support.live_chart_reading import marks, texts

STEPS = [
    {"model": 1, "steps": 2, "users": 10},
    {"model": 1, "steps": 1, "users": 30},
    {"model": 1, "steps": "more", "users": 60},
    {"model": 2, "steps": 1, "users": 5},
]


def test_the_share_of_known_users_adds_up_over_decisions_and_counts_those_not_yet_known():
    said = [mark["says"] for mark in marks(concentration(STEPS), "symbol")]
    shares = {(row["name"], row["decisions"]): row["share"] for row in said}
    assert shares == {("v1", "1"): "30.0%", ("v1", "2"): "40.0%", ("v2", "1"): "100.0%"}
    assert texts(concentration(STEPS)) == ["v2 · 100.0 %", "v1 · 40.0 %"]


def test_steps_that_are_no_number_of_decisions_are_refused():
    with pytest.raises(InputError, match="steps is 'many' in a row; give a number of decisions, or 'more'"):
        concentration([{"model": 1, "steps": "many", "users": 1}])


def test_each_version_has_a_bar_with_its_users_and_the_newest_ten_are_kept():
    rows = [{"model": np.int64(model), "users": 1000 * model} for model in range(1, 13)]
    assert texts(users_per_model(rows)) == [f"{model},000" for model in range(12, 2, -1)]
    lengths = {mark["says"]["name"]: mark["width"] for mark in marks(users_per_model(rows), "rect")}
    assert lengths["v12"] == pytest.approx(2 * lengths["v6"])


def test_a_version_keeps_its_colour_when_others_come():
    rows = [{"model": 4, "users": 1}, {"model": 3, "users": 9}]
    one, two = (
        {mark["says"]["name"]: mark["fill"] for mark in marks(users_per_model(r), "rect")} for r in (rows[:1], rows)
    )
    assert one["v4"] == two["v4"] != two["v3"]


def test_only_the_active_version_is_filled():
    rows = [{"t": 0, "model": 1, "score": -0.9, "active": 0}, {"t": 60, "model": 2, "score": -0.8, "active": 1}]
    points = marks(model_scores(rows), "symbol")
    assert {point["says"]["name"] for point in points if point["fill"] == "white"} == {"v1", "v2"}
    assert [point["says"]["name"] for point in points if point["fill"] != "white"] == ["v2"]
    assert texts(model_scores(rows)) == ["v2", "v1"]


def test_each_picture_can_be_a_file(tmp_path):
    for number, chart in enumerate((concentration(STEPS), users_per_model([]), model_scores([]))):
        save(chart, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
