"""Labels stand beside what they name, and none over another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis.strategies import booleans, floats, lists

from lcb.charts import regret_by_users
from lcb.charts.style.labels import spread_labels
from support.chart_reading import ALGORITHMS, ENDS, encodings, rows, some_curves


def test_every_line_is_labelled_at_its_end_and_no_labels_overlap():
    curves = some_curves()
    chart = regret_by_users(curves)
    labels = rows(chart, "place")
    assert [label["text"].split(" · ")[0] for label in labels] == ALGORITHMS
    assert [(label["end"], label["value"]) for label in labels] == [(100.0, curve.mean[-1]) for curve in curves]
    low, high = np.log(encodings(chart, "y")[0]["scale"]["domain"])
    pixels = (np.log([label["place"] for label in labels]) - low) / (high - low) * chart.to_dict()["height"]
    assert np.diff(np.sort(pixels)).min() > 15.9
    assert np.argsort(pixels).tolist() == np.argsort(ENDS).tolist()


@given(lists(floats(0.01, 100), min_size=1, max_size=20), booleans())
def test_labels_moved_apart_keep_order_room_and_the_axis(values, log):
    places = spread_labels(np.array(values), (0.01, 100.0), log, pixels=320)
    to = np.log if log else np.asarray
    pixels = (to(places) - to(0.01)) / (to(100.0) - to(0.01)) * 320
    assert -1e-6 < pixels.min() <= pixels.max() < 320 + 1e-6
    ordered = pixels[np.argsort(values, kind="stable")]
    assert (np.diff(ordered) > 16 - 1e-6).all()


def test_labels_with_room_stay_where_they_are():
    np.testing.assert_allclose(spread_labels(np.array([90.0, 10.0]), (0.0, 100.0), False, 320), [90, 10])
