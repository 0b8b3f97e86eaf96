"""Item effects in a real browser: the items of the dashboard, and why a headline is offered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lcb.demo.readers import CATEGORIES, reader_classes
from lcb.demo.visitors import read_headlines
from lcb.features import fit_features
from lcb.models.item_effects import ItemEffects
from lcb.storage.models.folder import save_models
from support.harness import serving
from support.page_readers import PHONE, WIDE, answer, check_accessible, check_width, ready

INK = """canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""
TITLES = {one["id"]: one["title"] for one in json.loads(read_headlines())["items"]}
GOOD, BAD, RISING, FALLING = "n002", "n005", "n010", "n020"  # the last two came after the version was learned
N_REWARDS = 30


@pytest.fixture(scope="module")
def service(tmp_path_factory, settings):
    """A service with item effects, and rewards of two new items: all opened one, nobody the other."""
    folder = Path(tmp_path_factory.mktemp("items"))
    known = [id for id in TITLES if id not in (RISING, FALLING)]
    effect = [{GOOD: 0.3, BAD: -0.3}.get(id, 0.01 * (1 + i % 5)) for i, id in enumerate(known)]
    numbers = {"prior_mean": 0.0, "prior_variance": 0.02, "noise": 0.1}
    effects = ItemEffects(tuple(known), effect, np.full(len(known), 0.001), np.full(len(known), 90.0), **numbers)
    models = replace(reader_classes(), item_effects=effects)
    save_models(models, folder / "models", feature_map=fit_features("one-hot", CATEGORIES, []))
    recommenders = [{"name": "lcb", "bandit": "learned-classes", "uniform": 0.0}]
    with serving(folder, **settings | {"models": str(folder / "models"), "recommenders": recommenders}) as server:
        with server.client() as client:
            for n in range(N_REWARDS):
                for id in (RISING, FALLING):
                    asked = {"user": f"{id}-{n}", "arms": [{"id": id}]}
                    decision = client.post("/v1/decisions", json=asked).json()["decision_id"]
                    told = {"decision_id": decision, "reward": float(id == RISING)}
                    assert client.post("/v1/rewards", json=told).is_success
        yield server


def test_the_dashboard_lists_items_by_appeal_and_newcomers_with_their_trend(service, look):
    page = look(service, "/dashboard", viewport={"width": 1440, "height": 2300})
    page.wait_for_function("() => document.querySelectorAll('#items tr').length > 5")
    rows = {cells[0]: cells[1:] for cells in (row.split("\t") for row in page.locator("#items tr").all_inner_texts())}
    numbers = [float(row[1].replace("−", "-")) for row in rows.values()]
    assert numbers == sorted(numbers, reverse=True)
    assert next(iter(rows)) == TITLES[RISING]
    group, _, rewards, offers, rate, trend = rows[TITLES[RISING]]
    assert (group, float(rate), trend) == ("new", 1.0, "↑\u00a0rising")
    assert int(rewards) >= N_REWARDS <= int(offers)
    assert rows[TITLES[FALLING]][-1] == "↓\u00a0falling"
    assert rows[TITLES[GOOD]][0] == "best"
    assert rows[TITLES[BAD]][:3] == ["worst", "−0.300", "90"]
    for name in ("items", "item_rates"):
        canvas = f"document.querySelector('#chart-{name} canvas')"
        page.wait_for_function(f"() => {canvas} && ({INK})({canvas}) > 20")
    check_accessible(page)
    page.set_viewport_size(PHONE["viewport"])
    check_width(page)


def test_a_reader_learns_what_is_because_of_them_and_what_because_of_everybody(service, look):
    page = look(service, "/", **WIDE | {"viewport": {"width": 1280, "height": 960}})
    ready(page)
    page.click(".toggle")
    until = "words => words.every((one) => document.querySelector('.why')?.textContent.includes(one))"
    everybody = [
        "Because of everybody: readers open this article in ",
        " more of 100 offers than a new one of its kind.",
    ]
    page.wait_for_function(until, arg=["Because of you: ", *everybody])  # whichever articles are on offer
    answer(page, opened=True)
    page.wait_for_function(until, arg=["Because of you: ", *everybody])
