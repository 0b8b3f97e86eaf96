"""The effects of items move with every reward, and no reward counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models.item_effects import add_residuals
from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.story import read_story
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models
from support import item_worlds
from support.inside import Inside, fold_log, sqlite
from support.item_worlds import MEAN, NOISE, VARIANCE, add_version, effect_of, fill, shown

VISITOR = "reader-" + "0" * 26


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    made: list[Inside] = []

    def build(**more: Any) -> Inside:
        made.append(Inside(sqlite(tmp_path / f"lcb{len(made)}.db"), item_worlds.settings(**more)))
        fill(made[-1])
        return made[-1]

    yield build
    for one in made:
        one.close()


def one_arm(id: str) -> list[dict[str, Any]]:
    return [{"id": id}]


def check(inside: Inside) -> None:
    """The log alone gives the same state and the same decisions."""
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
    report = verify(inside.store)
    assert report.differences == []
    assert report.n_decisions > 0


def test_a_reward_teaches_the_user_and_the_item_what_the_decision_had_logged(opened: Any) -> None:
    inside = opened()
    assert effect_of(inside, "i0") == (0.35, 0.01)
    assert effect_of(inside, "i5") == (MEAN, VARIANCE)
    first = inside.decide("ann", arms=one_arm("i5"))
    arm = shown(inside.store, first["decision_id"])[0]
    assert (arm.effect, arm.mean) == (MEAN, pytest.approx(0.0))  # the classes have equal shares and opposite weights
    inside.reward(first["decision_id"], 1.0)
    assert effect_of(inside, "i5") == add_residuals(MEAN, VARIANCE, 1, 1.0 - arm.mean, NOISE)
    bandit, _ = inside.service.world.state.bandit("lcb", 1)
    expected = bandit.update(bandit.start(), Decision(0, 1.0, np.array([0.0, 1.0])), 1.0 - MEAN)
    np.testing.assert_array_equal(inside.service.world.user("ann").state, expected)
    second = shown(inside.store, inside.decide("ann", arms=one_arm("i5"))["decision_id"])[0]
    weights = bandit.weights(expected)
    assert second.mean == pytest.approx(float(weights @ [-0.2, 0.2]))
    assert second.effect == effect_of(inside, "i5")[0] > MEAN
    check(inside)


def test_an_unseen_item_is_tried_and_a_bad_one_is_not(opened: Any) -> None:
    inside = opened()
    arms = [{"id": "i0"}, {"id": "i2"}]  # of one kind; i0 has effect 0.35, nobody has seen i2
    offered = []
    for n in range(60):
        answer = inside.decide(f"u{n}", arms=arms)
        assert answer["propensity"] == 1.0
        offered.append(answer["arm"])
        inside.reward(answer["decision_id"], 1.0 if answer["arm"] == "i0" and n % 2 else 0.0)
    assert offered[:3] == ["i2"] * 3  # it is less known than i0, and some 0 do not yet say that it is bad
    assert offered.count("i2") < 10
    assert set(offered[-20:]) == {"i0"}
    check(inside)


def test_a_newcomer_that_is_unlike_the_others_is_believed_and_the_log_gives_it_back(opened: Any) -> None:
    inside = opened()
    alike = replace(item_worlds.effects({"i0": 0.3, "i1": 0.3}, 0.001), prior_variance=0.001).allow_unlike(0.24)
    add_version(inside, replace(item_worlds.models(), item_effects=alike))
    arms, offered = [{"id": "i0"}, {"id": "i2"}], []  # of one kind; nobody has seen i2
    for n in range(40):
        answer = inside.decide(f"u{n}", arms=arms)
        offered.append(answer["arm"])
        inside.reward(answer["decision_id"], 1.0 if answer["arm"] == "i2" else float(n % 3 == 0))
    assert offered.count("i2") > 30
    assert effect_of(inside, "i2")[0] > 0.8  # 0.4 if it had to be like the others
    inside.crash()
    check(inside)


def test_a_story_says_that_an_item_was_tried_because_nobody_had_answered_to_it(opened: Any) -> None:
    inside = opened()
    arms = [{"id": "i0"}, {"id": "i2"}]
    for user, reward in (("ann", 1.0), ("bob", 1.0)):
        answer = inside.decide(user, arms=arms)
        assert answer["arm"] == "i2"
        inside.reward(answer["decision_id"], reward)
    reasons = {
        user: read_story(inside.service.world, inside.store.stream_of(user))[0].reason for user in ("ann", "bob")
    }
    assert reasons == {"ann": "new", "bob": "popular"}  # ann liked it


def test_every_slot_of_a_list_moves_its_own_item(opened: Any) -> None:
    inside = opened(uniform=0.1)
    answer = inside.decide("ann", k=3)
    arms = shown(inside.store, answer["decision_id"])
    for slot, arm in zip(answer["slots"], arms, strict=True):
        before = effect_of(inside, arm.id)
        assert arm.effect == before[0]
        inside.reward(slot["reward_id"], 1.0)
        assert effect_of(inside, arm.id) == add_residuals(*before, 1, 1.0 - arm.mean, NOISE)
    check(inside)


def test_the_propensities_are_those_of_the_scores_with_effects(opened: Any) -> None:
    inside = opened(uniform=0.06)
    for n in range(8):
        answer = inside.decide(f"u{n}")
        # i2 to i5 are equally good: nobody has seen them
        np.testing.assert_allclose(answer["distribution"], [0.01, 0.01] + [0.01 + 0.94 / 4] * 4)
        assert answer["propensity"] == answer["distribution"][int(answer["arm"][1:])]


@pytest.mark.parametrize("rule", ["last", "sum"])
def test_a_changed_reward_counts_once_with_its_last_value(opened: Any, rule: str) -> None:
    inside = opened(rewards=rule)
    answer = inside.decide("ann", arms=one_arm("i3"))
    mean = shown(inside.store, answer["decision_id"])[0].mean
    inside.reward(answer["decision_id"], 0.5)
    inside.reward(answer["decision_id"], 0.5)  # the same again
    inside.reward(answer["decision_id"], 0.25, **({"reward_id": "more"} if rule == "sum" else {}))
    final = {"last": 0.25, "sum": 0.75}[rule]
    assert effect_of(inside, "i3") == pytest.approx(add_residuals(MEAN, VARIANCE, 1, final - mean, NOISE))
    assert inside.service.world.items.sums.since["i3"][0] == 1
    check(inside)


def test_the_rewards_of_one_user_for_one_item_count_as_one(opened: Any) -> None:
    """Also if one is changed, if the user is read from the store again, and on both sides of a new version."""
    inside = opened(rewards="last")
    ids = [inside.decide("ann", arms=one_arm("i3"))["decision_id"] for _ in range(4)]
    rewards, means = [1.0, 0.5, 1.0, 0.0], [shown(inside.store, id)[0].mean for id in ids]
    inside.reward(ids[0], 0.0)
    for id, reward in zip(ids[:3], rewards, strict=False):
        inside.reward(id, reward)
    mean = np.mean([reward - mean for reward, mean in zip(rewards[:3], means, strict=False)])
    assert inside.service.world.items.sums.since["i3"] == (1, pytest.approx(mean))
    check(inside)
    inside.crash()
    seq, _ = inside.done(inside.service.begin_learning())
    add_version(inside, item_worlds.models({"i3": 0.5}), seen=seq)
    inside.reward(ids[3], rewards[3])
    now = np.mean([reward - mean for reward, mean in zip(rewards, means, strict=True)])
    assert inside.service.world.items.sums.since["i3"] == (0, pytest.approx(now - mean))  # the version knows the rest
    check(inside)


def test_in_a_log_of_an_earlier_version_every_reward_counts(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = events.ServiceBody
    monkeypatch.setattr(events, "ServiceBody", lambda *all, **more: whole(*all, **more | {"counts_users": False}))
    inside = opened()
    for _ in range(3):
        inside.reward(inside.decide("ann", arms=one_arm("i3"))["decision_id"], 1.0)
    assert inside.service.world.items.sums.since["i3"][0] == 3
    check(inside)
    inside.erase("ann")
    check_again = fold_log(inside.store)
    assert check_again.items.sums.since["i3"][0] == 3


def test_rewards_after_a_version_was_learned_are_all_it_does_not_know(opened: Any) -> None:
    inside = opened(rewards="last")
    late = inside.decide("late", arms=one_arm("i3"))["decision_id"]
    early = inside.decide("early", arms=one_arm("i3"))["decision_id"]
    inside.reward(early, 1.0)
    seq, n_started = inside.done(inside.service.begin_learning())
    assert (seq, n_started) == (inside.service.world.seq, 2)
    inside.reward(late, 1.0)
    inside.reward(early, 0.0)  # the version will have learned from 1
    means = {user: shown(inside.store, id)[0].mean for user, id in (("late", late), ("early", early))}
    assert inside.service.world.items.count("i3") == 2
    add_version(inside, item_worlds.models({"i3": 0.5}), seen=seq)
    assert inside.service.world.items.sums.since == {"i3": (1, pytest.approx(1.0 - means["late"] - 1.0))}
    assert effect_of(inside, "i3") == pytest.approx(add_residuals(0.5, 0.01, 1, -means["late"], NOISE))
    inside.stop()
    inside.start()  # from the snapshot
    assert effect_of(inside, "i3") == pytest.approx(add_residuals(0.5, 0.01, 1, -means["late"], NOISE))
    check(inside)


def test_a_version_that_is_kept_aside_or_comes_from_elsewhere(opened: Any) -> None:
    inside = opened()
    for n in range(3):
        inside.reward(inside.decide(f"u{n}", arms=one_arm("i3"))["decision_id"], 1.0)
    before = effect_of(inside, "i3")
    add_version(inside, item_worlds.models({"i3": 0.9}), seen=inside.service.world.seq, active=False)
    assert effect_of(inside, "i3") == before
    add_version(inside, item_worlds.models({"i3": 0.9}))
    assert effect_of(inside, "i3") == (0.9, 0.01)  # what was learned elsewhere may know these rewards
    inside.done(inside.service.activate(1, "a test"))
    assert inside.decide("ann", arms=one_arm("i3"))["model"] == 1
    assert effect_of(inside, "i3") == (0.9, 0.01)
    check(inside)


def test_a_canary_brings_its_effects_when_it_is_promoted(opened: Any) -> None:
    inside = opened()
    inside.reward(inside.decide("u0", arms=one_arm("i3"))["decision_id"], 1.0)
    before = effect_of(inside, "i3")
    seq, _ = inside.done(inside.service.begin_learning())
    manifest, tensors = pack_models(item_worlds.models({"i3": 0.9}))
    more: dict[str, Any] = {"seen": seq, "canary": 0.5, "canary_users": 2}
    version = inside.done(inside.service.add_model(manifest, tensors, active=False, reason="a test", n_users=1, **more))
    assert effect_of(inside, "i3") == before
    users = iter(f"v{n}" for n in range(100))
    while inside.service.world.canary.verdict is None:
        inside.reward(inside.decide(next(users), arms=one_arm("i4"))["decision_id"], 1.0)
    inside.done(inside.service.end_canary(inside.service.world.canary.verdict))
    assert inside.service.world.state.active == version
    assert effect_of(inside, "i3") == (0.9, 0.01)
    assert effect_of(inside, "i4") != (item_worlds.MEAN, item_worlds.VARIANCE)  # rewards since learning began count
    check(inside)


def test_classes_learned_without_effects_are_served_without(opened: Any) -> None:
    inside = opened()
    add_version(inside, replace(item_worlds.models(), item_effects=None))
    answer = inside.decide("ann", arms=one_arm("i3"))
    arm = shown(inside.store, answer["decision_id"])[0]
    assert (arm.effect, arm.mean) == (None, None)
    inside.reward(answer["decision_id"], 1.0)
    assert inside.service.world.items.sums.since == {}
    check(inside)


def test_a_pinned_user_keeps_the_classes_and_sees_the_effects_of_now(opened: Any) -> None:
    inside = opened(learning=Learning(pin=True))
    inside.reward(inside.decide("ann", arms=one_arm("i0"))["decision_id"], 1.0)
    add_version(inside, item_worlds.models({"i0": 0.9}))
    answer = inside.decide("ann", arms=one_arm("i0"))
    assert answer["model"] == 1
    assert shown(inside.store, answer["decision_id"])[0].effect == 0.9
    inside.reward(answer["decision_id"], 1.0)
    assert inside.decide("ben", arms=one_arm("i0"))["model"] == 2
    check(inside)


def test_an_item_that_comes_back_or_changes_its_features_keeps_its_effect(opened: Any) -> None:
    inside = opened()
    inside.reward(inside.decide("ann")["decision_id"], 1.0)
    inside.reward(inside.decide("ann", arms=one_arm("i3"))["decision_id"], 0.0)
    before = effect_of(inside, "i3")
    inside.items(remove=["i3"])
    inside.decide("ann")
    inside.items({"id": "i3", "x": [1.0, 0.0]})
    assert effect_of(inside, "i3") == before
    answer = inside.decide("ben")
    place = inside.service.world.state.catalogue.ids.index("i3")
    assert inside.service.world.items.of_arms(inside.service.world.state.catalogue.ids).effect[place] == before[0]
    assert place == 5
    assert len(answer["distribution"]) == 6
    check(inside)


def test_visitors_who_teach_nobody_move_no_item(opened: Any) -> None:
    inside = opened()
    inside.done(inside.service.change_teachers(["lcb"]))
    for user in (VISITOR, "caller"):
        before = effect_of(inside, "i3")
        inside.reward(inside.decide(user, arms=one_arm("i3"))["decision_id"], 1.0)
        assert (effect_of(inside, "i3") != before) == (user == "caller")
    inside.erase(VISITOR)
    check(inside)


def test_a_recommender_says_whether_it_uses_effects() -> None:
    spec = RecommenderSpec("lcb", "learned-classes").complete(None)
    assert spec.item_effects
    assert spec.settings["item_bonus"] == 1.0
    assert spec.settings["item_horizon"] == 100_000.0
    assert spec.settings["item_share"] == 0.2
    assert RecommenderSpec.from_json(spec.to_json()) == spec
    assert not RecommenderSpec("lcb", "thompson").complete(None).item_effects
    old = RecommenderSpec.from_json(b'{"bandit":"learned-classes","name":"lcb"}')
    assert old.item_effects is False
    lifted = b'{"bandit":"learned-classes","name":"lcb","item_effects":true,"settings":{"item_bonus":1.0}}'
    assert RecommenderSpec.from_json(lifted).settings["item_horizon"] == 0.0  # the rule that its decisions were made by
    assert RecommenderSpec("lcb", "learned-classes").complete(RecommenderSpec.from_json(lifted)).settings == {
        "item_bonus": 1.0, "item_horizon": 0.0,
    }  # fmt: skip
    assert RecommenderSpec("lcb", "learned-classes").complete(old).item_effects is False
    with pytest.raises(InputError, match="item_effects is true, but thompson does not use item effects"):
        RecommenderSpec("lcb", "thompson", item_effects=True)


def test_effects_of_a_catalogue_are_those_of_its_items(opened: Any) -> None:
    """The cached arrays follow rewards, versions and the catalogue, and a decision's copy does not change."""
    inside = opened()
    world: World = inside.service.world
    for n in range(12):
        whole = world.items.of_arms(world.state.catalogue.ids)
        kept = whole.effect.copy()
        assert [*zip(whole.effect, whole.variance, strict=True)] == [
            world.items.get(id) for id in world.state.catalogue.ids
        ]
        inside.reward(inside.decide(f"u{n}", arms=one_arm(f"i{n % 6}"))["decision_id"], float(n % 3 == 0))
        world.items.of_arms(world.state.catalogue.ids)
        np.testing.assert_array_equal(whole.effect, kept)
        if n == 6:
            add_version(inside, item_worlds.models({"i2": 0.1}))
        if n == 9:
            inside.items({"id": "i9", "x": [1.0, 0.0]}, remove=["i0"])


