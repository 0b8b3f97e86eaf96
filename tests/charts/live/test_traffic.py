"""The charts of a service at work, evaluated as a browser would and read back."""

from __future__ import annotations

import math

import pytest

from lcb.charts import ctr_over_time, rates
from lcb.charts.style.theme import OTHER_COLOURS
from lcb.errors import InputError
from support.live_chart_reading import marks, texts

RATES = [{"t": 60.0 * i, "decisions": 10.0 + i, "rewards": 4.0 - i} for i in range(3)]


def ctr_rows(model: int = 1, recommender: str = "lcb", ctr: float = 0.3, decisions: int = 100, t: float = 0.0):
    return {"t": t, "recommender": recommender, "model": model, "ctr": ctr, "decisions": decisions}


def test_rates_are_named_by_their_latest_value_the_larger_first():
    assert texts(rates(RATES)) == ["decisions · 12.0/s", "rewards · 2.0/s"]
    assert texts(rates([{"t": 0, "decisions": 1, "rewards": 3}])) == ["rewards · 3.0/s", "decisions · 1.0/s"]


def test_every_recommender_and_version_has_a_line_of_its_own():
    rows = [ctr_rows(2, ctr=0.25, t=60), ctr_rows(1, ctr=0.5), ctr_rows(2, ctr=0.1), ctr_rows(2, "random", 0.4)]
    assert texts(ctr_over_time(rows)) == ["lcb v1 · 50.0 %", "random v2 · 40.0 %", "lcb v2 · 25.0 %"]


def test_only_the_newest_six_versions_of_a_recommender_are_drawn():
    rows = [ctr_rows(model, ctr=model / 100) for model in range(1, 9)] + [ctr_rows(1, "random", 0.5)]
    shown = {mark["says"]["name"] for mark in marks(ctr_over_time(rows), "line")}
    assert shown == {f"lcb v{model}" for model in range(3, 9)} | {"random v1"}


def test_the_newest_version_is_solid():
    lines = marks(ctr_over_time([ctr_rows(3), ctr_rows(7), ctr_rows(1, "random")]), "line")
    solid = {mark["says"]["name"] for mark in lines if mark["strokeDash"] == [1, 0]}
    assert solid == {"lcb v7", "random v1"}


def test_a_recommender_has_the_colour_that_it_has_in_the_figures():
    names = ("lcb", "lcb-em", "lcb-gt", "random", "Größe!")
    lines = marks(ctr_over_time([ctr_rows(1, name) for name in names]), "line")
    colours = {mark["says"]["name"]: mark["stroke"] for mark in lines}
    assert colours.pop("Größe! v1") in OTHER_COLOURS
    assert colours == {"lcb v1": "#0b5394", "lcb-em v1": "#0b5394", "lcb-gt v1": "#00694e", "random v1": "#777777"}


@pytest.mark.parametrize("ctr, decisions", [(0.3, 100), (0.0, 20), (1.0, 5), (0.02, 4000)])
def test_the_band_holds_the_rates_that_a_test_at_95_percent_would_not_refuse(ctr, decisions):
    (mark,) = marks(ctr_over_time([ctr_rows(ctr=ctr, decisions=decisions)]), "area")
    for end in (float(mark["says"]["low"]), float(mark["says"]["high"])):  # Wilson's: p is 1.96 of its deviations away
        if abs(end - ctr) > 1e-9:
            assert abs(ctr - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / decisions), rel=1e-6)
        else:
            assert ctr in (0, 1)


def test_a_picture_without_rows_is_drawn_and_waits():
    for chart in (rates([]), ctr_over_time([])):
        assert chart.to_dict()["data"] == {"name": "table", "values": []}
        assert texts(chart) == []


def test_a_row_without_a_field_or_a_number_is_refused():
    with pytest.raises(InputError, match="a row has t, decisions, but no rewards; give rewards in every row"):
        rates([{"t": 0, "decisions": 1}])
    for wrong in (math.nan, None, "3", True):
        with pytest.raises(InputError, match=r"decisions is .* in a row; give a finite number, or leave the row out"):
            rates([{"t": 0, "decisions": wrong, "rewards": 1}])
