"""After an erasure the log and every state rebuilt from it are as if the user had never existed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.state import late_folds
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models, save_models
from support.harness import classes
from support.inside import Inside, fold_log, sqlite

ARMS = [{"id": "a", "x": [1.0, 0.0, 0.5]}, {"id": "b", "x": [0.0, 1.0, 0.5]}]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lcb.db"


@pytest.fixture
def opened(place: Path) -> Iterator[Any]:
    made: list[Inside] = []

    def open_one(*recommenders: RecommenderSpec, **more: Any) -> Inside:
        given = Settings(
            recommenders=recommenders or (RecommenderSpec("lcb"),), pages=False, **{"reward_range": (0.0, 10.0)} | more
        )
        made.append(Inside(sqlite(place), given))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def same(live: World, again: World, users: tuple[str, ...] = ()) -> None:
    assert compare_worlds(live, again) == []
    for name in users:
        one, other = live.user(name), again.user(name)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.pack() == other.pack()


EVERYONE = RecommenderSpec("population", "linucb", scope="everyone")
OWN = RecommenderSpec("own", "linucb")


@pytest.mark.parametrize("spec", [RecommenderSpec("lcb"), EVERYONE, OWN])
def test_the_very_first_user_of_a_log_can_be_erased(opened: Any, spec: RecommenderSpec) -> None:
    inside = opened(spec)
    id = inside.decide("first", arms=ARMS)["decision_id"]
    inside.reward(id, 1.0)
    assert inside.erase("first") == 2
    again = fold_log(inside.store)
    same(inside.service.world, again, ("first",))
    assert again.state.n_features == 3


@pytest.mark.parametrize("spec", [RecommenderSpec("lcb"), EVERYONE])
def test_a_state_shared_by_all_keeps_what_an_erased_person_taught_it(opened: Any, spec: RecommenderSpec) -> None:
    inside = opened(spec)
    for user in ("ann", "bob", "ann"):
        inside.reward(inside.decide(user, arms=ARMS)["decision_id"], 1.0)
    before = {name: state.tobytes() for name, state in inside.service.world.shared.states.items()}
    inside.erase("ann")
    assert before == {name: state.tobytes() for name, state in inside.service.world.shared.states.items()}
    assert before == {name: state.tobytes() for name, state in fold_log(inside.store).shared.states.items()}
    same(inside.service.world, fold_log(inside.store), ("ann", "bob"))


@pytest.mark.parametrize("spec", [RecommenderSpec("lcb"), EVERYONE])
@pytest.mark.parametrize("alone", [False, True])
def test_features_that_built_nothing_are_in_no_byte_of_the_file(
    opened: Any, place: Path, spec: RecommenderSpec, alone: bool
) -> None:
    inside = opened(spec)
    if not alone:
        inside.reward(inside.decide("bob", arms=ARMS)["decision_id"], 1.0)
    secret = [{"id": "a", "x": [0.6123456789, 0.25, -1.5]}]
    for _ in range(2):
        inside.decide("ann", arms=secret)
    before = {name: state.tobytes() for name, state in inside.service.world.shared.states.items()}
    inside.erase("ann")
    found = b"".join(file.read_bytes() for file in place.parent.iterdir() if file.is_file())
    assert struct.pack("<d", 0.6123456789) not in found
    again = fold_log(inside.store)
    assert before == {name: state.tobytes() for name, state in again.shared.states.items()}
    assert again.state.n_features == 3
    same(inside.service.world, again, ("ann", "bob"))
    assert verify(inside.store).differences == []


def test_decisions_that_a_shared_state_counted_stay_without_a_name(opened: Any) -> None:
    inside = opened(RecommenderSpec("counts", "ucb1", scope="everyone"))
    arms = [{"id": f"a{i}", "x": np.eye(3)[i].tolist()} for i in range(3)]
    for user in ("ann", "bob", "ann"):
        inside.decide(user, arms=arms)
    before = {name: state.tobytes() for name, state in inside.service.world.shared.states.items()}
    inside.erase("ann")
    assert before == {name: state.tobytes() for name, state in fold_log(inside.store).shared.states.items()}
    assert verify(inside.store).differences == []


def test_a_person_who_comes_back_is_somebody_new(opened: Any) -> None:
    inside = opened(OWN)
    inside.reward(inside.decide("ann", arms=ARMS, decision_id="d1")["decision_id"], 1.0)
    inside.erase("ann")
    assert inside.decide("ann", arms=ARMS, decision_id="d1")["decision_id"] == "d1"
    user = inside.service.world.user("ann")
    assert user is not None
    assert (user.n_decisions, user.n_rewards) == (1, 0)
    same(inside.service.world, fold_log(inside.store), ("ann",))
    inside.crash()
    same(inside.service.world, fold_log(inside.store), ("ann",))


@pytest.mark.parametrize("spec", [RecommenderSpec("lcb"), EVERYONE, OWN])
@pytest.mark.parametrize("kept_after", range(8))
def test_erased_after_a_snapshot_in_the_middle_is_erased_all_the_same(
    opened: Any, spec: RecommenderSpec, kept_after: int, tmp_path: Path
) -> None:
    save_models(classes(n_features=3), tmp_path / "models")
    more = {"models": str(tmp_path / "models")} if spec.over_classes and kept_after % 2 else {}
    inside = opened(spec, **more)
    for i in range(8):
        name = "ann" if i % 4 < 3 else "bob"
        id = inside.decide(name, arms=ARMS)["decision_id"]
        inside.reward(id, 3.0)
        if i == kept_after:
            world = inside.service.world
            inside.store.append([], world.seq, inside.service.build_snapshots())
    inside.erase("ann")
    same(inside.service.world, fold_log(inside.store), ("ann", "bob"))
    inside.crash()
    same(inside.service.world, fold_log(inside.store), ("ann", "bob"))


def test_one_who_settles_after_the_snapshot_was_not_counted_as_settled_in_it(opened: Any, tmp_path: Path) -> None:
    save_models(classes(n_features=3), tmp_path / "models")
    inside = opened(RecommenderSpec("lcb"), models=str(tmp_path / "models"))
    world = inside.service.world
    ids = [inside.decide("ann", arms=ARMS)["decision_id"] for _ in range(2)]
    inside.store.append([], world.seq, [world.snapshot()])
    for id in ids:
        inside.reward(id, 8.0)
    user = world.user("ann")
    assert user is not None
    assert user.settled == 2
    inside.erase("ann")
    inside.crash()
    same(inside.service.world, fold_log(inside.store))
    assert inside.service.world.concentration == {}


@pytest.mark.parametrize("counted", [None, 3])
def test_the_users_before_a_training_are_counted_without_the_erased(opened: Any, counted: int | None) -> None:
    inside = opened(OWN)
    for name in ("ann", "bob", "cid"):
        inside.decide(name, arms=ARMS)
    manifest, tensors = pack_models(classes(n_features=3))
    more = {} if counted is None else {"n_started": counted, "seen": inside.service.world.seq}
    inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=3, **more))
    for name in ("dan", "eve"):
        inside.decide(name, arms=ARMS)
    assert inside.service.world.started_at_training == 3
    inside.erase("ann")
    inside.erase("dan")
    assert inside.service.world.started_at_training == 2
    same(inside.service.world, fold_log(inside.store))


def test_what_comes_for_a_person_while_they_are_erased_is_made_again_after(opened: Any) -> None:
    inside = opened(EVERYONE)
    for name in ("ann", "bob"):
        inside.decide(name, arms=ARMS, decision_id=f"{name}1")
    erasing = inside.ask(inside.service.erase("ann"))
    reward = inside.begin_reward("ann1", 1.0)
    other = inside.begin_reward("bob1", 1.0)
    decision = inside.begin_decide("ann", arms=ARMS, decision_id="ann2")
    inside.write()
    assert erasing.result() == 1
    assert inside.status(reward) == 404
    assert inside.status(other) == 200
    assert inside.status(decision) == 200
    assert inside.service.journal.broken is None
    assert [row.id for row in inside.store.events_of("ann")] == ["ann2"]
    same(inside.service.world, fold_log(inside.store), ("ann", "bob"))


def test_an_erased_name_is_in_no_byte_of_the_file(opened: Any, place: Path) -> None:
    inside = opened(RecommenderSpec("lcb"))
    inside.items({"id": "film-of-ann", "x": [1.0, 0.0, 0.0]}, {"id": "other", "x": [0.0, 1.0, 0.0]})
    for i in range(300):
        name = "Ann-Secret-Name" if i % 3 == 0 else f"user{i}"
        arms = [{"id": f"secret-{i}", "x": [0.1, 0.2, 0.3]}] if i % 3 == 0 else ARMS
        inside.reward(inside.decide(name, arms=arms, decision_id=f"{name}.{i}")["decision_id"], 1.0)
    inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())
    assert b"Ann-Secret-Name" in place.read_bytes() + Path(f"{place}-wal").read_bytes()
    inside.erase("Ann-Secret-Name")
    found = b"".join(file.read_bytes() for file in place.parent.iterdir() if file.is_file())
    assert b"Ann-Secret-Name" not in found
    assert b"secret-" not in found
    assert b"user1." in found
    same(inside.service.world, fold_log(inside.store), ("user1",))


def test_an_erasure_begins_when_the_world_is_where_the_log_is(opened: Any) -> None:
    inside = opened(EVERYONE)
    inside.decide("ann", arms=ARMS, decision_id="d1")
    reward, erasing = inside.begin_reward("d1", 1.0), inside.ask(inside.service.erase("ann"))
    journal = inside.service.journal
    assert journal.step(wait=False)  # the reward is in the log, and not yet in the world
    assert journal.step(wait=False)
    assert [row.id for row in inside.store.events_of("ann")] == ["d1", "r/d1"]
    inside.write()
    assert (inside.status(reward), erasing.result()) == (200, 2)
    same(inside.service.world, fold_log(inside.store), ("ann",))


@pytest.mark.parametrize("at_once", ["asked", "written"])
def test_a_person_with_changed_rewards_that_are_not_folded_yet_can_be_erased(
    opened: Any, monkeypatch: pytest.MonkeyPatch, at_once: str
) -> None:
    monkeypatch.setattr(late_folds, "_SOME", -1.0)  # one user is folded in each turn of the event loop
    inside = opened(RecommenderSpec("lcb"), rewards="last")
    names = [f"user{i}" for i in range(12)]
    for name in names:
        inside.reward(inside.decide(name, arms=ARMS, decision_id=name)["decision_id"], 1.0)
    service = inside.service
    rewards = [inside.begin_reward(name, 2.0) for name in names]
    erasing = inside.ask(service.erase(names[-1])) if at_once == "written" else None
    inside.turn(1)
    assert service.journal.step(wait=False)  # the rewards are in the log
    inside.turn(1)
    assert names[-1] in service.world.late.names, "all users are folded; the case is not met"
    if erasing is None:
        erasing = inside.ask(service.erase(names[-1]))
    for _ in range(50):
        service.journal.step(wait=False)
        inside.turn(1)
    assert service.journal.broken is None
    assert erasing.result() == 3
    assert [inside.status(one) for one in rewards] == [200] * len(rewards)
    same(service.world, fold_log(inside.store), tuple(names))
    assert verify(inside.store).differences == []
