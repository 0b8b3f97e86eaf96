"""The retry rules without a connection: the test sets outcomes and checks the steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcb.client import RewardAnswer
from lcb.client.calls import Reply, erase, health, reward
from lcb.client.retries import Attempt, Lost, Policy, Tries, Wait
from lcb.errors import InputError, LCBError, ServiceError, Unreachable

FINE = Reply(200, b'{"decision_id": "d", "reward": 1.0}')
PROBLEM = b'{"type": "about:blank", "title": "t", "status": 422, "detail": "k is 0; ask for more", "field": "k"}'
CALL = reward("d", 1.0, None)


class Played:
    """A call played to its end on a clock of its own; each try takes `each` seconds."""

    def __init__(self, call: Any, policy: Policy, outcomes: Sequence[Reply | Lost], each: float = 0.0) -> None:
        self.now, self.tries, self.waits = 100.0, [], []
        self.answer, self.error = None, None
        tries, given = Tries(call, policy, lambda: self.now, lambda: 0.5), iter(outcomes)
        try:
            for step in tries:
                if isinstance(step, Wait):
                    self.waits.append(step.seconds)
                    self.now += step.seconds
                else:
                    assert isinstance(step, Attempt)
                    self.tries.append(step.seconds)
                    self.now += min(each, step.seconds)
                    tries.outcome = next(given)
            self.answer = tries.answer
        except LCBError as error:
            self.error = error


def test_an_answer_ends_it():
    played = Played(CALL, Policy(), [FINE])
    assert (played.answer, len(played.tries), played.waits) == (RewardAnswer("d", 1.0), 1, [])


@pytest.mark.parametrize("status", sorted(ServiceError.AGAIN))
def test_a_service_that_is_busy_is_asked_again(status):
    played = Played(CALL, Policy(pause=0.2), [Reply(status, PROBLEM), Reply(status, PROBLEM), FINE])
    assert (played.answer, played.waits) == (RewardAnswer("d", 1.0), [0.1, 0.2])
    given_up = Played(CALL, Policy(retries=0), [Reply(status, PROBLEM)]).error
    assert (given_up.status, given_up.again) == (status, True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 422, 500, 501, 301, 304])
def test_what_is_refused_is_not_asked_again(status):
    played = Played(CALL, Policy(), [Reply(status, PROBLEM)])
    assert isinstance(played.error, ServiceError)
    assert (played.error.status, played.error.detail, played.error.field) == (status, "k is 0; ask for more", "k")
    assert not played.error.again


@pytest.mark.parametrize("sent", [True, False])
def test_a_lost_try_is_made_again_with_the_same_bytes(sent):
    played = Played(CALL, Policy(), [Lost("reset", sent), FINE])
    assert (played.answer, len(played.tries)) == (RewardAnswer("d", 1.0), 2)


def test_retry_after_is_kept_to_in_seconds_and_as_a_date():
    assert Played(CALL, Policy(pause=0.2), [Reply(503, PROBLEM, "3"), FINE]).waits == [3.1]
    date = formatdate(time.time() + 5, usegmt=True)
    (wait,) = Played(CALL, Policy(pause=0.2), [Reply(429, PROBLEM, date), FINE]).waits
    assert 3.5 < wait <= 5.1
    assert Played(CALL, Policy(pause=0.2), [Reply(503, PROBLEM, "soon"), FINE]).waits == [0.1]


def test_what_does_not_fit_into_the_deadline_is_not_waited_for():
    played = Played(CALL, Policy(deadline=2.0), [Reply(503, PROBLEM, "60")])
    assert (played.waits, played.error.status) == ([], 503)


def test_a_service_that_restarts_is_waited_for_until_the_deadline():
    refused = [Lost("refused", False)] * 1000
    played = Played(CALL, Policy(deadline=10.0), refused)
    assert isinstance(played.error, Unreachable)
    assert 9.8 < played.now - 100 <= 10.0
    assert len(played.tries) < 40
    slow = Played(CALL, Policy(timeout=2.0, deadline=10.0), refused, each=2.0)
    assert 9.8 < slow.now - 100 <= 10.01
    assert Played(CALL, Policy(deadline=10.0), [*refused[:12], FINE]).answer == RewardAnswer("d", 1.0)


def test_who_does_not_answer_is_named_with_the_tries_and_the_time():
    played = Played(CALL, Policy(timeout=1, retries=2, pause=0.2), [Lost("refused", False)] * 3, each=0.5)
    assert isinstance(played.error, Unreachable)
    assert str(played.error).startswith("POST /v1/rewards got no answer in 3 attempts and 1.8 s (refused); check that")
    assert "in 1 attempt" in str(Played(CALL, Policy(retries=0), [Lost("refused", False)]).error)


def test_somebody_who_is_gone_at_the_second_try_was_erased_at_the_first():
    gone = Reply(404, PROBLEM)
    assert Played(erase("ann"), Policy(), [Lost("reset", True), gone]).answer.erased == 0
    for first in (Lost("refused", False), Reply(429, PROBLEM)):
        assert Played(erase("ann"), Policy(), [first, gone]).error.status == 404


def test_trouble_is_an_answer_about_health():
    played = Played(health(), Policy(), [Reply(503, b'{"status": "trouble", "detail": "disk full"}')])
    assert (played.answer.status, played.answer.detail) == ("trouble", "disk full")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"decision_id": "d"}', b"\xff", b"3", b""])
def test_an_answer_of_something_else_says_to_check_the_url(body):
    played = Played(CALL, Policy(), [Reply(200, body)])
    assert isinstance(played.error, ServiceError)
    assert "check the url" in str(played.error)
    assert "check the url" in str(Played(CALL, Policy(), [Reply(403, body)]).error)


@given(
    st.lists(st.sampled_from([Lost("a", True), Lost("b", False), Reply(503, PROBLEM, "1"), Reply(429, PROBLEM)])),
    st.integers(0, 6), st.floats(0.01, 20), st.floats(0.01, 5), st.floats(0, 6),
)  # fmt: skip
def test_tries_and_time_are_bounded(outcomes, retries, deadline, timeout, each):
    played = Played(CALL, Policy(timeout, retries, deadline), [*outcomes, FINE], each)
    assert 1 <= len(played.tries) <= retries + 1
    assert played.now - 100 <= deadline + 0.001 * len(played.tries) + 1e-9
    assert all(seconds <= timeout for seconds in played.tries)
    assert len(played.waits) == len(played.tries) - 1


@pytest.mark.parametrize(
    "settings", [{"timeout": 0}, {"deadline": -1}, {"pause": float("nan")}, {"retries": -1}, {"longest_pause": 0}]
)
def test_a_policy_that_cannot_be_kept_is_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Policy(**settings)
