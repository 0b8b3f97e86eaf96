"""Drill 18: invalid requests are refused with the name of the field, and change neither the log nor the state."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

from lcb import messages
from lcb.serve import strict_json
from lcb.serve.decide import arms as arms_of_request
from support.harness import LONG, Server, arms, models_folder, serving
from support.raw_requests import Local

ARMS = arms(np.random.default_rng(0), 3)
ITEMS = [{"id": f"i{n}", "x": one["x"]} for n, one in enumerate(ARMS)]
GOOD = {
    "POST /v1/decisions": {"user": "eve", "arms": ARMS, "k": 2, "decision_id": "new"},
    "POST /v1/rewards": {"decision_id": "open", "reward": 1.0},
    "PUT /v1/items": {"items": ITEMS, "remove": ["i9"]},
}
DECIDE, REWARD, ITEM = GOOD
SMALL = 16_384  # bytes that routes take other than those of decisions and items
MANY = [{"id": f"a{n}"} for n in range(10_001)]


class Hostile(NamedTuple):
    """A request, the field its refusal must name (None: the body is no JSON, so it has none), and the status."""

    name: str
    route: str
    body: bytes
    field: str | None
    status: int = 422


def put(route: str, place: str, literal: str) -> bytes:
    """Return a valid body of the route with a literal, JSON or not, at a place such as arms[1].x[0]."""
    body = json.loads(json.dumps(GOOD[route]))
    at, keys = body, place.replace("[", ".").replace("]", "").split(".")
    for key in keys[:-1]:
        at = at[int(key) if isinstance(at, list) else key]
    at[int(keys[-1]) if isinstance(at, list) else keys[-1]] = "HERE"
    return json.dumps(body).replace('"HERE"', literal).encode()


NUMBERS = [(DECIDE, "arms[1].x[0]"), (REWARD, "reward"), (ITEM, "items[1].x[2]")]
IDS = [(DECIDE, "user"), (DECIDE, "arms[1].id"), (ITEM, "items[1].id"), (ITEM, "remove[0]")]
DECISION_IDS = [(DECIDE, "decision_id"), (REWARD, "decision_id")]
TEXTS = [*IDS, (ITEM, "items[0].title"), (ITEM, "items[0].summary")]
NO_NUMBERS = {
    "NaN": 400, "Infinity": 400, "-Infinity": 400, "1e308": 422, "-1e308": 422, "1e999": 422, "-1e999": 422,
    "1" * 400: 422, "1e10": 422, "-1000000001": 422, "true": 422, '"1"': 422, "[1]": 422, '"NaN"': 422, "{}": 422,
    "0x10": 400, "1_000": 400, "01": 400, "+1": 400, ".5": 400,
}  # fmt: skip
MALFORMED = frozenset({"0x10", "1_000", "01", "+1", ".5"})
CONTROL = {
    "\\u0000": "NUL",
    "a\\u0000b": "NUL inside",
    "\\n": "newline",
    "a\\u001b[2J": "escape",
    "\\u202e": "override",
}


def hostile() -> Iterator[Hostile]:
    for route, place in NUMBERS:
        for literal, status in NO_NUMBERS.items():
            field = None if literal in MALFORMED else place
            yield Hostile(f"{literal[:20]} at {place}", route, put(route, place, literal), field, status)
    for literal in ("0", "-0.0", "1.5", "1e999", "true", "NaN"):
        status = 400 if literal == "NaN" else 422
        yield Hostile(f"propensity {literal}", DECIDE, put(DECIDE, "chosen_propensity", literal), "chosen_propensity",
                      status)  # fmt: skip
    for literal in ("0", "-1", "101", "4", "1.5", "1e3", "9" * 40, "9" * 400, "true", '"2"', "[2]"):
        yield Hostile(f"k {literal[:9]}", DECIDE, put(DECIDE, "k", literal), "k")
    for route, place in TEXTS:
        if route == ITEM and place in ("items[0].title", "items[0].summary"):
            controls = {text: name for text, name in CONTROL.items() if "NUL" in name}
        else:
            controls = CONTROL
            yield Hostile(f"empty {place}", route, put(route, place, '""'), place)
            yield Hostile(f"null {place}", route, put(route, place, "null"), place)
        for text, name in controls.items():
            yield Hostile(f"{name} in {place}", route, put(route, place, f'"{text}"'), place)
        for half in ("\\ud800", "\\udc00", "a\\ud800b"):
            yield Hostile(f"surrogate in {place}", route, put(route, place, f'"{half}"'), place, 400)
        yield Hostile(f"latin-1 in {place}", route, put(route, place, '"HERE"').replace(b"HERE", b"\xe9"), place, 400)
        yield Hostile(f"1 MB {place}", route, put(route, place, '"' + "a" * 1_000_000 + '"'), place)
        for literal in ("1", "true", "[]", "{}"):
            yield Hostile(f"{literal} as {place}", route, put(route, place, literal), place)
    for route, place in DECISION_IDS:
        for text in ("", "a/b/c", "a b", "a\\n", "\\n", "é", "a\\u0000", "../x", "x" * 65, "a" * 1_000_000, "٣"):
            yield Hostile(f"{text[:9]!r} as {place}", route, put(route, place, f'"{text}"'), place)
    yield Hostile("a slot as decision_id", DECIDE, put(DECIDE, "decision_id", '"open/0"'), "decision_id")
    yield Hostile("an id of ours", DECIDE, put(DECIDE, "decision_id", '"service"'), "decision_id")
    yield Hostile("a reward of ours", REWARD, put(REWARD, "decision_id", '"service"'), "decision_id", 404)
    yield Hostile("a slot there is not", REWARD, put(REWARD, "decision_id", '"open/0"'), "decision_id", 404)
    yield Hostile("a sum's id where there is none", REWARD, put(REWARD, "reward_id", '"part"'), "reward_id")
    yield from arms_and_items()
    for route, good in GOOD.items():
        yield from shapes(route, json.dumps(good).encode())


def arms_and_items() -> Iterator[Hostile]:
    def decide(field: str, **changes: Any) -> Hostile:
        return Hostile(f"{field} {str(changes)[:30]}", DECIDE, json.dumps(GOOD[DECIDE] | changes).encode(), field)

    def items(field: str, **changes: Any) -> Hostile:
        return Hostile(f"{field} {str(changes)[:30]}", ITEM, json.dumps(GOOD[ITEM] | changes).encode(), field)

    x = ARMS[0]["x"]
    yield decide("arms", arms=[])
    yield decide("arms", arms=MANY)
    yield decide("arms[2].id", arms=[*ARMS[:2], ARMS[0]])
    yield decide("arms[1].x", arms=[ARMS[0], {"id": "b", "x": x[:5]}])
    yield decide("arms[1].x", arms=[ARMS[0], {"id": "b"}])
    yield decide("arms[1].x", arms=[{"id": "i0"}, {"id": "b", "x": x}])
    yield decide("arms[1].x", arms=[{"id": "i0"}, {"id": "unheard of"}])
    yield decide("arms[0].x", arms=[{"id": "a", "x": []}])
    yield decide("arms[0].x", arms=[{"id": "a", "x": x[:5]}])
    yield decide("arms[0].x", arms=[{"id": "a", "x": [*x, 1.0]}])
    yield decide("arms[0].x", arms=[{"id": "a", "x": [1.0] * 1001}])
    yield decide("arms[0].x[0]", arms=[{"id": "a", "x": [[1.0]]}])
    yield decide("arms[0].features", arms=[{"id": "a", "features": x}])
    yield decide("arms[0]", arms=["a"])
    yield decide("arms", arms={"a": x})
    yield decide("x", x=[])
    yield decide("x", x=[1.0])
    yield decide("x", x=[1.0] * 1001)
    yield decide("x[1]", x=[1.0, 1e308])
    yield decide("chosen", chosen="nobody", k=None)
    yield decide("k", chosen="a0")
    yield decide("chosen_propensity", chosen_propensity=0.5)
    yield items("items", items=[{"id": f"i{n}", "x": [1.0]} for n in range(10_001)])
    yield items("items[3].id", items=[*ITEMS, ITEMS[0]])
    yield items("items[1].x", items=[ITEMS[0], {"id": "b", "x": x[:5]}])
    yield items("items[0]", items=[{"id": "b"}])
    yield items("items[0]", items=[{"id": "b", "x": x, "categories": ["c"]}])
    yield items("items[0].categories", items=[{"id": "b", "categories": ["c"]}])
    yield items("items[0].title", items=[{"id": "b", "x": x, "title": "t" * 1001}])
    yield items("items[0].summary", items=[{"id": "b", "x": x, "summary": "t" * 10_001}])
    yield items("replace", replace=1)
    yield items("remove", remove=[f"i{n}" for n in range(10_001)])


def shapes(route: str, good: bytes) -> Iterator[Hostile]:
    """List bodies that are wrong as a whole, for any route that reads a body."""
    first = next(iter(GOOD[route]))
    yield Hostile("no body", route, b"", None, 400)
    yield Hostile("half a body", route, good[: len(good) // 2], None, 400)
    yield Hostile("a body and a half", route, good + b"{}", None, 400)
    yield Hostile("text", route, b"decide, please", None, 400)
    yield Hostile("a form", route, b"user=ann&arms=1", None, 400)
    yield Hostile("bytes", route, bytes(range(256)), None, 400)
    yield Hostile("gzip", route, b"\x1f\x8b\x08\x00\x00\x00\x00\x00", None, 400)
    yield Hostile("UTF-16", route, good.decode().encode("utf-16"), None, 400)
    yield Hostile("a byte order mark", route, b"\xef\xbb\xbf" + good, None, 400)
    yield Hostile("single quotes", route, good.replace(b'"', b"'"), None, 400)
    yield Hostile("a trailing comma", route, good[:-1] + b",}", None, 400)
    yield Hostile("a comment", route, b"// mine\n" + good, None, 400)
    for literal in (b"null", b"1", b'"a"', b"[]", b"true", b"[" + good + b"]"):
        yield Hostile(f"{literal[:9].decode()} for a body", route, literal, "", 422)
    for deep in (b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000):
        yield Hostile("deep in the body", route, deep, "", 422)
    opened = b'{"a":' * 100_000
    yield Hostile("deep objects", route, opened + b"1" + b"}" * 100_000, "a", 422)
    yield Hostile(
        "deep in a field", route, b'{"%s": %s' % (first.encode(), b"[" * 100_000), first * (route != ITEM), 422
    )
    yield Hostile("empty", route, b"{}", first, 422)
    yield Hostile("an unknown field", route, good[:-1] + b',"of":1}', "of", 422)
    yield Hostile("an unknown deep field", route, good[:-1] + b',"of":' + b"[" * 100_000 + b"}", "of", 422)
    yield Hostile("a field with a terminal's escape", route, good[:-1] + b',"\\u001b[2J":1}', "\ufffd[2J", 422)
    yield Hostile("a key of 1 MB", route, good[:-1] + b',"' + b"k" * 1_000_000 + b'":1}', "k" * 199 + "…", 422)
    again = json.dumps({first: GOOD[route][first]}).encode()
    yield Hostile("a key twice", route, good[:-1] + b", " + again[1:], first, 422)
    escaped = b'{"\\u%04x%s' % (ord(first[0]), again[3:])
    yield Hostile("a key twice, once escaped", route, good[:-1] + b", " + escaped[1:], first, 422)
    yield Hostile("too much", route, good[:-1] + b" " * 4_000_001 + b"}", "", 413)


CASES = list(hostile())
PATHS = [
    ("GET", "/v1/users/%00", 422, "user"),
    ("DELETE", "/v1/users/%00", 422, "user"),
    ("GET", "/v1/users/a%0d%0aset-cookie:%20a", 422, "user"),
    ("GET", "/v1/users/%0a", 422, "user"),
    ("DELETE", "/v1/users/%0a", 422, "user"),
    ("DELETE", "/v1/users/ann%0a", 422, "user"),
    ("GET", "/page/users/ann/story%0a", 404, None),
    ("POST", "/v1/decisions%0a", 404, None),
    ("DELETE", "/v1/users/%1b[2J", 422, "user"),
    ("GET", "/v1/users/" + "a" * 1_000_000, 422, "user"),
    ("DELETE", "/v1/users/" + "a" * 257, 422, "user"),
    ("GET", "/v1/users/", 422, "user"),
    ("DELETE", "/v1/users/", 422, "user"),
    ("GET", "/v1/users/..%2f..%2fetc%2fpasswd", 404, "user"),
    ("GET", "/v1/users/%2e%2e", 404, "user"),
    ("GET", "/v1/users/%ff%fe", 400, "path"),
    ("GET", "/v1/users/%c3%28", 400, "path"),
    ("GET", "/v1/users/user%2Fann", 404, "user"),
    ("DELETE", "/v1/users/nobody", 404, "user"),
    ("GET", "/v1/users", 404, None),
    ("POST", "/v1/decisions/", 404, None),
    ("POST", "//v1/decisions", 404, None),
    ("POST", "/v1/decisions%00", 404, None),
    ("POST", "/V1/decisions", 404, None),
    ("GET", "/v1/" + "a/" * 100_000, 404, None),
    ("GET", "/v1/decisions", 405, None),
    ("PATCH", "/v1/decisions", 405, None),
    ("TRACE", "/v1/items", 405, None),
    ("DECIDE", "/v1/decisions", 405, None),
    ("POST", "/v1/users/ann", 405, None),
]


@pytest.fixture(params=["sqlite", "postgres"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Local]:
    url = str(tmp_path / "lcb.db") if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    with prepared(url, tmp_path) as made:
        yield made


def prepared(url: str, folder: Path) -> Local:
    """A service with a catalogue, two users, a reward and an open decision."""
    made = Local(url, models=models_folder(folder))
    for route, body in (
        (ITEM, {"items": ITEMS}),
        (DECIDE, {"user": "ann", "arms": ARMS, "decision_id": "open"}),
        (DECIDE, {"user": "bob", "arms": ARMS, "decision_id": "done"}),
        (REWARD, {"decision_id": "done", "reward": 1.0}),
    ):
        method, path = route.split()
        assert made.send(method, path, body).status == 200
    return made


def refused(local: Local, name: str, method: str, path: str, body: bytes, field: str | None, status: int) -> None:
    """Send one invalid request and check the refusal and that nothing changed; field "" means the whole body."""
    answered = local.ask(method, path, body)
    assert answered.status == status, f"{name}: {answered.status} {answered.body[:300]!r}"
    assert answered.type == "application/problem+json", name
    said = answered.json
    assert said.get("field") == (field or None), f"{name}: {said}"
    assert len(answered.body) < 2000, f"{name}: an answer of {len(answered.body)} bytes"
    assert said["detail"].isprintable(), f"{name}: {said}"
    assert status == 400 or "; " in said["detail"], f"{name} has no remedy: {said}"


def drill(local: Local, cases: list[Hostile], paths: list[tuple[str, str, int, str | None]] = PATHS) -> None:
    before = local.read_log_and_state()
    for case in cases:
        method, path = case.route.split()
        unread = len(case.body) > SMALL and case.route not in (DECIDE, ITEM)
        field, status = (None, 413) if unread else (case.field, case.status)
        refused(local, case.name, method, path, case.body, field, status)
        assert local.service.world.seq == len(before.rows), f"{case.name} is in the log"
    for method, path, status, field in paths:
        refused(local, f"{method} {path[:40]}", method, path, b"", field, status)
    assert local.read_log_and_state() == before
    local.verify()


def test_what_no_client_should_send_is_refused_by_name_and_leaves_no_trace(local: Local) -> None:
    drill(local, CASES)


def test_every_number_text_and_shape_is_tried_on_every_route_that_takes_it() -> None:
    assert {case.route for case in CASES} == set(GOOD)
    assert len(CASES) > 250


FINE = [
    (DECIDE, {"user": "eve", "arms": ARMS[:1]}),  # one arm
    (DECIDE, {"user": "eve", "arms": [{"id": "a", "x": [-0.0] * 6}]}),
    (DECIDE, {"user": "eve", "arms": [{"id": "a", "x": [1e9] * 6}, {"id": "b", "x": [-1e9] * 6}]}),
    (DECIDE, {"user": "eve", "arms": [{"id": "a", "x": [5e-324] * 6}]}),
    (DECIDE, {"user": "../../etc/passwd", "arms": ARMS}),
    (DECIDE, {"user": "Zoë 👩", "arms": [{"id": "<script>alert(1)</script>", "x": [0.0] * 6}]}),
    (DECIDE, {"user": "'; drop table event; --", "arms": ARMS}),
    (DECIDE, {"user": "u" * 256, "arms": [{"id": "{}%s", "x": [0] * 6}]}),
    (DECIDE, {"user": "eve", "arms": [{"id": f"a{n}", "x": [n] * 6} for n in range(10_000)]}),
    (REWARD, {"decision_id": "open", "reward": -0.0}),
    (REWARD, {"decision_id": "open", "reward": 0}),  # the same again
    (ITEM, {"items": []}),
    (ITEM, {"items": [{"id": "i0", "x": [-0.0] * 6, "title": "two\nlines"}], "remove": ["not there"]}),
]


def test_what_only_looks_odd_is_taken(local: Local) -> None:
    for route, body in FINE:
        method, path = route.split()
        answered = local.send(method, path, body)
        assert answered.status == 200, (body, answered.body[:300])
    local.verify()


@pytest.mark.parametrize(
    "at, name, body",
    [
        (arms_of_request, "check_size", put(DECIDE, "arms[1].x[0]", "1e308")),
        (arms_of_request, "check_ids", put(DECIDE, "arms[1].id", '"a\\u001b[2J"')),
        (strict_json, "refuse_duplicates", json.dumps(GOOD[DECIDE]).encode()[:-1] + b',"user":"eve"}'),
        (strict_json, "refuse_nul", put(ITEM, "items[0].title", '"\\u0000"')),
    ],
    ids=["size", "ids", "duplicates", "NUL"],
)
def test_the_drill_sees_a_check_that_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: Any, name: str, body: bytes
) -> None:
    case = next(
        case for case in CASES if case.body == body or (name == "refuse_duplicates" and case.name == "a key twice")
    )
    with prepared(str(tmp_path / "lcb.db"), tmp_path) as local:
        drill(local, [case], [])
        monkeypatch.setattr(at, name, lambda *given, **named: None)
        with pytest.raises(AssertionError):
            drill(local, [case], [])


def test_a_users_features_crossed_with_the_arms_cannot_fill_the_memory(tmp_path: Path) -> None:
    with Local(str(tmp_path / "lcb.db")) as fresh:
        body = {"user": "eve", "x": [1] * 1000, "arms": [{"id": f"a{n}", "x": [1] * 1000} for n in range(1200)]}
        answered = fresh.send("POST", "/v1/decisions", body)
        assert (answered.status, answered.json["field"]) == (422, "x")
        assert str(messages.MOST_FEATURES) in answered.json["detail"]
        assert {row.kind for row in fresh.read_log_and_state().rows} == {"service", "recommender"}


def test_the_catalogue_cannot_grow_beyond_the_arms_of_a_request(tmp_path: Path) -> None:
    with Local(str(tmp_path / "lcb.db")) as fresh:
        many = {"items": [{"id": f"i{n}", "x": [1]} for n in range(messages.MOST_ITEMS)]}
        assert fresh.send("PUT", "/v1/items", many).json["n_items"] == messages.MOST_ITEMS
        one = {"items": [{"id": "more", "x": [1]}]}
        answered = fresh.send("PUT", "/v1/items", one)
        assert (answered.status, answered.json["field"]) == (422, "items")
        assert fresh.send("PUT", "/v1/items", one | {"remove": ["i0"]}).json["n_items"] == messages.MOST_ITEMS
        assert len(fresh.send("POST", "/v1/decisions", {"user": "ann"}).json["distribution"]) == messages.MOST_ARMS


def test_the_first_requests_cannot_disagree_about_the_number_of_features(tmp_path: Path) -> None:
    with Local(str(tmp_path / "lcb.db")) as fresh:

        def decision(n: int) -> Any:
            body = {"user": f"u{n}", "arms": [{"id": "a", "x": [1] * n}], "decision_id": f"d{n}"}
            return fresh._ask("POST", "/v1/decisions", json.dumps(body).encode(), ())

        async def at_once() -> list[Any]:
            import asyncio

            items = fresh._ask("PUT", "/v1/items", b'{"items": [{"id": "a", "x": [1, 2, 3, 4]}]}', ())
            return await asyncio.gather(decision(2), decision(3), items)

        answers = fresh.run(at_once())
        assert sorted(answered.status for answered in answers) == [200, 422, 422]
        assert fresh.send("POST", "/v1/rewards", {"decision_id": "d2", "reward": 1}).status == 200
        fresh.verify()


ACTIVATE = "POST /v1/models/1/activate"
ACTIVATIONS = [
    (b'{"reason": 1}', "reason"), (b'{"reason": "\\u0000"}', "reason"), (b'{"why": 1}', "why"), (b"[]", ""),
    (b'{"reason": "' + b"a" * 1001 + b'"}', "reason"), (b'{"reason": "a", "reason": "b"}', "reason"),
    (b'{"reason": ' + b"[" * 100_000, "reason"),
]  # fmt: skip
VERSIONS = ("x", "-1", "1.0", "%31%00", "\u0661", "9" * 100_000, "1%20", "1%0a", "%2e%2e", "1e3", "0x1", "7")
NAMES = (
    "%00",
    "%1b[2J",
    "a" * 1_000_000,
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "%ff%fe",
    "%e2%80%ae",
    "a%0a",
    "\u0661",
    "-1",
)


def test_no_model_is_activated_by_accident(local: Local) -> None:
    cases = [Hostile(f"reason {body[:20]!r}", ACTIVATE, body, field) for body, field in ACTIVATIONS]
    drill(local, cases, [("POST", f"/v1/models/{quote(one, safe='%')}/activate", 404, "version") for one in VERSIONS])


def test_no_route_fails_whatever_it_is_sent(tmp_path: Path) -> None:
    """Send rubbish to every route, also of the pages: it may be accepted, but never answered with 500 or not at all."""
    bodies = [case.body for case in CASES if case.route == REWARD][:: 1 if LONG else 6]
    headers = [
        (b"host", b"["), (b"cookie", b"\xff=\x00; a; =; " + b"a=b; " * 5000), (b"authorization", b"Bearer \xff\x00"),
        (b"authorization", b"\xe9"), (b"if-none-match", b"\xff"), (b"accept-encoding", b"\x00, gzip;q=x"),
        (b"last-event-id", b"-1e999"), (b"sec-fetch-site", b"\xff"), (b"content-type", b"multipart/form-data"),
    ]  # fmt: skip
    with Local(str(tmp_path / "lcb.db"), pages=True, models=models_folder(tmp_path)) as local:
        for call in local.app.calls:
            if call.path.endswith("/events") or (call.path.endswith(("/charts", "/vega.js")) and not LONG):
                continue  # the first does not end, the others take seconds to make
            paths = [re.sub(r"\{\w+(:\w+)?\}", quote(name, safe="%"), call.path) for name in NAMES]
            paths = (
                paths if "{" in call.path else [call.path, f"{call.path}?{'a' * 10_000}&limit=-1&after=%00&user=%ff"]
            )
            asked = [(path, b"", ()) for path in paths] + [(paths[-1], b"", (header,)) for header in headers]
            if call.method != "GET":
                asked += [(paths[-1], body, ()) for body in bodies]
            for path, body, more in asked:
                answered = local.ask(call.method, path, body, more)
                told = (call.method, path[:80], body[:80], more, answered.status, answered.body[:300])
                assert answered.status < 500, told
                if answered.status >= 400:
                    assert answered.type == "application/problem+json", told
                    assert answered.json["detail"].isprintable(), told
                    assert len(answered.body) < 2000, told
        local.verify()


RAW = {
    "a header that continues": b"GET /v1/items HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
    "NUL in a header": b"GET /v1/items HTTP/1.1\r\nhost: localhost\r\nx: \0\r\n\r\n",
    "a bare line feed in a header": b"GET /v1/items HTTP/1.1\r\nhost: localhost\r\nx: a\nset-cookie: b\r\n\r\n",
    "two lengths": b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 9\r\n\r\n{}",
    "a length and chunks": b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length below 0": b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    "a path with a space": b"GET /v1/users/a b HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a host that is none": b"GET /v1/nothing HTTP/1.1\r\nhost: [\r\n\r\n",
    "no host": b"GET /v1/items HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v1/items HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a path of 1 MB": b"GET /v1/users/" + b"a" * 1_000_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a header of 1 MB": b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "another version": b"GET /v1/nothing HTTP/3.7\r\nhost: localhost\r\n\r\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_request_is_refused_or_dropped(server: Server, name: str) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        heard = b""
        try:
            connection.sendall(RAW[name])
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                heard += part
        except ConnectionError:
            pass
    assert not heard or heard.startswith(b"HTTP/1.1 4"), heard[:200]
    assert b"set-cookie" not in heard.lower()
    with server.client() as http:
        assert http.get("/healthz").status_code == 200
        assert http.get("/v1/items").json()["n_items"] == 0
