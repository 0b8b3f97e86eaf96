"""A user is pinned to one recommender and one model version, even by concurrent first requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lcb import messages
from lcb.errors import InputError
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.serve.errors import Problem
from lcb.serve.retain.without_snapshots import WithoutSnapshots
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models
from support.harness import classes
from support.inside import Inside, fold_log, sqlite

ARMS = [{"id": "a", "x": [1.0, 0.0, 0.5]}, {"id": "b", "x": [0.0, 1.0, 0.5]}]


async def at_once(service: Service, **request: Any) -> bytes:
    """As another replica would: without waiting for a first decision that is on its way."""
    return await waited(service, service.decisions.decide(msgspec.convert(request, messages.DecisionRequest)))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda *recommenders: stack.enter_context(
            Inside(sqlite(tmp_path / "lcb.db"), Settings(recommenders=recommenders, pages=False))
        )


def under_two_versions(inside: Inside, asked: Any) -> list[int]:
    """The models of two first decisions of one user, one made before and one after an activation."""
    for n_classes in (2, 5):
        manifest, tensors = pack_models(classes(n_classes=n_classes, n_features=3))
        inside.done(inside.service.add_model(manifest, tensors, active=n_classes == 2, reason="a test", n_users=1))
    activating = inside.ask(inside.service.activate(2, "a test"))
    first = asked("d1")
    inside.service.journal.step(most=1, wait=False)
    inside.turn()
    assert activating.done()
    second = asked("d2")
    inside.write()
    return [msgspec.json.decode(inside.ended(one))["model"] for one in (first, second)]


def test_a_second_first_decision_waits_for_the_first(opened: Any) -> None:
    inside = opened(RecommenderSpec("lcb", "exp4"))
    models = under_two_versions(inside, lambda id: inside.begin_decide("ann", arms=ARMS, decision_id=id))
    assert models == [1, 1]


def test_two_first_decisions_around_an_activation_pin_a_user_to_the_first(opened: Any) -> None:
    inside = opened(RecommenderSpec("lcb", "exp4"))
    models = under_two_versions(
        inside, lambda id: inside.ask(at_once(inside.service, user="ann", arms=ARMS, decision_id=id))
    )
    assert models == [1, 2]
    for id in ("d1", "d2"):
        inside.reward(id, 1.0)
    assert inside.service.journal.broken is None
    user = inside.service.world.user("ann")
    assert user is not None
    assert (user.model, user.n_decisions, user.n_rewards) == (1, 2, 2)
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
    assert verify(inside.store).differences == []
    inside.erase("ann")
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []


def test_two_first_decisions_of_two_recommenders_count_for_the_first(opened: Any) -> None:
    inside = opened(RecommenderSpec("own", "linucb"), RecommenderSpec("population", "linucb", scope="everyone"))
    inside.done(
        inside.service.put_items(messages.ItemsRequest([messages.ItemRequest("c", [0.0, 0.0, 0.0])]))
    )  # the size is known
    request = msgspec.convert({"user": "ann", "arms": ARMS}, messages.DecisionRequest)
    made = [inside.service.decisions.decide(request, name) for name in ("population", "own")]
    asked = [inside.ask(waited(inside.service, one)) for one in made]
    inside.write()
    for one in asked:
        inside.reward(msgspec.json.decode(one.result())["decision_id"], 1.0)
    assert inside.service.world.tallies["population"].n_decisions == 2
    assert "own" not in inside.service.world.tallies
    assert verify(inside.store).differences == []
    inside.erase("ann")
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []


async def waited(service: Service, entry: Any) -> bytes:
    await service.journal.append(entry)
    return entry.answer


def test_whoever_gave_up_waiting_does_not_hold_up_the_next_who_asks(opened: Any) -> None:
    inside = opened(RecommenderSpec("lcb"))
    first = inside.begin_decide("ann", arms=ARMS, decision_id="d1")
    inside.pass_time(60)
    inside.turn()
    assert inside.status(first) == 503
    again = inside.begin_decide("ann", arms=ARMS, decision_id="d1")
    inside.turn()
    assert again.done(), "it goes round in circles until the store answers"
    with pytest.raises(Problem):
        again.result()
    inside.write()
    assert inside.decide("ann", arms=ARMS, decision_id="d1")["decision_id"] == "d1"
    assert inside.store.head() == 3


def test_of_two_models_added_at_once_each_gets_a_number_of_its_own(opened: Any) -> None:
    inside = opened(RecommenderSpec("lcb"))
    packed = [pack_models(classes(n_classes=n, n_features=3)) for n in (2, 5)]
    asked = [inside.ask(inside.service.add_model(*one, active=True, reason="a test", n_users=1)) for one in packed]
    inside.write()
    inside.write()
    assert sorted(one.result() for one in asked) == [1, 2]
    assert {n: version.models().n_classes for n, version in inside.service.world.state.versions.items()} == {1: 2, 2: 5}


def serve_ann_under_two_versions(path: Path, pin: bool) -> Any:
    """Return ann's answers: four in the warm-up, four under each of two versions, each with a reward."""
    spec = RecommenderSpec("lcb", "learned-classes")
    inside = Inside(sqlite(path), Settings(recommenders=(spec,), pages=False, learning=Learning(pin=pin)))
    with inside:
        answers = []
        for version in range(3):
            if version:
                manifest, tensors = pack_models(classes(version, n_classes=version + 1, n_features=3))
                inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))
            for i in range(4):
                answers.append(inside.decide("ann", arms=ARMS, decision_id=f"d{version}.{i}"))
                inside.decide(f"other{version}", arms=ARMS)
                inside.reward(answers[-1]["decision_id"], 1.0 if i % 2 else 0.0)
        world = inside.service.world
        user = world.user("ann")
        assert compare_worlds(world, fold_log(inside.store)) == []
        assert verify(inside.store).differences == []
        per_model = dict(world.users_per_model)
        inside.erase("ann")
        assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
        assert verify(inside.store).differences == []
        return answers, user, per_model


