"""Both clients send the same requests, read the same answers and follow the same rules."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from lcb.client import AsyncClient, Client, Item, ServiceError, Unreachable
from lcb.errors import InputError, LCBError, MissingExtra

DECISION = {
    "decision_id": "d", "arm": "a", "propensity": 0.5, "distribution": [0.5, 0.5], "model": 1, "policy": "thompson",
    "recommender": "lcb", "of a later version": 1,
}  # fmt: skip
Handler = Callable[[httpx.Request], httpx.Response]


class Sync:
    def __init__(self, handler: Handler, **more: Any) -> None:
        self.slept: list[float] = []
        transport = httpx.MockTransport(handler)
        self.client = Client("http://service", transport=transport, sleep=self.slept.append, **more)

    def __call__(self, verb: str, *given: Any, **named: Any) -> Any:
        return getattr(self.client, verb)(*given, **named)


class Async:
    def __init__(self, handler: Handler, **more: Any) -> None:
        self.slept: list[float] = []

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        transport = httpx.MockTransport(handler)
        self.client = AsyncClient("http://service", transport=transport, sleep=sleep, **more)

    def __call__(self, verb: str, *given: Any, **named: Any) -> Any:
        return asyncio.run(getattr(self.client, verb)(*given, **named))


@pytest.fixture(params=[Sync, Async])
def kind(request) -> type[Sync] | type[Async]:
    return request.param


class Heard:
    """Answers by a script, with the decision_id that came, and notes what came."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        asked = json.loads(request.content or b"{}")
        same = {"decision_id": asked["decision_id"]} if "decision_id" in asked else {}
        return httpx.Response(200, json=answer | same)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) if request.content else None for request in self.requests]


def test_the_two_have_the_same_verbs_with_the_same_arguments():
    def verbs(of: type) -> dict[str, list[str]]:
        return {
            name: [str(one) for one in inspect.signature(verb).parameters.values()]
            for name, verb in vars(of).items() if inspect.isfunction(verb) and not name.startswith("_")
        }  # fmt: skip

    assert verbs(Client) == verbs(AsyncClient)
    assert list(inspect.signature(Client).parameters) == list(inspect.signature(AsyncClient).parameters)


def test_a_decision_is_asked_for_with_arms_and_an_id(kind):
    heard = Heard(DECISION)
    decision = kind(heard)("decide", "ann", {"a": np.array([1.0, 2.0]), "b": (3, 4)}, x=[1], k=2)
    assert (decision.arm, decision.propensity, decision.distribution, decision.slots) == ("a", 0.5, (0.5, 0.5), None)
    (body,) = heard.bodies
    id = body.pop("decision_id")
    assert body == {"user": "ann", "arms": [{"id": "a", "x": [1, 2]}, {"id": "b", "x": [3, 4]}], "x": [1.0], "k": 2}
    assert len(id) == 26
    assert heard.requests[0].headers["content-type"] == "application/json"


def test_a_decision_over_the_catalogue_names_ids_or_nothing(kind):
    heard = Heard(DECISION)
    asked = kind(heard)
    asked("decide", "ann", ["a", "b"], decision_id="mine")
    asked("decide", "ann", chosen="a", chosen_propensity=0.25, decision_id="mine")
    assert heard.bodies == [
        {"user": "ann", "arms": [{"id": "a"}, {"id": "b"}], "decision_id": "mine"},
        {"user": "ann", "decision_id": "mine", "chosen": "a", "chosen_propensity": 0.25},
    ]


def test_a_list_has_slots(kind):
    slots = [{"arm": "a", "propensity": 0.5, "reward_id": "d/0"}]
    assert kind(Heard(DECISION | {"slots": slots}))("decide", "ann", k=1).slots[0].reward_id == "d/0"


def test_every_try_is_the_same_decision(kind):
    heard = Heard(httpx.ReadTimeout(""), httpx.Response(503, headers={"retry-after": "2"}), httpx.ConnectError("no"),
                  DECISION)  # fmt: skip
    asked = kind(heard, random=lambda: 0.5)
    asked("decide", "ann")
    assert len({request.content for request in heard.requests}) == 1
    assert asked.slept == [0.05, 2.1, 0.2]


def test_ids_sort_by_time_and_none_comes_twice(kind):
    heard = Heard(DECISION)
    asked = kind(heard)
    for _ in range(20):
        asked("decide", "ann")
    ids = [body["decision_id"] for body in heard.bodies]
    assert len(set(ids)) == 20
    assert [id[:12] for id in ids] == sorted(id[:12] for id in ids)


def test_ids_may_come_from_elsewhere(kind):
    heard = Heard(DECISION)
    kind(heard, new_id=lambda: "7")("decide", "ann")
    assert heard.bodies[0]["decision_id"] == "7"


def test_a_refusal_has_the_words_and_the_field_of_the_service(kind):
    said = httpx.Response(422, json={"status": 422, "detail": "k is 9 and there are 2 arms", "field": "k"})
    heard = Heard(said)
    with pytest.raises(ServiceError, match="k is 9") as caught:
        kind(heard)("decide", "ann", k=9)
    assert (caught.value.status, caught.value.field, len(heard.requests)) == (422, "k", 1)
    assert isinstance(caught.value, LCBError)


