"""Many new items at once take a set share of the offers of a service; single decisions, lists and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.messages import DecisionRequest
from lcb.serve.audit.story import read_story
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.decide_many import decide_many
from support import item_worlds
from support.inside import Inside, sqlite
from support.item_worlds import add_version

N_KNOWN, N_NEW = 20, 200
GOOD = {f"i{i}": 0.3 + 0.02 * (i - 10) for i in range(N_KNOWN)}  # the best is 0.48, a newcomer 0.3 until it is known
DULL = 0.1


def x_of(i: int) -> list[float]:
    return [float(i % 2 == 0), float(i % 2 == 1)]


def add_newcomers(inside: Inside) -> None:
    inside.items(*({"id": f"n{i}", "x": x_of(i)} for i in range(N_NEW)))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    made: list[Inside] = []

    def build(settings: dict[str, float] | None = None, uniform: float = 0.0) -> Inside:
        spec = RecommenderSpec("lcb", "learned-classes", settings=settings or {}, uniform=uniform)
        inside = Inside(sqlite(tmp_path / f"lcb{len(made)}.db"), item_worlds.settings(recommenders=(spec,)))
        made.append(inside)
        inside.items(*({"id": id, "x": x_of(i)} for i, id in enumerate(GOOD)))
        add_version(inside, replace(item_worlds.models(), item_effects=item_worlds.effects(GOOD, 0.0005)))
        return inside

    yield build
    for one in made:
        one.close()


def check(inside: Inside, n_decisions: int) -> None:
    """The log alone gives the same decisions."""
    report = verify(inside.store)
    assert report.differences == []
    assert report.n_decisions == n_decisions


def is_new(id: str) -> bool:
    return id.startswith("n")


def serve(inside: Inside, rng: np.random.Generator, first: int, n: int) -> Any:
    """Serve `n` readers with one item each; return what each could expect to like it, and which were newcomers."""
    rates, new = np.empty(n), np.empty(n, bool)
    for i in range(n):
        answer = inside.decide(f"u{first + i}")
        id = answer["arm"]
        kind = 1 if i % 2 else -1
        rates[i] = (DULL if is_new(id) else GOOD[id]) + 0.1 * kind * (1 if int(id[1:]) % 2 else -1)
        new[i] = is_new(id)
        inside.reward(answer["decision_id"], float(rng.random() < rates[i]))
    return rates, new


def test_a_bulk_load_of_dull_items_leaves_readers_most_of_what_they_had(opened: Any) -> None:
    inside, rng = opened(), np.random.default_rng(8)
    before = serve(inside, rng, 0, 200)[0].mean()
    add_newcomers(inside)
    rates, new = serve(inside, rng, 200, 1000)
    for i in range(0, 501, 100):
        assert rates[i : i + 500].mean() > (1 - 0.2 - 0.05) * before
        assert 0.1 < new[i : i + 500].mean() < 0.27
    check(inside, 1200)


def test_single_decisions_lists_and_batches_follow_the_same_rule(opened: Any) -> None:
    inside = opened()
    add_newcomers(inside)
    one = inside.decide("ann")
    places = np.array([is_new(id) for id in inside.service.world.state.catalogue.ids])
    assert np.array(one["distribution"])[places].sum() == pytest.approx(0.2)
    assert one["propensity"] < 1
    shown = [slot["arm"] for i in range(40) for slot in inside.decide(f"l{i}", k=5)["slots"]]
    assert 15 <= sum(map(is_new, shown)) <= 65  # of 200, about 40
    arms = [{"id": f"n{i}"} for i in range(50)] + [{"id": "i19"}, {"id": "i18"}]
    ruled = inside.decide("bob", arms=arms, exclude=["i19"])
    p = dict(zip((arm["id"] for arm in arms), ruled["distribution"], strict=True))
    assert p["i18"] == pytest.approx(0.8)
    few = inside.decide("eve", arms=[{"id": "n1"}, *arms[-2:]])
    assert (few["arm"], few["propensity"]) == ("n1", 1.0)
    for _ in range(2):  # in the first all users are new
        asked = [DecisionRequest(f"b{i}") for i in range(30)]
        answers = [msgspec.json.decode(answer) for answer in inside.done(decide_many(inside.service, asked))]
        assert all(np.array(one["distribution"])[places].sum() == pytest.approx(0.2) for one in answers)
        assert 1 <= sum(is_new(one["arm"]) for one in answers) <= 14  # of 30, about 6
    check(inside, 103)


def test_a_story_says_that_a_newcomer_was_tried_although_many_shared_its_chance(opened: Any) -> None:
    inside = opened(uniform=0.01)
    add_newcomers(inside)
    reasons = []
    for i in range(30):
        answer = inside.decide(f"u{i}")
        if is_new(answer["arm"]):
            assert answer["propensity"] < 1 / (N_KNOWN + N_NEW)
            reasons += [step.reason for step in read_story(inside.service.world, inside.store.stream_of(f"u{i}"))]
    assert reasons
    assert set(reasons) == {"new"}


def test_an_operator_sets_the_share_and_a_log_without_it_has_no_limit(opened: Any) -> None:
    for settings, wanted in (({"item_share": 0.1}, 0.1), ({"item_share": 1.0}, 1.0)):
        inside = opened(settings)
        add_newcomers(inside)
        places = np.array([is_new(id) for id in inside.service.world.state.catalogue.ids])
        assert np.array(inside.decide("ann")["distribution"])[places].sum() == pytest.approx(wanted)
        check(inside, 1)
    assert RecommenderSpec("lcb", "learned-classes").complete(None).settings["item_share"] == 0.2
    before = (
        b'{"bandit":"learned-classes","name":"lcb","item_effects":true,"settings":{"item_bonus":1,"item_horizon":9}}'
    )
    spec = RecommenderSpec("lcb", "learned-classes").complete(RecommenderSpec.from_json(before))
    assert "item_share" not in spec.settings
    assert spec.make(item_worlds.models(), 2, None).item_share == 1.0  # type: ignore[attr-defined]


def test_a_log_from_before_the_limit_keeps_its_rule_and_verifies(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of such a log have no `item_share`."""
    complete = RecommenderSpec.complete

    def complete_as_before(self: RecommenderSpec, known: RecommenderSpec | None) -> RecommenderSpec:
        spec = complete(self, known)
        return replace(spec, settings={name: value for name, value in spec.settings.items() if name != "item_share"})

    with monkeypatch.context() as before:
        before.setattr(RecommenderSpec, "complete", complete_as_before)
        inside = opened()
    assert "item_share" not in inside.service.world.state.recommenders["lcb"].settings
    add_newcomers(inside)
    inside.decide("ann")
    inside.crash()  # the program of now
    places = np.array([is_new(id) for id in inside.service.world.state.catalogue.ids])
    for user in ("ann", "bob"):
        assert np.array(inside.decide(user)["distribution"])[places].sum() == pytest.approx(1.0)
    check(inside, 3)