def test_users_of_statistics_follow_the_newest_version_with_all_their_rewards(tmp_path: Path) -> None:
    answers, user, per_model = serve_ann_under_two_versions(tmp_path / "lcb.db", pin=False)
    assert [answer["model"] for answer in answers] == [0] * 4 + [1] * 4 + [2] * 4
    assert [answer["policy"] for answer in answers[::4]] == ["linucb", "learned-classes", "learned-classes"]
    assert user.model == 2
    assert user.state[-1] == 12  # rewards, those of the warm-up included
    assert per_model == {0: 1, 1: 1, 2: 2}


def test_with_pin_users_of_statistics_keep_the_version_they_met(tmp_path: Path) -> None:
    answers, user, per_model = serve_ann_under_two_versions(tmp_path / "lcb.db", pin=True)
    assert {answer["model"] for answer in answers} == {0}
    assert (user.model, user.state) == (0, None)
    assert per_model == {0: 2, 1: 1, 2: 1}


def test_users_of_statistics_are_settled_and_counted_under_the_version_they_last_used(tmp_path: Path) -> None:
    settings = Settings(recommenders=(RecommenderSpec("lcb", "learned-classes"),), pages=False)
    with Inside(sqlite(tmp_path / "lcb.db"), settings) as inside:
        world, service = inside.service.world, inside.service
        for seed in (1, 2):
            manifest, tensors = pack_models(classes(seed, n_classes=2, n_features=3))
            inside.done(service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))
            for i in range(3):
                answer = inside.decide("ann", arms=ARMS, decision_id=f"{seed}.{i}")
                inside.reward(answer["decision_id"], 1.0)
        user = world.user("ann")
        assert user is not None
        assert 1 <= user.settled <= 6
        assert max(world.fold.posterior(user)) > 0.9
        assert world.concentration == {2: {user.settled: 1}}
        assert compare_worlds(world, fold_log(inside.store)) == []
        assert verify(inside.store).differences == []


def test_logs_from_before_statistics_were_settled_still_have_no_settled_users() -> None:
    spec = RecommenderSpec("lcb", "learned-classes", pin=False)
    assert spec.complete(None).settles
    old = RecommenderSpec.from_json(b'{"bandit":"learned-classes","name":"lcb","pin":false}')
    assert not spec.complete(old).settles
    assert "settles" not in old.to_json().decode()


def test_a_replica_that_is_behind_counts_an_erased_user_under_the_version_it_knew(tmp_path: Path) -> None:
    settings = Settings(recommenders=(RecommenderSpec("lcb", "learned-classes"),), pages=False)
    with Inside(sqlite(tmp_path / "lcb.db"), settings) as inside:
        behind = World(WithoutSnapshots(inside.store))  # type: ignore[arg-type]
        for version in (1, 2):
            manifest, tensors = pack_models(classes(version, n_classes=2, n_features=3))
            inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))
            for user in ("ann", "bob"):
                inside.reward(inside.decide(user, arms=ARMS)["decision_id"], 1.0)
            if version == 1:
                behind.load()
        inside.erase("ann")
        for row in inside.store.events(behind.seq):
            behind.apply(row)
        assert behind.users_per_model == inside.service.world.users_per_model == {2: 1}
        assert compare_worlds(behind, inside.service.world) == []


def test_a_bandit_whose_state_belongs_to_a_version_cannot_follow_the_newest() -> None:
    with pytest.raises(InputError, match="set pin to true"):
        RecommenderSpec("lcb", "thompson", pin=False)
    assert "pin" not in RecommenderSpec("lcb", "thompson").to_json().decode()  # as in logs of earlier versions
    kept = RecommenderSpec.from_json(b'{"bandit":"learned-classes","name":"lcb","pin":false}')
    assert kept == RecommenderSpec("lcb", "learned-classes", uniform=0.0, pin=False, item_effects=False)
