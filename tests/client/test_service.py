"""The clients with a real service, which loses answers on the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lcb.client import AsyncClient, Client, Item, ServiceError
from support.harness import Server, classes, models_folder, serving
from support.raw_requests import Local

ARMS = {f"a{i}": x for i, x in enumerate(np.random.default_rng(0).normal(size=(5, 6)))}


class Dropping(httpx.BaseTransport):
    """Every other answer is lost after the service has given it."""

    def __init__(self) -> None:
        self.inner, self.n = httpx.HTTPTransport(), 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        response.read()
        self.n += 1
        if self.n % 2:
            raise httpx.ReadError("dropped", request=request)
        return response

    def close(self) -> None:
        self.inner.close()


class AsyncDropping(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner, self.n = inner, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.inner.handle_async_request(request)
        await response.aread()
        self.n += 1
        if self.n % 2:
            raise httpx.ReadError("dropped", request=request)
        return response


def events(file: Path, user: str) -> list[Any]:
    with sqlite3.connect(file) as connection:
        found = connection.execute("select id, kind from event where user = ? order by seq", (user,)).fetchall()
    connection.close()
    return found


def test_a_decision_whose_answer_was_lost_is_made_once(service: Server):
    with Client(service.address, transport=Dropping(), sleep=lambda seconds: None) as client:
        decision = client.decide("ann", ARMS)
        answer = client.reward(decision.decision_id, 1.0)
        known = client.user("ann")
    assert events(service.output.parent / "lcb.db", "ann") == [
        (decision.decision_id, "decision"), (f"r/{decision.decision_id}", "reward")
    ]  # fmt: skip
    assert (answer.reward, known.n_decisions, known.n_rewards) == (1.0, 1, 1)
    with Client(service.address) as client:
        assert client.decide("ann", ARMS, decision_id=decision.decision_id) == decision


def test_an_async_decision_whose_answer_was_lost_is_made_once(tmp_path: Path):
    with Local(str(tmp_path / "lcb.db"), models=models_folder(tmp_path)) as local:

        async def session() -> tuple[Any, ...]:
            async def at_once(seconds: float) -> None: ...

            transport = AsyncDropping(local.transport())
            async with AsyncClient("http://localhost", transport=transport, sleep=at_once) as client:
                decision = await client.decide("ann", ARMS)
                await client.reward(decision.decision_id, 1.0)
                known = await client.user("ann")
                return decision, known, await client.erase("ann")

        decision, known, erased = local.run(session())
        assert (known.n_decisions, known.n_rewards, erased.erased) == (1, 1, 0)
        assert [row.kind for row in local.read_log_and_state().rows[-3:]] == [
            "erased decision",
            "erased reward",
            "erase",
        ]
        assert decision.arm in ARMS


def test_a_session_of_every_verb(service: Server):
    with Client(service.address) as client:
        assert client.health().status == "ok"
        items = [Item(id, x=tuple(x)) for id, x in ARMS.items()]
        assert client.put_items(items).n_items == 5
        assert {one.id: one.x for one in client.items().items} == {one.id: one.x for one in items}
        shown = client.decide("bob", k=3)
        assert [slot.reward_id for slot in shown.slots] == [f"{shown.decision_id}/{i}" for i in range(3)]
        assert client.rewards({slot.reward_id: 1.0 for slot in shown.slots}) == {}
        assert list(client.rewards({shown.slots[0].reward_id: 0.0, shown.slots[1].reward_id: 1.0})) == [
            shown.slots[0].reward_id
        ]
        known = client.user("bob")
        assert len(known.posterior) == len(classes().pi)
        assert (known.n_decisions, known.n_rewards) == (3, 3)
        left = client.decide("bob", seen="exclude", exclude=["a0"])
        assert left.arm not in {"a0", *(slot.arm for slot in shown.slots)}
        many = client.decide_batch([{"user": f"u{i}"} for i in range(101)] + [{"user": "cy", "k": 0}], ARMS)
        assert [outcome.status for outcome in many] == [200] * 101 + [422]
        ids = [outcome.answer.decision_id for outcome in many[:2]]
        assert client.decide("u1", ARMS, decision_id=ids[1]) == many[1].answer
        rewarded = client.reward_batch({ids[0]: 1.0, "unknown": 1.0})
        assert [outcome.status for outcome in rewarded] == [200, 404]
        shadow = client.decide("bob", ["a0", "a1"], chosen="a1", chosen_propensity=0.5)
        assert (shadow.arm, shadow.propensity) == ("a1", 0.5)
        assert shadow.would in ("a0", "a1")
        assert client.erase("bob").erased == 6
        with pytest.raises(ServiceError, match="no user 'bob'"):
            client.user("bob")


def test_a_batch_larger_than_what_may_wait_for_the_store_is_answered_as_a_whole(tmp_path: Path):
    with serving(tmp_path, limits={"max_waiting": 60}) as server, Client(server.address) as client:
        client.decide("first", ARMS)
        made = client.decide_batch([{"user": f"u{i}"} for i in range(100)], ARMS)  # 40 of them get 503 at first
        assert [one.status for one in made] == [200] * 100
        assert [one.decision_id for one in made] == [one.answer.decision_id for one in made]
        rewarded = client.reward_batch({one.decision_id: 1.0 for one in made})
        assert [(one.status, one.decision_id) for one in rewarded] == [(200, one.decision_id) for one in made]


@pytest.mark.parametrize("user", ["a/b", "..", ".", "Zoë", "a?b#c%20", "v1/users/x", "a//b/"])
def test_any_printable_name_is_a_user(service: Server, user: str):
    with Client(service.address) as client:
        client.decide(user, ARMS)
        assert client.user(user).user == user
        assert client.erase(user).erased == 1