def test_who_never_answers_is_unreachable(kind):
    heard = Heard(httpx.ConnectError("refused"))
    with pytest.raises(Unreachable, match=r"POST /v1/rewards got no answer in 3 attempts .*refused"):
        kind(heard, retries=2)("reward", "d", 1.0)


def test_many_rewards_leave_out_those_that_the_service_has_otherwise(kind):
    conflict = httpx.Response(409, json={"detail": "decision b has the reward 1, 0 came; the first stands"})
    heard = Heard({"decision_id": "a", "reward": 1.0}, conflict, {"decision_id": "c", "reward": 1.0})
    refused = kind(heard)("rewards", {"a": 1.0, "b": 0, "c": 1})
    assert refused == {"b": "decision b has the reward 1, 0 came; the first stands"}
    assert [body["decision_id"] for body in heard.bodies] == ["a", "b", "c"]
    with pytest.raises(ServiceError):
        kind(Heard(httpx.Response(404, json={"detail": "no decision"})))("rewards", {"a": 1.0})


def test_a_contribution_to_a_sum_has_its_own_id(kind):
    heard = Heard({"decision_id": "d", "reward": 3.0})
    kind(heard)("reward", "d/0", 1, reward_id="r1")
    assert heard.bodies == [{"decision_id": "d/0", "reward": 1.0, "reward_id": "r1"}]


def test_items_go_as_features_or_categories(kind):
    heard = Heard({"n_items": 2, "n_features": 2})
    items = [Item("a", x=(1, 0), title="A"), Item("b", categories=("sport",))]
    answer = kind(heard)("put_items", items, replace=True, remove=["c"])
    assert (answer.n_items, answer.n_features) == (2, 2)
    sent = [{"id": "a", "x": [1, 0], "title": "A"}, {"id": "b", "categories": ["sport"]}]
    assert heard.bodies == [{"items": sent, "replace": True, "remove": ["c"]}]


PATHS = [
    ("ann", "ann"),
    ("a/b", "a%2Fb"),
    ("..", "%2E%2E"),
    (".", "%2E"),
    ("a?b#c", "a%3Fb%23c"),
    ("Zoë %", "Zo%C3%AB%20%25"),
]


@pytest.mark.parametrize("user, written", PATHS)
def test_a_user_is_one_piece_of_a_path(kind, user, written):
    heard = Heard({"erased": 3})
    assert kind(heard)("erase", user).erased == 3
    assert heard.requests[0].url.raw_path.decode() == f"/v1/users/{written}"
    assert heard.requests[0].method == "DELETE"


VERSION = {
    "version": 1, "active": True, "status": "active", "n_classes": 5, "n_features": 6, "n_users": 9, "created": "now",
    "score": None, "baseline": None, "reason": "given", "provenance": {"seed": 0},
}  # fmt: skip
TRIAL = {
    "recommenders": [{"name": "lcb", "bandit": "thompson", "share": 1, "n_users": 1, "n_decisions": 1, "n_rewards": 1,
                      "reward_sum": 1, "mean": 1, "deviation": None}],
    "differences": [{"of": "a", "to": "b", "mean": 0.1, "low": -0.1, "high": 0.3}],
}  # fmt: skip
VERBS = [
    ("models", (), "GET /v1/models", {"active": 1, "versions": [VERSION], "retraining": {"running": False}}),
    ("retrain", (), "POST /v1/models/retrain", {"running": True}),
    ("activate", (2,), "POST /v1/models/2/activate", {"active": 2}),
    ("trials", (), "GET /v1/trials", TRIAL),
    ("health", (), "GET /readyz", {"status": "ok"}),
    ("items", (), "GET /v1/items", {"items": [{"id": "a", "x": [1]}], "n_items": 1}),
    ("user", ("ann",), "GET /v1/users/ann", {"user": "ann", "recommender": "lcb", "model": 1, "policy": "thompson",
     "n_decisions": 1, "n_rewards": 1, "reward_sum": 1, "posterior": [1.0], "seq": 9}),
]  # fmt: skip


@pytest.mark.parametrize("verb, given, asked, answer", VERBS, ids=[one[0] for one in VERBS])
def test_each_verb_asks_its_route(kind, verb, given, asked, answer):
    heard = Heard(answer)
    found = kind(heard)(verb, *given)
    request = heard.requests[0]
    assert f"{request.method} {request.url.path}" == asked
    for name, value in answer.items():
        if not isinstance(value, list | dict):
            assert getattr(found, name) == value


def test_a_key_goes_with_every_request_and_nowhere_else(kind):
    heard = Heard({"status": "ok"})
    asked = kind(heard, key="lcb_secret")
    asked("health")
    assert heard.requests[0].headers["authorization"] == "Bearer lcb_secret"
    assert "lcb_secret" not in repr(vars(asked.client))
    with pytest.raises(Unreachable) as caught:
        kind(Heard(httpx.ConnectError("no")), key="lcb_secret", retries=0)("health")
    assert "lcb_secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a\r\nx-injected: 1", "a\0", "clé", " a"])
