"""The bars, read back from their Vega-Lite specification."""

from __future__ import annotations

import pytest

from lcb.charts import bars
from lcb.charts.style.theme import ALGORITHMS, BAR
from lcb.errors import InputError
from support.chart_reading import encodings, rows


def test_bars_keep_their_order_and_print_their_values():
    data = rows(bars([("b", 12345.0), ("a", 0.8), ("c", -3.25)], "seconds"), "base")
    assert [(row["name"], row["text"], row["base"]) for row in data] == [
        ("b", "12,345", 0),
        ("a", "0.80", 0),
        ("c", "−3.25", 0),
    ]


def test_the_reference_is_a_rule_at_its_value():
    chart = bars([("a", 2.0)], "seconds", reference=1.5)
    assert {"value": 1.5, "text": "1.50"} in rows(chart)
    assert encodings(chart, "x")[0]["title"] == "seconds"
    assert "rule" in {layer["mark"]["type"] for layer in chart.to_dict()["layer"]}
    assert "rule" not in {layer["mark"]["type"] for layer in bars([("a", 2.0)], "seconds").to_dict()["layer"]}


def test_the_reference_lies_on_the_axis_even_beyond_all_bars():
    assert encodings(bars([("a", 2.0)], "s", reference=9.0), "x")[0]["scale"]["domain"] == [0, 9]


def test_every_bar_on_a_log_axis_has_a_length():
    for row in rows(bars([("a", 1.0), ("b", 1e6)], "per second", log=True), "base"):
        assert 0 < row["base"] < row["value"]


def test_a_bar_without_a_place_on_the_axis_is_refused():
    with pytest.raises(InputError, match=r"is 0.0; it must be above 0 on a log axis; drop it, or draw with log=False"):
        bars([("a", 1.0), ("b", 0.0)], "seconds", log=True)
    with pytest.raises(InputError, match="is inf; it must be finite"):
        bars([("a", float("inf"))], "seconds")


def test_a_bar_has_the_colour_of_the_algorithm_before_the_colon():
    chart = bars([("lcb-mean: ratings", 2.0), ("linucb-individual", 1.0), ("other: ratings", 1.0)], "percent")
    colours = encodings(chart, "color")[0]["scale"]["range"]
    assert colours == [ALGORITHMS["lcb-mean"][0], ALGORITHMS["linucb-individual"][0], BAR]