def test_items_that_came_since_are_forgotten_and_computed_again(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is asked for ever new items keeps few of them, and knows what their rewards have told."""
    monkeypatch.setattr("lcb.serve.state.items._MOST_KEPT", 3)
    inside = opened()
    items, rng = inside.service.world.items, np.random.default_rng(0)
    for n in range(30):
        ids = [f"i{i}" for i in rng.permutation(8)[:3]]
        answer = inside.decide(f"u{n}", arms=[{"id": id, "x": [1.0, 0.0]} for id in ids])
        inside.reward(answer["decision_id"], float(n % 2))
        alone = [items._compute(id) for id in ids]
        assert [*zip(*items.of_arms(ids)[:2], strict=True)] == alone
        assert len(items._others) <= 3
    check(inside)


def test_ever_new_ids_do_not_take_ever_more_memory(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcb.serve.state.items._MOST_SUMS", 3)
    inside = opened()
    for n in [*range(6), 0, 5]:
        id = inside.decide(f"u{n}", arms=[{"id": f"new{n}", "x": [1.0, 0.0]}])["decision_id"]
        inside.reward(id, 1.0)
    assert inside.service.world.items.sums.since.keys() == {"new0", "new1", "new2"}
    assert effect_of(inside, "new0")[0] > effect_of(inside, "new5")[0] == MEAN
    check(inside)
    inside.erase("u5")
    check(inside)


def test_models_with_effects_are_refused_for_recommenders_that_use_none(tmp_path: Path) -> None:
    from lcb.storage.models.folder import save_models

    save_models(item_worlds.models({"i0": 0.4}), tmp_path / "models")
    with pytest.raises(InputError, match="recommender lcb uses no item effects, but the classes of"):
        Inside(
            sqlite(tmp_path / "lcb.db"),
            item_worlds.settings(models=str(tmp_path / "models"), recommenders=(RecommenderSpec("lcb", "thompson"),)),
        )


def test_a_reward_of_a_log_without_items_is_still_read() -> None:
    body = events.RewardBody(0.0, 1, "lcb", 1.0, 1.0, b"", False, None)
    old = events.decode("reward", events.encode(tuple(getattr(body, one) for one in body.__struct_fields__[:11])))
    assert (old.item, old.effect, old.mean, old.residual) == (None, None, None, None)