def test_a_key_that_is_none_is_refused(kind, key):
    with pytest.raises(InputError, match="the key has characters"):
        kind(Heard({}), key=key)


@pytest.mark.parametrize("url", ["", "service:8000", "ftp://service", "http://", "http://a?b=1", "http://a#b"])
@pytest.mark.parametrize("of", [Client, AsyncClient])
def test_an_address_that_is_none_is_refused(of, url):
    with pytest.raises(InputError, match="such as http"):
        of(url)


WRONG = [
    ("decide", ("ann", {"a": [float("nan")]}), "finite"),
    ("decide", ("ann", {"a": ["one"]}), "arm 'a' is .*numbers"),
    ("decide", ("ann", {"a": 1}), "arm 'a' is 1; give a list"),
    ("decide", ("ann", "abc"), "arms is the text 'abc'"),
    ("decide", ("\ud800",), "plain text"),
    ("user", ("\ud800",), "plain text"),
    ("reward", ("d", float("inf")), "finite"),
    ("put_items", ([Item("a", x=("b",))],), "item 'a'"),
    ("put_items", ([Item("a", x="10")],), "item 'a' is the text '10'; give a list of numbers"),
    ("put_items", ([Item("a", categories="sport")],), "categories of item 'a' is the text 'sport'; give a list"),
    ("put_items", ([{"id": "a", "features": [1]}],), "'features'.*a mapping with its fields"),
    ("decide", ("ann", {"a": "10"}), "arm 'a' is the text '10'; give a list of numbers"),
    (
        "decide",
        ("ann", [{"id": "a", "x": [1]}]),
        r"arms\[0\] is .*; give a mapping of ids to features, or a list of ids",
    ),
    (
        "decide_batch",
        ([{"user": "ann"}, {"user": "ben", "decisionId": "d"}],),
        "'decisionId' is no argument of decide; give",
    ),
    (
        "decide_batch",
        ([{"user": "ann", "excludes": []}],),
        r"decision 0.*; give the arguments of decide: user, arms, decision_id, x",
    ),
    ("decide_batch", ([{"user": "ann", "exclude": 5}],), "exclude is 5; give a list of ids"),
    ("decide_batch", (["ann"],), "decision 0 is 'ann'; give a mapping"),
    ("decide_batch", ([{"arms": ["a"]}],), "decision 0 is .*without user"),
    (
        "reward_batch",
        ([{"decision_id": "d", "reward": 1, "id": "p"}],),
        "reward 0.*'id' is no argument of reward; give the arguments of reward: decision_id, reward, reward_id",
    ),
    ("reward_batch", ([{"decision_id": "d"}],), "reward 0 is .*, without reward; give"),
    ("reward_batch", (["d"],), "reward 0 is 'd'; give a mapping"),
]


@pytest.mark.parametrize("verb, given, words", WRONG)
def test_what_cannot_be_sent_is_refused_before_it_is(kind, verb, given, words):
    heard = Heard({})
    with pytest.raises(InputError, match=words):
        kind(heard)(verb, *given)
    assert heard.requests == []


def test_a_text_in_place_of_ids_to_remove_is_refused(kind):
    with pytest.raises(InputError, match="remove is the text 'abc'; give a list of ids"):
        kind(Heard({}))("put_items", [], remove="abc")


def test_an_empty_id_is_sent_and_not_replaced(kind):
    """The service refuses it; under a new id, a repeated call would be another decision."""
    heard = Heard(DECISION)
    kind(heard)("decide", "ann", decision_id="")
    assert heard.bodies[0]["decision_id"] == ""
    heard = Heard({"outcomes": [{"status": 422, "detail": "no"}]})
    kind(heard)("decide_batch", [{"user": "ann", "decision_id": ""}])
    assert heard.bodies[0]["decisions"][0]["decision_id"] == ""


def test_an_async_try_ends_when_its_time_is_over():
    async def slow(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(1)
        return httpx.Response(200, json={"status": "ok"})

    async def ask() -> None:
        async with AsyncClient("http://s", transport=httpx.MockTransport(slow), timeout=0.05, retries=0) as client:
            await client.health()

    with pytest.raises(Unreachable, match=r"no answer within 0\.05 s"):
        asyncio.run(ask())


def test_threads_share_a_client():
    heard = Heard(DECISION)
    with Client("http://service", transport=httpx.MockTransport(heard)) as client:
        threads = [threading.Thread(target=lambda: [client.decide("ann") for _ in range(50)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({body["decision_id"] for body in heard.bodies}) == 400


@pytest.mark.parametrize("package", ["httpx", "msgspec"])
def test_without_a_package_of_the_extra_the_error_has_the_install_line(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("lcb.client") or name == "lcb.messages"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed; .* pip install '\.\[client\]'"):
        import lcb.client  # noqa: F401
