"""Batches of both clients: elements that find the service busy are sent again, and none loses its id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lcb.client import AsyncClient, Client, ServiceError, Unreachable
from lcb.errors import InputError

BUSY = {"status": 503, "detail": "8 reads wait; try again in 1 s", "retry_after": 1}


class Service:
    """Answers batches; `refuse(n, id)` returns the refusal of an element in request n, or a whole response."""

    def __init__(self, refuse: Callable[[int, str], Any] = lambda n, id: None) -> None:
        self.refuse, self.sent, self.bodies = refuse, list[list[str]](), list[dict[str, Any]]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body, n = json.loads(request.content), len(self.sent)
        elements = body.get("decisions", body.get("rewards"))
        self.bodies.append(body)
        self.sent.append([one["decision_id"] for one in elements])
        outcomes = []
        for one in elements:
            refusal = self.refuse(n, one["decision_id"])
            if isinstance(refusal, httpx.Response):
                return refusal
            if isinstance(refusal, Exception):
                raise refusal
            answer = {"decision_id": one["decision_id"], "arm": "a", "propensity": 1.0, "distribution": [1.0],
                      "model": 1, "policy": "p", "recommender": "lcb", "reward": one.get("reward")}  # fmt: skip
            outcomes.append(refusal or {"status": 200, "answer": answer})
        return httpx.Response(200, json={"outcomes": outcomes})


class Asked:
    """A client on a clock that only its sleeps move."""

    def __init__(self, service: Service, in_loop: bool, **more: Any) -> None:
        self.slept: list[float] = []
        given = {"random": lambda: 0.5, "clock": lambda: sum(self.slept), "transport": httpx.MockTransport(service)}
        self.client: Any = (
            AsyncClient("http://service", sleep=self.sleep_in_loop, **given, **more)
            if in_loop
            else Client("http://service", sleep=self.slept.append, **given, **more)
        )

    async def sleep_in_loop(self, seconds: float) -> None:
        self.slept.append(seconds)

    def __call__(self, verb: str, *given: Any) -> Any:
        found = getattr(self.client, verb)(*given)
        return asyncio.run(found) if asyncio.iscoroutine(found) else found


Connect = Callable[..., Asked]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Connect:
    return lambda service, **more: Asked(service, request.param == "async", **more)


def make_decisions(n: int) -> list[dict[str, Any]]:
    return [{"user": f"u{i}", "decision_id": f"d{i}"} for i in range(n)]


def test_busy_elements_are_sent_again_with_their_ids_after_the_time_that_they_ask_for(connect: Connect) -> None:
    service = Service(lambda n, id: BUSY | {"retry_after": int(id[1:])} if n == 0 and id in ("d1", "d3") else None)
    asked = connect(service)
    found = asked("decide_batch", make_decisions(5), {"a": [1.0], "b": [2.0]})
    assert service.sent == [["d0", "d1", "d2", "d3", "d4"], ["d1", "d3"]]
    assert [body["arms"] for body in service.bodies] == [[{"id": "a", "x": [1.0]}, {"id": "b", "x": [2.0]}]] * 2
    assert asked.slept == [3.05]
    assert [(one.status, one.decision_id, one.answer.decision_id) for one in found] == [
        (200, f"d{i}", f"d{i}") for i in range(5)
    ]


def test_ids_are_made_before_the_first_attempt_and_kept(connect: Connect) -> None:
    service = Service(lambda n, id: BUSY if n < 2 else None)
    found = connect(service)("decide_batch", [{"user": "ann"}, {"user": "ben"}])
    assert len(service.sent) == 3
    assert service.sent[0] == service.sent[1] == service.sent[2] == [one.decision_id for one in found]
    assert len(set(service.sent[0])) == 2


def test_what_is_still_busy_in_the_end_is_reported_with_its_id(connect: Connect) -> None:
    service = Service(lambda n, id: BUSY | {"status": 429} if id == "d1" else None)
    asked = connect(service, retries=2)
    found = asked("decide_batch", make_decisions(3))
    assert [(one.status, one.decision_id) for one in found] == [(200, "d0"), (429, "d1"), (200, "d2")]
    assert (found[1].detail, found[1].retry_after, found[1].answer) == (BUSY["detail"], 1, None)
    assert service.sent == [["d0", "d1", "d2"], ["d1"], ["d1"]]
    deadline = connect(service)  # any number of retries, 10 s
    assert [one.status for one in deadline("decide_batch", make_decisions(3))] == [200, 429, 200]
    assert 8 < sum(deadline.slept) < 10


def test_a_refusal_for_another_reason_is_not_sent_again(connect: Connect) -> None:
    service = Service(lambda n, id: {"status": 422, "detail": "k is 0", "field": "k"} if id == "d1" else None)
    found = connect(service)("decide_batch", make_decisions(3))
    assert [(one.status, one.field, one.decision_id) for one in found][1] == (422, "k", "d1")
    assert len(service.sent) == 1


def test_rewards_of_a_sum_have_ids_of_their_own(connect: Connect) -> None:
    service = Service(lambda n, id: None)
    given = [{"decision_id": "a", "reward": 5, "reward_id": part} for part in ("p1", "p2")]
    found = connect(service)("reward_batch", [*given, {"decision_id": "b", "reward": 1}])
    assert service.bodies == [{"rewards": [*given, {"decision_id": "b", "reward": 1.0}]}]
    assert [(one.status, one.decision_id) for one in found] == [(200, "a"), (200, "a"), (200, "b")]


def test_busy_rewards_are_sent_again(connect: Connect) -> None:
    service = Service(lambda n, id: BUSY if n == 0 and id == "b" else None)
    found = connect(service)("reward_batch", {"a": 1, "b": 0, "c": 1})
    assert service.bodies[1] == {"rewards": [{"decision_id": "b", "reward": 0.0}]}
    assert [(one.status, one.decision_id, one.answer.reward) for one in found] == [
        (200, "a", 1.0), (200, "b", 0.0), (200, "c", 1.0),
    ]  # fmt: skip


def test_a_part_that_fails_as_a_whole_loses_no_outcome_of_those_before_it(connect: Connect) -> None:
    def refuse(n: int, id: str) -> Any:
        return None if int(id[1:]) < 100 else httpx.ConnectError("gone")

    service = Service(refuse)
    found = connect(service, retries=1)("decide_batch", make_decisions(320))
    assert [len(ids) for ids in service.sent] == [100, 100, 100]  # the last twenty are not sent
    assert [one.decision_id for one in found] == [f"d{i}" for i in range(320)]
    assert [one.status for one in found] == [200] * 100 + [503] * 220
    assert "got no answer in 2 attempts" in found[100].detail
    assert found[319].detail.startswith("not sent: ")


def test_a_part_that_is_lost_after_some_of_it_was_answered_keeps_these(connect: Connect) -> None:
    service = Service(
        lambda n, id: httpx.Response(401, json={"detail": "revoked"}) if n else BUSY if id > "d1" else None
    )
    found = connect(service)("decide_batch", make_decisions(4))
    assert [(one.status, one.detail) for one in found] == [(200, None), (200, None), (401, "revoked"), (401, "revoked")]


def test_a_batch_of_which_nothing_was_answered_raises_and_the_error_has_the_ids(connect: Connect) -> None:
    for refusal, kind, status in (
        (httpx.ConnectError("gone"), Unreachable, 503),
        (httpx.Response(503, json={"detail": "starting"}), ServiceError, 503),
        (httpx.Response(403, json={"detail": "no writer"}), ServiceError, 403),
    ):
        service = Service(lambda n, id, refusal=refusal: refusal)
        with pytest.raises(kind) as caught:
            connect(service, retries=1)("decide_batch", [{"user": "ann"}, {"user": "ben"}])
        assert [one.decision_id for one in caught.value.outcomes] == service.sent[0]
        assert {one.status for one in caught.value.outcomes} == {status}


def test_a_service_that_is_too_busy_for_a_whole_part_is_not_sent_the_next(connect: Connect) -> None:
    service = Service(lambda n, id: BUSY)
    found = connect(service, retries=1)("decide_batch", make_decisions(150))
    assert [len(ids) for ids in service.sent] == [100, 100]
    assert [(one.status, one.retry_after) for one in found] == [(503, 1)] * 150
    one_busy = Service(lambda n, id: BUSY if id == "d7" else None)
    found = connect(one_busy, retries=1)("decide_batch", make_decisions(150))
    assert [one.decision_id for one in found if one.status != 200] == ["d7"]


def test_an_answer_with_too_few_outcomes_is_no_answer_of_lcb(connect: Connect) -> None:
    service = Service(lambda n, id: httpx.Response(200, json={"outcomes": []}))
    with pytest.raises(ServiceError, match="0 outcomes for 2 elements; check the url"):
        connect(service)("decide_batch", make_decisions(2))


def test_nothing_is_sent_if_an_element_cannot_be(connect: Connect) -> None:
    service = Service()
    asked = connect(service)
    assert asked("decide_batch", []) == []
    with pytest.raises(InputError, match="finite"):
        asked("decide_batch", [*make_decisions(200), {"user": "ann", "x": [float("nan")]}])
    with pytest.raises(InputError, match=r"decision 1 is .*give the arguments of decide"):
        asked("decide_batch", [{"user": "ann"}, {"person": "ben"}])
    assert service.sent == []
