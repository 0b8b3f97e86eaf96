"""Drill 38: callers have cookies that were issued, one session per browser and real addresses; 404s lock out no key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from lcb.serve.audit.trail import read_trail
from lcb.serve.config.settings import Limits
from lcb.serve.pages import sessions
from lcb.serve.pages.visitors import Visitors
from lcb.serve.web.app import App
from lcb.serve.web.keys import create, sha256
from lcb.storage.store.base import Key
from lcb.storage.store.open_store import open_store
from support.harness import LONG, serving
from support.http_inside import inside
from support.news_front import front

KEYS = [Key(scope, scope, sha256(f"lcb_{scope}"), 0.0, None) for scope in ("reader", "writer", "admin")]
BEARER = {scope: {"authorization": f"Bearer lcb_{scope}"} for scope in ("reader", "admin", "nobody")}
CHOSEN = "0197c2a5b1f0.AAAAAAAAAAAAAAAAAAAAAA"  # the form of a visitor's cookie, but the service never sent it


def asking(folder: Path, work: Callable[[App, httpx.AsyncClient], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        async with inside(front(folder, **more), keys=KEYS) as (app, client):
            await work(app, client)

    asyncio.run(main())


# Visitors' cookies


async def choose_a_cookie(app: App, client: httpx.AsyncClient) -> None:
    """Somebody plants a cookie in the browser of another, and later comes back with the same one."""
    names = []
    for _ in range(2):
        client.cookies.clear()
        seen = await client.post("/page/visit", json={}, headers={"cookie": f"lcb_reader={CHOSEN}"})
        assert seen.status_code == 200
        names.append(seen.json()["visitor"])
        assert client.cookies.get("lcb_reader") not in (None, CHOSEN), (
            "the service takes a cookie that it did not issue"
        )
        again = await client.post("/page/visit", json={})  # with the cookie that was issued
        assert again.json()["visitor"] == names[-1]
    assert names[0] != names[1], "the service takes a cookie that it did not issue"


def test_a_cookie_that_the_service_did_not_issue_is_replaced(tmp_path: Path) -> None:
    asking(tmp_path, choose_a_cookie)


def test_a_service_that_takes_any_cookie_would_let_two_be_one_visitor(tmp_path: Path, monkeypatch) -> None:
    async def believe(self: Visitors, name: str) -> bool:
        return True

    monkeypatch.setattr(Visitors, "has_events", believe)
    with pytest.raises(AssertionError, match="did not issue"):
        asking(tmp_path, choose_a_cookie)


def test_an_erased_visitor_is_somebody_new(tmp_path: Path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        first = (await client.post("/page/visit", json={})).json()["visitor"]
        assert (await client.delete(f"/v1/users/{first}", headers=BEARER["admin"])).status_code == 200
        assert (await client.post("/page/visit", json={})).json()["visitor"] != first

    asking(tmp_path, work)


# Signing in


async def sign_in(client: httpx.AsyncClient, scope: str = "admin") -> str:
    answered = await client.post("/page/login", json={"key": f"lcb_{scope}"})
    assert answered.status_code == 204, answered.text
    return client.cookies["lcb_session"]


async def status_of(client: httpx.AsyncClient, session: str) -> int:
    kept = dict(client.cookies)
    client.cookies.clear()
    status = (await client.get("/v1/models", headers={"cookie": f"lcb_session={session}"})).status_code
    client.cookies.update(kept)
    return status


async def sign_in_again(app: App, client: httpx.AsyncClient) -> None:
    first = await sign_in(client, "reader")
    second = await sign_in(client, "admin")  # the browser sends the first cookie
    assert await status_of(client, second) == 200
    assert await status_of(client, first) == 401, "the session before outlives the next sign-in"
    actions = [(row["action"], row["key"]) for row in read_trail(app.service.store)]
    assert actions == [("signed in", "reader"), ("signed out", "admin"), ("signed in", "admin")]


def test_signing_in_again_ends_the_session_of_the_browser(tmp_path: Path) -> None:
    asking(tmp_path, sign_in_again)


def test_a_service_that_only_sets_a_new_cookie_would_leave_the_old_session(tmp_path: Path, monkeypatch) -> None:
    async def nothing(self: Any, session: str, by: Any) -> None:
        return None

    monkeypatch.setattr(sessions.Sessions, "end", nothing)
    with pytest.raises(AssertionError, match="outlives the next sign-in"):
        asking(tmp_path, sign_in_again)


def flood(folder: Path, limits: Limits) -> None:
    """Somebody with a valid key signs in and out as fast as possible."""
    n = 2000 if LONG else 100

    async def work(app: App, client: httpx.AsyncClient) -> None:
        before, answers = app.service.world.seq, []
        for _ in range(n):
            answers.append(await client.post("/page/login", json={"key": "lcb_reader"}))
            await client.post("/page/logout")
        wrote = app.service.world.seq - before
        assert wrote <= 45, f"a key wrote {wrote} events"
        refused = answers[-1]
        assert refused.status_code == 429
        assert "wait" in refused.json()["detail"]
        assert "limits.sign_ins" in refused.json()["detail"]
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert await sign_in(client, "admin"), "another key is not held up"

    asking(folder, work, limits=limits)


def test_a_valid_key_cannot_fill_the_log_with_sign_ins(tmp_path: Path) -> None:
    flood(tmp_path, Limits())


def test_without_a_rate_of_sign_ins_it_would(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a key wrote"):
        flood(tmp_path, Limits(sign_ins=0))


def test_sessions_of_one_key_do_not_end_those_of_another(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_MOST", 3)

    async def work(app: App, client: httpx.AsyncClient) -> None:
        admin, readers = await sign_in(client), []
        for _ in range(5):
            client.cookies.clear()
            readers.append(await sign_in(client, "reader"))
        assert [await status_of(client, one) for one in (admin, *readers)] == [200, 401, 401, 200, 200, 200]

    asking(tmp_path, work)


# Answers 404


def guess(folder: Path) -> None:
    """With a key, unknown users are answered 404 however many; without one, guessing ends in 429."""

    async def work(app: App, client: httpx.AsyncClient) -> None:
        for path in ("/v1/users/nobody", "/v1/nothing", "/page/users/nobody/story"):
            found = [(await client.get(path, headers=BEARER["reader"])).status_code for _ in range(40)]
            assert set(found) == {404}, f"a valid key is locked out of {path}"
        wrong = [(await client.get("/v1/users/nobody", headers=BEARER["nobody"])).status_code for _ in range(40)]
        assert (wrong[0], wrong[-1]) == (401, 429), "keys can be guessed without end"
        none = [(await client.get("/nothing")).status_code for _ in range(40)]
        assert none[-1] == 429, "paths can be guessed without end"
        assert (await client.get("/v1/users/nobody", headers=BEARER["reader"])).status_code == 404
        await sign_in(client, "reader")
        found = [(await client.get("/v1/users/nobody")).status_code for _ in range(40)]
        assert set(found) == {404}, "a session is locked out"

    asking(folder, work, limits=Limits(failures=1.0))


def test_unknown_users_do_not_lock_out_a_valid_key_but_guessing_ends(tmp_path: Path) -> None:
    guess(tmp_path)


def test_a_count_that_does_not_ask_for_the_key_would_lock_it_out(tmp_path: Path, monkeypatch) -> None:
    kept = App.limit_failure
    monkeypatch.setattr(App, "limit_failure", lambda self, scope, who: kept(self, scope, None))
    with pytest.raises(AssertionError, match="a valid key is locked out"):
        guess(tmp_path)


def test_a_service_that_counts_nothing_would_let_keys_be_guessed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(App, "limit_failure", lambda self, scope, who: None)
    with pytest.raises(AssertionError, match="without end"):
        guess(tmp_path)


def test_an_unknown_user_cannot_be_verified(tmp_path: Path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        name = (await client.post("/page/visit", json={})).json()["visitor"]
        wanted = {f"/page/users/{name}/verify": 200, "/page/users/nobody/verify": 404}
        found = {path: await client.post(path, headers=BEARER["reader"]) for path in wanted}
        assert {path: one.status_code for path, one in found.items()} == wanted
        assert found["/page/users/nobody/verify"].json()["field"] == "user"

    asking(tmp_path, work)


# Addresses that a proxy reports


ADDRESSES = {
    "203.0.113.9": (401, "203.0.113.9"),
    "203.0.113.9:4711": (401, "203.0.113.9"),
    "not an address, 203.0.113.9": (401, "203.0.113.9"),
    "2001:0db8:0:0::1": (401, "2001:db8::1"),
    "[2001:db8::1]:80": (401, "2001:db8::1"),
    "": (401, "127.0.0.1"),
    "unknown": (400, None),
    "203.0.113.9, admin": (400, None),
    "<script>": (400, None),
    "1" * 5000: (400, None),
}


def drill_addresses(folder: Path, without: tuple[str, ...] = ()) -> None:
    store = open_store(str(folder / "lcb.db"))
    create(store, "ops", "admin", 0.0)
    store.close()
    with (
        serving(folder, proxies=["127.0.0.1"], limits={"drain": 0.0}, without=without) as running,
        running.client() as http,
    ):
        for given, (status, _) in ADDRESSES.items():
            answered = http.get("/v1/models", headers={"x-forwarded-for": given})
            assert answered.status_code == status, f"{given[:50]!r} is taken for an address"
            if status == 400:
                assert answered.json()["field"] == "X-Forwarded-For"
                assert "let the proxy" in answered.json()["detail"]
        assert running.stop() == 0
    store = open_store(str(folder / "lcb.db"))
    refused = {row["address"] for row in read_trail(store) if row["action"].startswith("was refused")}
    store.close()
    assert refused == {address for _, address in ADDRESSES.values()} - {None}


def test_what_a_proxy_reports_must_be_an_address(tmp_path: Path) -> None:
    drill_addresses(tmp_path)


def test_without_the_check_any_text_is_an_address(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is taken for an address"):
        drill_addresses(tmp_path, ("checked addresses",))
