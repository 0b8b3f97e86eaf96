"""The chart of a mixture's classes, evaluated as a browser would and read back."""

from __future__ import annotations

import pytest

from lcb.charts import class_shares
from lcb.errors import InputError
from support.live_chart_reading import marks, texts

ROWS = [
    {"users": 10, "number": 0, "share": 0.9},
    {"users": 20, "number": 0, "share": 0.4},
    {"users": 20, "number": 1, "share": 0.5},
]


def test_each_class_has_its_shares_and_its_last_one_as_a_label_the_largest_on_top():
    said = [mark["says"] for mark in marks(class_shares(ROWS), "symbol")]
    assert [(row["name"], row["users who have left"], row["share"]) for row in said] == [
        ("class 1", "10", "90.0%"),
        ("class 1", "20", "40.0%"),
        ("class 2", "20", "50.0%"),
    ]
    assert texts(class_shares(ROWS)) == ["class 2 · 50.0 %", "class 1 · 40.0 %"]


def test_a_share_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="share is None in a row"):
        class_shares([{"users": 1, "number": 0, "share": None}])
