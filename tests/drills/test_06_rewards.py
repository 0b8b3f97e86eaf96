"""Drill 6: a reward sent several times counts once; another value is refused, or handled by the log's reward rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import RewardRule, Settings
from lcb.serve.decide import rewards
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from support.crashing_stores import ARMS
from support.inside import Inside, fold_log, sqlite

RECOMMENDERS = (RecommenderSpec("own", "linucb"), RecommenderSpec("everyone", "linucb", scope="everyone"))
Defect = Callable[[Service], None] | None


def opened(folder: Path, rule: RewardRule = "once", broken: Defect = None, name: str = "own") -> Inside:
    given = Settings(recommenders=RECOMMENDERS, shares={name: 1.0}, rewards=rule, pages=False, reward_range=(0.0, 10.0))
    return Inside(sqlite(folder / f"{rule}-{name}.db"), given, broken=broken)


def state(inside: Inside) -> bytes:
    """Return everything that a reward can change."""
    user = inside.service.world.user("ann")
    assert user is not None
    shared = b"".join(state.tobytes() for state in inside.service.world.shared.states.values())
    return (
        shared + (b"" if user.state is None else user.state.tobytes()) + bytes([user.n_rewards, int(user.reward_sum)])
    )


def check(inside: Inside, head: int) -> None:
    assert inside.store.head() == head, "a reward is there twice"
    assert verify(inside.store).differences == []
    again = fold_log(inside.store).user("ann")
    user = inside.service.world.user("ann")
    assert again is not None
    assert user is not None
    assert again.pack() == user.pack(), "a reward counted more than once"


def drill(folder: Path, name: str, broken: Defect = None) -> None:
    with opened(folder, broken=broken, name=name) as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        before = state(inside)
        first = inside.ended(inside.begin_reward(id, 1.0))
        after, head = state(inside), inside.store.head()
        assert after != before
        at_once = [inside.begin_reward(id, 1.0) for _ in range(5)]
        inside.write()
        assert [one.result() for one in at_once] == [first] * 5, "the same reward has two answers"
        assert inside.status(inside.begin_reward(id, 0.0)) == 409
        inside.crash()
        assert inside.ended(inside.begin_reward(id, 1.0)) == first
        assert inside.status(inside.begin_reward(id, 0.0)) == 409
        assert inside.status(inside.begin_reward("nothing", 1.0)) == 404
        assert inside.status(inside.begin_reward(f"{id}/0", 1.0)) == 404
        assert state(inside) == after, "a reward counted more than once"
        check(inside, head)


@pytest.mark.parametrize("name", ["own", "everyone"])
def test_a_reward_counts_once(tmp_path: Path, name: str) -> None:
    drill(tmp_path, name)


@pytest.mark.parametrize("name", ["own", "everyone"])
def test_two_of_a_kind_at_once_count_once(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, name=name) as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        asked = [inside.begin_reward(id, value) for value in (1.0, 1.0, 0.0, 1.0)]
        inside.write()
        assert [inside.status(one) for one in asked] == [200, 200, 409, 200]
        check(inside, inside.store.head())
        assert sum(row.kind == "reward" for row in inside.store.events(0)) == 1


def test_a_reward_may_come_for_a_decision_that_is_still_on_its_way(tmp_path: Path) -> None:
    with opened(tmp_path) as inside:
        decision = inside.begin_decide("ann", arms=ARMS, decision_id="d1")
        reward = inside.begin_reward("d1", 1.0)
        inside.write()
        assert (inside.status(decision), inside.status(reward)) == (200, 200)


@pytest.mark.parametrize("rule, counts", [("first", [1.0, 1.0, 1.0, 1.0]), ("last", [1.0, 3.0, 2.0, 2.0])])
@pytest.mark.parametrize("name", ["own", "everyone"])
def test_another_value_does_what_the_log_declares(
    tmp_path: Path, rule: RewardRule, counts: list[float], name: str
) -> None:
    with opened(tmp_path, rule, name=name) as inside:
        ids = [inside.decide("ann", arms=ARMS)["decision_id"] for _ in range(3)]
        for id in ids:
            found = [inside.reward(id, value)["reward"] for value in (1.0, 3.0, 2.0, 2.0)]
            assert found == counts
        inside.crash()
        assert inside.reward(ids[0], 2.0)["reward"] == counts[-1]
        check(inside, inside.store.head())
        user = inside.service.world.user("ann")
        assert user is not None
        assert (user.n_rewards, user.reward_sum) == (3, 3 * counts[-1])


def test_parts_of_a_sum_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    with opened(tmp_path, "sum") as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        for part, value, total in (("a", 1.0, 1.0), ("b", 1.0, 2.0), ("a", 1.0, 2.0), ("c", 0.5, 2.5)):
            assert inside.reward(id, value, reward_id=part)["reward"] == total
        assert inside.status(inside.begin_reward(id, 9.0, reward_id="a")) == 409
        check(inside, inside.store.head())


def test_a_reward_without_an_id_is_one_part_of_a_sum(tmp_path: Path) -> None:
    with opened(tmp_path, "sum") as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        assert [inside.reward(id, 5.0)["reward"], inside.reward(id, 5.0)["reward"]] == [5.0, 5.0]
        words = "without a reward_id is 5 in the log, not 7; to add to it, send each further one with its own"
        with pytest.raises(Problem, match=words) as refused:
            inside.reward(id, 7.0)
        assert (refused.value.status, refused.value.field) == (409, "reward")
        assert inside.reward(id, 5.0, reward_id="b")["reward"] == 10.0
        inside.crash()
        assert inside.reward(id, 5.0)["reward"] == 10.0
        check(inside, inside.store.head())


def test_parts_without_an_id_of_an_older_log_are_not_added_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, "sum") as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        for value in (2.0, 3.0):
            monkeypatch.setattr(rewards, "_NO_ID", f"={value}")  # as they were named
            monkeypatch.setattr(rewards, "_find_sent", lambda parts, part, reward: parts.get(part))
            inside.reward(id, value)
        monkeypatch.undo()
        assert [inside.reward(id, value)["reward"] for value in (3.0, 2.0)] == [5.0, 5.0]
        assert inside.status(inside.begin_reward(id, 1.0)) == 409
        check(inside, inside.store.head())


def test_a_service_that_applies_a_reward_twice_fails(tmp_path: Path) -> None:
    def twice(service: Service) -> None:
        kept = service.world._apply_reward

        def apply(row, body) -> None:
            kept(row, body)
            kept(row, body)

        service.world._apply_reward = apply  # type: ignore[method-assign]

    with pytest.raises(AssertionError, match="more than once"):
        drill(tmp_path, "own", twice)


def test_a_service_that_does_not_remember_rewards_fails(tmp_path: Path) -> None:
    def forgetful(service: Service) -> None:
        kept = service.rewards.reward

        def reward(request):
            service.slots.get(request.decision_id).reward = None
            return kept(request)

        service.rewards.reward = reward  # type: ignore[method-assign]

    with pytest.raises(AssertionError):
        drill(tmp_path, "own", forgetful)


def test_the_answer_says_what_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as inside:
        id = inside.decide("ann", arms=ARMS)["decision_id"]
        assert json.loads(inside.ended(inside.begin_reward(id, 0.25))) == {"decision_id": id, "reward": 0.25}


@pytest.mark.parametrize("rule", ["last", "sum"])
def test_one_decision_takes_a_hundred_rewards_and_no_more(tmp_path: Path, rule: RewardRule) -> None:
    """Each is an event, and applying it reads all events of its user: one user could fill the log, and slow it down."""

    def send(i: int) -> None:
        inside.reward(id, 0.0001 * (i + 1), **({"reward_id": str(i)} if rule == "sum" else {}))

    with opened(tmp_path, rule) as inside:
        id = inside.decide("ann", arms=[{"id": "a", "x": [1.0]}])["decision_id"]
        for i in range(100):
            send(i)
        seq = inside.service.world.seq
        for i in range(100, 103):
            with pytest.raises(Problem, match="has had 100 rewards, each an event of the log, and takes no more"):
                send(i)
        send(99)  # the last one again
        assert inside.service.world.seq == seq
