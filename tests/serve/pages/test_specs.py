"""The charts as a browser gets them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import vl_convert

from lcb import charts
from lcb.models import LatentModels
from lcb.serve.pages.specs import classes_spec, live_specs, posterior_spec

MODELS = LatentModels([0.25, 0.75], [[0.1, -0.2], [0.3, 0.4]], [0.04, 0.09], features=["a", "b"])
ROWS = {
    "rates": [{"t": 0, "decisions": 2.5, "rewards": 1.0}],
    "ctr": [{"t": 0, "recommender": "lcb", "model": 1, "ctr": 0.5, "decisions": 9}],
    "concentration": [{"model": 1, "steps": 1, "users": 3}],
    "mixture": [{"users": 9, "number": 2, "share": 0.25}],
    "users_per_model": [{"model": 1, "users": 41}],
    "scores": [{"t": 0, "model": 7, "score": -0.5, "active": 1}],
    "items": [{"item": "Cup final", "kind": "new", "effect": 0.2, "low": 0.1, "high": 0.3, "rewards": 1234}],
    "item_rates": [{"t": 0, "item": "Cup final", "offers": 8, "rate": 0.25}],
}
LABELS = {"rates": "decisions · 2.5/s", "ctr": "lcb v1 · 50.0 %", "concentration": "v1 · 100.0 %"}
LABELS |= {"users_per_model": "41", "scores": "v7", "mixture": "class 3 · 25.0 %"}
LABELS |= {"users_per_model": "41", "scores": "v7", "items": "new · 1,234", "item_rates": "Cup final · 0.25"}


def test_a_live_chart_has_no_rows_of_its_own_and_one_source_for_all_layers():
    for name, spec in live_specs().items():
        text = json.dumps(spec)
        assert spec["data"] == {"name": "table"}, name
        assert text.count('"data"') == 1
        assert "datasets" not in spec
        assert spec["width"] == "container"
        assert spec["description"]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_put_into_the_source_are_drawn(name):
    spec = live_specs()[name] | {"data": {"name": "table", "values": ROWS[name]}, "width": 400}
    assert LABELS[name] in re.sub("<[^>]*>", "\n", vl_convert.vegalite_to_svg(spec)).splitlines()


def test_where_labels_have_no_room_beside_the_plot_they_stand_below_it():
    spec = live_specs()["rates"] | {"data": {"name": "table", "values": ROWS["rates"]}, "width": 400}
    wide = _size(spec)
    spec["params"] = [{"name": "beside", "value": False}]
    narrow = _size(spec)
    assert narrow[0] < wide[0]
    assert narrow[1] > wide[1]


def test_the_classes_come_with_their_rows():
    assert classes_spec(MODELS) == charts.heat_map(MODELS).to_dict() | {
        "description": classes_spec(MODELS)["description"]
    }
    assert "2 classes over 2 features" in classes_spec(MODELS)["description"]


def test_a_posterior_is_labelled_by_number_and_words_even_if_two_classes_have_the_same():
    texts = json.dumps(posterior_spec([[0.5, 0.5], [0.9, 0.1]], ["likes it", "likes it"]))
    assert "1 likes it" in texts
    assert "2 likes it" in texts
    long = json.dumps(posterior_spec([[1.0]], ["w" * 60]), ensure_ascii=False)
    assert "w" * 25 + "…" in long
    assert "w" * 28 not in long
    assert "class 2" in json.dumps(posterior_spec([[0.5, 0.5]]))


def test_a_long_story_shows_its_first_400_rewards_and_says_so():
    spec = posterior_spec(np.full((1001, 2), 0.5))
    assert spec["title"] == "the first 400 of 1,000 rewards"
    assert max(row.get("seen", 0) for rows in spec["datasets"].values() for row in rows) == 400
    assert "title" not in posterior_spec(np.full((401, 2), 0.5))


def _size(spec):
    width, height = re.search(r'width="([\d.]+)" height="([\d.]+)"', vl_convert.vegalite_to_svg(spec)).groups()
    return float(width), float(height)
