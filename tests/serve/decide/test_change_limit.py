"""Changed rewards of long histories take a share of the time, for each caller; other requests are not refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lcb.messages import RewardRequest
from lcb.serve.decide import change_limit
from lcb.serve.decide_many import reward_many
from lcb.serve.errors import Problem
from lcb.serve.threads import CALLER
from support.inside import Inside
from support.old_log import OldLog

N = 8


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Inside]:
    """A user `ann` with rewards that may change, whose folding takes seconds an event, as the service believes."""
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        log.live(1)
        for i in range(N):
            log.decide("ann", decision_id=f"ann{i}")
            log.reward(f"ann{i}", 1.0)
        log.service.world.late.cost.per_event = 1.0
        del log.service.rewards.limit.take  # simulated services have no limit
        yield log


def refusal(log: Inside, id: str, reward: float) -> Problem:
    with pytest.raises(Problem) as refused:
        log.ended(log.begin_reward(id, reward))
    return refused.value


def test_a_caller_who_changes_much_is_refused_until_their_share_is_there_again(log: Inside) -> None:
    log.reward("ann0", 2.0)
    problem, seq = refusal(log, "ann1", 2.0), log.service.world.seq
    assert problem.status == 429
    assert problem.retry_after is not None
    assert f"send this one again in {problem.retry_after} s" in problem.detail
    assert log.service.world.seq == seq
    log.pass_time(problem.retry_after)
    log.service.world.late.cost.per_event = 0.0
    assert log.reward("ann1", 2.0)["reward"] == 2.0


def test_other_requests_and_other_callers_are_not_refused(log: Inside) -> None:
    log.reward("ann0", 2.0)
    assert refusal(log, "ann1", 2.0).status == 429
    assert log.reward("ann1", 1.0)["reward"] == 1.0  # the same reward again changes nothing
    log.decide("ann", decision_id="next")
    log.reward("next", 1.0)  # a first reward
    CALLER.set("other")
    assert log.reward("ann1", 2.0)["reward"] == 2.0


def test_changes_of_one_user_in_a_batch_count_once_and_each_refused_element_says_so(log: Inside) -> None:
    requests = [RewardRequest(f"ann{i}", 2.0) for i in range(N)]
    assert all(isinstance(one, bytes) for one in log.done(reward_many(log.service, requests)))
    again = [RewardRequest(f"ann{i}", 3.0) for i in range(2)] + [RewardRequest("ann2", 2.0)]
    *refused, same = log.done(reward_many(log.service, again))
    assert [isinstance(one, Problem) and one.status for one in refused] == [429, 429]
    assert isinstance(same, bytes)


def test_changes_of_short_histories_are_not_limited(log: Inside) -> None:
    log.service.world.late.cost.per_event = change_limit.FREE / (3 * N)
    for i in range(90):  # a decision takes at most 100 rewards
        log.reward("ann0", 2.0 + i / 1000)
    log.service.world.late.cost.per_event = 1.0
    log.reward("ann1", 5.0)


def test_what_a_fold_takes_is_measured_for_the_user(log: Inside) -> None:
    cost = log.service.world.late.cost
    log.reward("ann0", 2.0)
    assert cost.per_event < 1.0
    cost.per_event = 1.0
    assert cost.estimate("ann", 1) == 2 * N + 1  # all events of the user, though fewer are counted


def test_changes_of_one_user_that_take_several_commits_count_for_each(
    log: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_limit, "TOGETHER", 4)
    found = log.done(reward_many(log.service, [RewardRequest(f"ann{i}", 2.0) for i in range(N)]))
    assert [isinstance(one, bytes) for one in found] == [True] * 3 + [False] * (N - 3)
