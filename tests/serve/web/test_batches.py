"""Batches of decisions and rewards: every element as if it had been sent alone, all in one commit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lcb.serve.config.settings import Limits, Settings
from lcb.serve.retain.compact import compact
from lcb.serve.web.batch_bodies import Undecoded, read_decisions
from lcb.storage.store.open_store import open_store
from support.http_inside import inside
from support.raw_requests import Local

ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]


def ask(user: str, **more: Any) -> dict[str, Any]:
    return {"user": user, "arms": ARMS, **more}


def batch(folder: Path, *requests: tuple[str, Any], **settings: Any) -> list[Any]:
    """Send requests (path, body) to a new service, one after another; return status and JSON of each."""

    async def drive() -> list[Any]:
        answers = []
        given = Settings(store=str(folder / "lcb.db"), pages=False, **settings)
        async with inside(given) as (_, client):
            for path, body in requests:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                answer = await client.post(path, content=content)
                answers.append((answer.status_code, answer.json()))
        return answers

    return asyncio.run(drive())


def test_an_element_is_answered_as_if_it_had_been_sent_alone(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    asks = [ask(f"u{i}", decision_id=f"d{i}", k=1 + i % 2) for i in range(5)]
    ((status, together),) = batch(one, ("/v1/decisions:batch", {"decisions": asks}))
    assert status == 200
    assert [outcome["status"] for outcome in together["outcomes"]] == [200] * 5
    again = batch(one, *(("/v1/decisions", one) for one in asks))
    assert [outcome["answer"] for outcome in together["outcomes"]] == [answer for _, answer in again]


def test_refused_elements_change_nothing_and_leave_the_others_alone(tmp_path: Path):
    wrong = [{"user": "ann"}, ask("ann", k=0), 7, ask("ann", extra=1), {**ask("ann"), "arms": [*ARMS, *ARMS]}]
    asks = [ask("bob", decision_id="d"), *wrong, ask("cy")]
    ((status, body),) = batch(tmp_path, ("/v1/decisions:batch", {"decisions": asks}))
    assert status == 200
    statuses = [outcome["status"] for outcome in body["outcomes"]]
    assert statuses == [200, *([422] * 5), 200]
    assert [outcome.get("field") for outcome in body["outcomes"][2:6]] == ["k", None, "extra", "arms[2].id"]
    assert all(outcome["detail"] for outcome in body["outcomes"][1:6])
    store = open_store(str(tmp_path / "lcb.db"))
    kinds = [row.user for row in store.events(0) if row.kind == "decision"]
    store.close()
    assert kinds == ["bob", "cy"]


@pytest.mark.parametrize(
    "arms",
    [
        [{"id": f"a{i}", "x": [0] * 100} for i in range(600)],  # 60,000 numbers, 35 times
        [{"id": f"{i:0256}"} for i in range(2000)],  # ids alone, of items that the catalogue would have
    ],
)
def test_common_arms_that_a_batch_would_write_too_often_are_refused(tmp_path: Path, arms: list[dict[str, Any]]):
    decisions = [{"user": f"u{i}"} for i in range(35)]
    ((status, body),) = batch(tmp_path, ("/v1/decisions:batch", {"arms": arms, "decisions": decisions}))
    assert (status, body["field"]) == (422, "arms")
    assert f"{len(arms):,} arms of" in body["detail"]
    assert "at most 16,000,000 are written at once; put the items into the catalogue" in body["detail"]
    store = open_store(str(tmp_path / "lcb.db"))
    assert not any(row.kind == "decision" for row in store.events(0))
    store.close()


def test_rewards_have_outcomes_of_their_own(tmp_path: Path):
    rewards = [
        {"decision_id": "d", "reward": 1},
        {"decision_id": "e", "reward": 1},
        {"decision_id": "no\u0020id", "reward": 1},
        {"decision_id": "unknown", "reward": 1},
    ]
    sent = ("/v1/rewards:batch", {"rewards": rewards})
    decide = ("/v1/decisions:batch", {"decisions": [ask("ann", decision_id="d"), ask("bob", decision_id="e")]})
    other = ("/v1/rewards:batch", {"rewards": [{"decision_id": "d", "reward": 0}, {"decision_id": "e", "reward": 1}]})
    *_, (_, first), (_, again), (_, changed) = batch(tmp_path, decide, sent, sent, other)
    assert [outcome["status"] for outcome in first["outcomes"]] == [200, 200, 422, 404]
    assert first["outcomes"][0]["answer"] == {"decision_id": "d", "reward": 1.0}
    assert again == first
    assert [outcome["status"] for outcome in changed["outcomes"]] == [409, 200]


def test_the_same_reward_twice_in_a_batch_counts_once(tmp_path: Path):
    decide = ("/v1/decisions", ask("ann", decision_id="d"))
    twice = ("/v1/rewards:batch", {"rewards": [{"decision_id": "d", "reward": 1}] * 3})
    _, (_, body) = batch(tmp_path, decide, twice)
    assert [outcome["status"] for outcome in body["outcomes"]] == [200] * 3
    store = open_store(str(tmp_path / "lcb.db"))
    assert sum(row.kind == "reward" for row in store.events(0)) == 1
    store.close()


def test_a_batch_is_one_commit(tmp_path: Path):
    """A part of at most 100 kB; the store sees one list of new events."""
    commits: list[int] = []

    def watched(store: Any) -> Any:
        append = store.append

        def count(rows: Any, *given: Any, **more: Any) -> Any:
            commits.append(len(rows))
            return append(rows, *given, **more)

        store.append = count
        return store

    async def drive() -> None:
        settings = Settings(store=str(tmp_path / "lcb.db"), pages=False)
        async with inside(settings, around=watched) as (_, client):
            await client.post("/v1/decisions", json=ask("first"))
            commits.clear()
            await client.post("/v1/decisions:batch", json={"decisions": [ask(f"u{i}") for i in range(100)]})
            assert commits == [100]

    asyncio.run(drive())


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"decisions": []}', 422, "decisions"),
        (b'{"decisions": [1], "decisions": [1]}', 422, "decisions"),
        (b'{"decisions": [1], "more": 1}', 422, "more"),
        (b'{"rewards": []}', 422, None),
        (b"[]", 422, None),
        (b'{"decisions": [', 400, None),
        (json.dumps({"decisions": [1] * 101}).encode(), 422, "decisions"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(tmp_path: Path, body, status, field):
    ((got, answer),) = batch(tmp_path, ("/v1/decisions:batch", body))
    assert got == status
    assert field is None or answer["field"] == field


def test_a_key_that_comes_twice_inside_an_element_is_refused_there(tmp_path: Path):
    twice = b'{"decisions": [{"user": "ann", "user": "bob", "arms": [{"id": "a", "x": [1]}]}]}'
    ((status, body),) = batch(tmp_path, ("/v1/decisions:batch", twice))
    assert (status, body["outcomes"][0]["status"], body["outcomes"][0]["field"]) == (200, 422, "user")


@pytest.mark.parametrize(
    ("second", "field"),
    [
        (b'{"user": "bob", "user": "cy", "arms": %b}', "user"),
        (b'{"arms": %b, "user": "bob", "arms": []}', "arms"),
        (b'{"user": "bob", "arms": %b, "k": "1"}', "k"),
        (b'{"user": "bo\\u0000b", "arms": %b}', "user"),
        (b'{"user": "b:b", "arms": %b, "exclude": ["c:d"], "x": null}', None),
    ],
)
def test_an_element_whose_arms_came_before_is_checked_like_any_other(tmp_path: Path, second: bytes, field: str | None):
    arms = json.dumps(ARMS).encode()
    body = b'{"decisions": [{"user": "ann", "arms": %b}, %b]}' % (arms, second % arms)
    ((_, answer),) = batch(tmp_path, ("/v1/decisions:batch", body))
    first, other = answer["outcomes"]
    assert first["status"] == 200
    assert (other["status"], other.get("field")) == (200 if field is None else 422, field)


def test_arms_of_a_batch_are_those_of_all_that_send_none(tmp_path: Path):
    own = [{"id": "own", "x": [1.0, 1.0]}]
    asks = [{"user": "ann"}, {"user": "bob", "arms": own}, {"user": "cy", "k": 2}]
    sent = ("/v1/decisions:batch", {"decisions": asks, "arms": ARMS})
    wrong = ("/v1/decisions:batch", {"arms": [{"id": "a", "x": []}], "decisions": asks})
    twice = ("/v1/decisions:batch", b'{"arms": [{"id": "a"}], "decisions": [{"user": "ann"}], "arms": [{"id": "b"}]}')
    (_, body), (refused, why), (again, reason) = batch(tmp_path, sent, wrong, twice)
    answers = [outcome["answer"] for outcome in body["outcomes"]]
    assert [len(answer["distribution"]) for answer in answers] == [2, 1, 2]
    assert (answers[1]["arm"], len(answers[2]["slots"])) == ("own", 2)
    assert (refused, why["field"]) == (422, "arms[0].x")
    assert (again, reason["field"]) == (422, "arms")


def test_the_elements_of_batches_are_counted_by_outcome(tmp_path: Path):
    async def drive() -> str:
        async with inside(Settings(store=str(tmp_path / "lcb.db"), pages=False)) as (_, client):
            asks = [ask("ann", decision_id="d"), ask("bob"), ask("cy", k=0)]
            await client.post("/v1/decisions:batch", json={"decisions": asks})
            await client.post("/v1/rewards:batch", json={"rewards": [{"decision_id": "d", "reward": 1}]})
            return (await client.get("/metrics")).text

    found = asyncio.run(drive())
    for outcome, n in (("decided", 2), ("rewarded", 1), ("refused", 1)):
        assert f'lcb_batch_elements_total{{outcome="{outcome}"}} {n}.0' in found


def test_every_element_counts_against_the_rate(tmp_path: Path):
    asks = {"decisions": [ask(f"u{i}") for i in range(50)]}
    first, second = batch(
        tmp_path, ("/v1/decisions:batch", asks), ("/v1/decisions", ask("ann")), limits=Limits(rate=10.0)
    )
    assert (first[0], second[0]) == (200, 429)


@pytest.mark.parametrize("end", [b"NaN", b'"\\ud800"', b""])
@pytest.mark.parametrize("name", ["rewards", "decisions"])
def test_a_large_body_that_is_wrong_is_refused_without_reading_it_again(tmp_path: Path, monkeypatch, name, end):
    """To find the place takes seconds in which nobody else is answered."""
    body = b'{"%b": [{"x": [%b%b]}]}' % (name.encode(), b"0," * 100_000, end)
    monkeypatch.setattr("lcb.serve.strict_json._parse_exactly", lambda *_, **__: pytest.fail("read again"))
    monkeypatch.setattr("lcb.serve.strict_json._refuse_near_json", lambda *_: pytest.fail("read again"))
    ((status, answer),) = batch(tmp_path, (f"/v1/{name}:batch", body))
    assert (status, answer["status"]) == (400, 400)


def test_a_large_reward_and_a_large_list_that_comes_twice_are_refused(tmp_path: Path):
    large = json.dumps({"x": [0] * 60_000}).encode()
    twice = b'{"rewards": [1], "rewards": [%b]}' % large
    (_, one), (status, other) = batch(
        tmp_path, ("/v1/rewards:batch", b'{"rewards": [%b]}' % large), ("/v1/rewards:batch", twice)
    )
    assert one["outcomes"][0]["status"] == 422
    assert (status, other["field"]) == (422, "rewards")


def test_a_batch_of_long_lists_from_many_items_is_refused_as_a_whole(tmp_path: Path) -> None:
    """2 kB were two minutes of work and 35 MB of log."""
    with Local(str(tmp_path / "lcb.db")) as local:
        items = [{"id": f"i{n}", "x": [1.0, n % 7]} for n in range(1001)]
        assert local.send("PUT", "/v1/items", {"items": items}).status == 200
        before = local.service.world.seq
        many = {"decisions": [{"user": f"u{n}", "k": 20} for n in range(100)]}
        answered = local.send("POST", "/v1/decisions:batch", many)
        assert answered.status == 422
        assert "have 2,002,000 arms to score for their slots, at most 2,000,000 at once" in answered.json["detail"]
        own = {"decisions": [{"user": "u", "k": 100, "arms": items[:300]} for _ in range(70)]}
        assert local.send("POST", "/v1/decisions:batch", own).status == 422
        assert local.service.world.seq == before
        few = {"decisions": [{"user": "u", "k": 20}, {"user": "v", "k": "a"}, 7]}
        outcomes = local.send("POST", "/v1/decisions:batch", few).json["outcomes"]
        assert [one["status"] for one in outcomes] == [200, 422, 422]


@pytest.mark.parametrize("name", ['"id"', '"\\u0069d"'])
def test_arms_are_counted_however_their_ids_are_written(tmp_path: Path, name: str) -> None:
    arms = [{"id": f"i{n}", "x": [1.0]} for n in range(300)]
    many = json.dumps({"decisions": [{"user": "u", "k": 100, "arms": arms} for _ in range(70)]})
    with Local(str(tmp_path / "lcb.db")) as local:
        assert local.ask("POST", "/v1/decisions:batch", many.replace('"id"', name).encode()).status == 422
        assert (
            local.send("POST", "/v1/decisions", {"user": "{", "arms": [{"id": "\u00e9{{", "x": [1.0]}]}).status == 200
        )


def test_a_reward_of_a_decision_that_was_just_archived_leaves_the_others_alone(tmp_path: Path) -> None:
    """The service still has the decision in memory when it hears of the compaction."""
    path = str(tmp_path / "lcb.db")
    with Local(path) as local:
        old = local.send("POST", "/v1/decisions", ask("ann", decision_id="old"))
        assert old.status == 200
        store = open_store(path)
        compact(store, tmp_path / "archive", -1.0, sleep=lambda seconds: None)
        store.close()
        assert local.send("POST", "/v1/decisions", ask("ben", decision_id="new")).status == 200
        both = {"rewards": [{"decision_id": "old", "reward": 1}, {"decision_id": "new", "reward": 1}]}
        answered = local.send("POST", "/v1/rewards:batch", both)
        assert answered.status == 200, answered
        assert [one["status"] for one in answered.json["outcomes"]] == [410, 200]
        assert [row.id for row in local.service.store.events(0) if row.kind == "reward"] == ["r/new"]


LARGE = [{"id": f"item-{i}", "x": [0.5] * 20} for i in range(40)]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_elements_with_the_same_arms_are_read_as_each_alone(separators: tuple[str, str]) -> None:
    def write(value: Any) -> bytes:
        return json.dumps(value, separators=separators).encode()

    elements = [{"user": f"u{i}", "arms": LARGE if i % 3 else LARGE[: i + 1]} for i in range(1, 90)]
    elements += [{"user": "ann"}, {"user": "ben", "k": 2, "arms": LARGE}]
    for common in (None, LARGE, LARGE[:3]):
        body = write({"decisions": elements} if common is None else {"decisions": elements, "arms": common})
        found, arms, _ = read_decisions(body)
        assert arms == (None if common is None else write(common))
        for element, one in zip(elements, found, strict=True):
            assert isinstance(one, Undecoded)
            assert one.request is not None
            assert (one.request.user, one.request.k) == (element["user"], element.get("k"))
            assert one.sent == (write(element["arms"]) if "arms" in element else b"")


def test_nothing_passes_for_arms_that_were_taken_out(tmp_path: Path) -> None:
    arms = json.dumps(LARGE)
    others = [f'{{"user": "u{i}", "arms": {arms}}}' for i in range(40)]
    zero = f'{{"decisions": [{", ".join(others)}, {{"user": "ann", "arms": 0}}]}}'
    inside_text = f'{{"decisions": [{", ".join(others)}, {{"user": "ann {arms}", "arms": {arms}}}]}}'
    twice = f'{{"decisions": [{", ".join(others)}, {{"user": "ann", "arms": {arms}, "arms": {arms}}}]}}'
    found = batch(tmp_path, *(("/v1/decisions:batch", one.encode()) for one in (zero, inside_text, twice)))
    assert [status for status, _ in found] == [200, 400, 200]
    for (_, body), field in zip((found[0], found[2]), ("arms", "arms"), strict=True):
        *before, last = body["outcomes"]
        assert {one["status"] for one in before} == {200}
        assert (last["status"], last["field"]) == (422, field)
