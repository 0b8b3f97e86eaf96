"""Studies, read back from their Vega-Lite specification."""

from __future__ import annotations

import pytest

from lcb.charts import StudyPanel, studies
from lcb.charts.style.theme import INK, SURFACE, line_styles
from lcb.errors import InputError
from support.chart_reading import rows

PAPER = StudyPanel("the paper", [("linucb-population", 0.196, 0.096), ("lcb", 0.38, 0.076)])
OURS = StudyPanel("ours", [("lcb", 0.25, 0.5), ("lcb-mean", 0.5, None)])


def test_every_bar_has_its_mean_its_line_and_its_numbers():
    data = rows(studies([PAPER, OURS], "CTR"), "mean")
    assert [(row["name"], row["text"]) for row in data] == [
        ("linucb-population", "0.196 ± 0.096"), ("lcb", "0.380 ± 0.076"), ("lcb", "0.250 ± 0.500"),
        ("lcb-mean", "0.500"),
    ]  # fmt: skip
    assert [row["low"] for row in data] == pytest.approx([0.1, 0.304, 0, 0.5])
    assert [row["high"] for row in data] == pytest.approx([0.292, 0.456, 0.75, 0.5])
    assert [row["cut"] for row in data] == [False, False, True, False]


def test_all_studies_share_one_axis_and_a_recommender_has_one_colour():
    panels = studies([PAPER, OURS], "CTR").to_dict()["vconcat"]
    domains = [layer["encoding"]["x"]["scale"]["domain"] for panel in panels for layer in panel["layer"]]
    assert all(domain == pytest.approx([0, 1.3 * 0.75]) for domain in domains)
    names = ["linucb-population", "lcb", "lcb-mean"]
    for panel in panels:
        assert panel["layer"][0]["encoding"]["color"]["scale"] == {"domain": names, "range": line_styles(names)[0]}
    assert [panel["layer"][0]["encoding"]["x"]["title"] for panel in panels] == [None, "CTR"]


def test_what_has_no_place_on_the_axis_is_refused():
    for mean, deviation in ((float("nan"), 0.1), (0.2, float("inf")), (-0.1, 0.1), (0.2, -0.1)):
        with pytest.raises(InputError, match=r"a has .* both must be finite and at least 0"):
            StudyPanel("one", [("a", mean, deviation)])
    with pytest.raises(InputError, match="two recommenders are named a"):
        StudyPanel("one", [("a", 0.1, 0.1), ("a", 0.1, 0.1)])
    with pytest.raises(InputError, match="there are no studies to draw"):
        studies([], "CTR")


def test_a_study_without_a_click_is_drawn():
    studies([StudyPanel("one", [("a", 0.0, 0.0)])], "CTR").to_dict()


def test_whiskers_stand_on_a_light_line_so_that_a_dark_bar_does_not_hide_them():
    for panel in studies([PAPER], "CTR").to_dict()["vconcat"]:
        drawn = [(layer["mark"]["type"], layer["mark"].get("color")) for layer in panel["layer"]]
        for mark in ("rule", "tick"):
            colors = [color for kind, color in drawn if kind == mark]
            assert colors == [SURFACE] * (len(colors) // 2) + [INK] * (len(colors) // 2)
            assert colors
