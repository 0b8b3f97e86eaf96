"""Drill 31: who reads the database, the cookie of another day or the name of another host gets no further for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from lcb.serve.config.settings import Settings
from lcb.serve.pages import sessions, visitors
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.web import app as of_app
from lcb.serve.web import hosts
from lcb.serve.web.app import App
from lcb.serve.web.keys import Keyring, create, sha256
from lcb.storage.store.base import Key, Store
from lcb.storage.store.open_store import open_store
from support.harness import LONG, serving
from support.http_inside import inside
from support.news_front import front

KEYS = [Key(scope, scope, sha256(f"lcb_{scope}"), 0.0, None) for scope in ("reader", "writer", "admin")]
SECRET = "lcb_session"
Asked = Callable[[App, httpx.AsyncClient], Awaitable[None]]


def asking(folder: Path, work: Asked, *, keys: Sequence[Key] = KEYS, **more: Any) -> None:
    async def main() -> None:
        async with inside(front(folder), keys=keys, **more) as (app, client):
            await work(app, client)

    asyncio.run(main())


async def sign_in(client: httpx.AsyncClient, scope: str = "admin") -> str:
    """The value of the session cookie."""
    client.cookies.clear()
    answered = await client.post("/page/login", json={"key": f"lcb_{scope}"})
    assert answered.status_code == 204, answered.text
    return client.cookies[SECRET]


async def status_of(client: httpx.AsyncClient, cookie: str, path: str = "/v1/models", **headers: str) -> int:
    client.cookies.clear()
    return (await client.get(path, headers={"cookie": f"{SECRET}={cookie}", **headers})).status_code


# Who reads the database


def texts_of(store: Store) -> set[bytes]:
    """All strings and bytes of the log, the keys and the snapshots, and the hashes in the forms a cookie could have."""
    found: set[bytes] = set()
    for row in store.events(0):
        found.update((row.id.encode(), (row.user or "").encode()))
        found.update(_parts(row.body))
    found.update(key.sha256 for key in store.list_keys())
    for raw in list(found):
        found.update((raw.hex().encode(), base64.urlsafe_b64encode(raw).rstrip(b"="), base64.b64encode(raw)))
    return {one for one in found if 0 < len(one) < 200}


def _parts(body: bytes) -> Iterator[bytes]:
    """The texts and byte strings inside a body."""
    stack = [msgspec.msgpack.decode(body)]
    while stack:
        one = stack.pop()
        if isinstance(one, list | tuple):
            stack.extend(one)
        elif isinstance(one, bytes):
            yield one
        elif isinstance(one, str):
            yield one.encode()


def signed(seed: bytes, name: str, value: str) -> str:
    """A cookie as the service signed them once: by a key that derives from the seed of the log."""
    key = hashlib.blake2b(b"cookies", key=seed, digest_size=32).digest()
    text = base64.urlsafe_b64encode(value.encode()).decode().rstrip("=")
    digest = hmac.new(key, f"{name}={text}".encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def read_the_database(app: App, client: httpx.AsyncClient) -> None:
    """An admin is signed in and a visitor reads; somebody with a copy of the store tries to be either."""
    await sign_in(client)
    client.cookies.clear()
    visitor = (await client.post("/page/visit", json={})).json()["visitor"]
    store = app.service.store
    seed = app.service.world.state.seed
    texts = {one.decode("latin-1") for one in texts_of(store)}
    texts = {one for one in texts if all(" " < c < "\x7f" and c not in '";,\\' for c in one)}
    old = {signed(seed, SECRET, f"{key.sha256.hex()}|{int(time.time()) + 9999}") for key in KEYS}
    for cookie in texts | old:
        assert await status_of(client, cookie) == 401, f"the store gives a session away: {cookie}"
    for cookie in texts | {signed(seed, "reader", visitor), visitor, visitor.removeprefix("reader-")}:
        client.cookies.clear()
        headers = {"cookie": f"lcb_reader={cookie}"}
        found = await client.post("/page/answer", json={"decision_id": f"{visitor}.0", "opened": True}, headers=headers)
        assert found.status_code == 404, f"the store gives a visitor away: {cookie}"


def test_a_copy_of_the_database_makes_nobody_an_admin_or_a_visitor(tmp_path: Path) -> None:
    asking(tmp_path, read_the_database)


def test_sessions_that_are_stored_as_they_are_would_be_given_away(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "digest_of", lambda session: session.encode())
    with pytest.raises(AssertionError, match="gives a session away"):
        asking(tmp_path, read_the_database)


def test_visitors_who_are_named_by_their_cookies_would_be_given_away(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(visitors, "name_of", lambda role, cookie: f"{role}-{cookie}")
    with pytest.raises(AssertionError, match="gives a visitor away"):
        asking(tmp_path, read_the_database)


# When a session ends


async def sign_out(app: App, client: httpx.AsyncClient) -> None:
    cookie = await sign_in(client)
    other = await sign_in(client)
    assert [await status_of(client, one) for one in (cookie, other)] == [200, 200]
    gone = await client.post("/page/logout", headers={"cookie": f"{SECRET}={cookie}"})
    assert gone.status_code == 204
    assert await status_of(client, cookie) == 401, "the session outlives its sign-out"
    assert await status_of(client, other) == 200, "another session ended too"


def test_a_session_ends_at_sign_out_whoever_kept_its_cookie(tmp_path: Path) -> None:
    asking(tmp_path, sign_out)


def test_sign_out_that_only_deletes_the_cookie_would_leave_the_session(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions.Sessions, "_forget", lambda self, digest: None)
    with pytest.raises(AssertionError, match="outlives its sign-out"):
        asking(tmp_path, sign_out)


def drill_expiry(folder: Path) -> None:
    clock = [1_000_000.0]

    async def work(app: App, client: httpx.AsyncClient) -> None:
        cookie = await sign_in(client)
        clock[0] += 24 * 3600 - 5
        assert await status_of(client, cookie) == 200
        clock[0] += 10
        assert await status_of(client, cookie) == 401, "the session outlives its day"

    asking(folder, work, now=lambda: clock[0])


def test_a_session_ends_after_a_day_by_the_servers_clock(tmp_path: Path) -> None:
    drill_expiry(tmp_path)


def drill_clock(folder: Path) -> None:
    """A session that began while the clock was ahead ends when the clock is right; an ended one does not come back."""
    clock = [1_000_000.0]

    async def work(app: App, client: httpx.AsyncClient) -> None:
        clock[0] += 3_650 * 24 * 3600
        ahead = await sign_in(client)
        clock[0] -= 3_650 * 24 * 3600
        assert await status_of(client, ahead) == 401, "a session of ten years"
        usual = await sign_in(client)
        clock[0] += 24 * 3600 + 5
        assert await status_of(client, usual) == 401
        clock[0] -= 3600
        assert await status_of(client, usual) == 401, "an ended session is back"

    asking(folder, work, now=lambda: clock[0])


def test_a_clock_that_jumps_makes_no_session_longer(tmp_path: Path) -> None:
    drill_clock(tmp_path)


def test_sessions_that_may_be_of_the_future_would_last_for_years(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_CLOCKS_DIFFER", 1e12)
    with pytest.raises(AssertionError, match="a session of ten years"):
        drill_clock(tmp_path)


def test_a_day_that_only_the_browser_counts_would_not_end_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "DAY", 48 * 3600)
    with pytest.raises(AssertionError, match="outlives its day"):
        drill_expiry(tmp_path)


def test_a_revoked_key_ends_its_sessions_and_a_new_one_of_the_same_name_does_not_bring_them_back(tmp_path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        cookie = await sign_in(client)
        app.keyring.keys = [key._replace(revoked=1.0) if key.name == "admin" else key for key in KEYS]
        assert await status_of(client, cookie) == 401
        app.keyring.keys = [*KEYS[:2], Key("admin", "admin", sha256("lcb_new"), 2.0, None)]
        assert await status_of(client, cookie) == 401

    asking(tmp_path, work)


def drill_restart(folder: Path, url: str = "") -> None:
    """What holds before a restart holds after it."""
    kept: list[str] = []

    async def before() -> None:
        async with inside(front(folder, url), keys=KEYS) as (_, client):
            kept.extend([await sign_in(client), await sign_in(client)])
            await client.post("/page/logout", headers={"cookie": f"{SECRET}={kept[1]}"})

    async def after() -> None:
        async with inside(front(folder, url), keys=KEYS) as (_, client):
            assert [await status_of(client, one) for one in kept] == [200, 401]

    asyncio.run(before())
    asyncio.run(after())


def test_a_restart_ends_no_session_and_brings_none_back(tmp_path: Path) -> None:
    drill_restart(tmp_path)


def test_sessions_that_are_not_read_again_would_end_at_a_restart(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sessions.Sessions, "load", lambda self: None)
    with pytest.raises(AssertionError):
        drill_restart(tmp_path)


def test_two_replicas_agree_about_a_session(tmp_path: Path, postgres_database: str) -> None:
    async def main() -> None:
        settings = front(tmp_path, postgres_database)
        async with inside(settings, keys=KEYS) as (_, one), inside(settings, keys=KEYS) as (_, other):
            cookie = await sign_in(one)
            await until(other, cookie, 200)
            await other.post("/page/logout", headers={"cookie": f"{SECRET}={cookie}"})
            assert await status_of(other, cookie) == 401
            await until(one, cookie, 401)

    async def until(client: httpx.AsyncClient, cookie: str, wanted: int) -> None:
        async with asyncio.timeout(60):
            while await status_of(client, cookie) != wanted:
                await asyncio.sleep(0.05)

    asyncio.run(main())


# Secure, by TLS or a trusted proxy


@asynccontextmanager
async def by_tls(settings: Settings, scheme: str):
    app = build_app(Service(settings, open_store(settings.store)), Keyring(KEYS))
    app.start()
    try:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://localhost") as client:
            yield client
    finally:
        await app.stop()


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_cookies_of_a_page_that_came_by_tls_are_for_tls_alone(tmp_path: Path, scheme: str, secure: bool) -> None:
    async def main() -> list[str]:
        async with by_tls(front(tmp_path, items=None), scheme) as client:
            signed_in = await client.post("/page/login", json={"key": "lcb_admin"})
            signed_out = await client.post("/page/logout")
            return [one.headers["set-cookie"] for one in (signed_in, signed_out)]

    assert ["; Secure" in one for one in asyncio.run(main())] == [secure, secure]


@pytest.mark.parametrize(("proxies", "secure"), [(None, False), (["127.0.0.1"], True), (["10.0.0.0/8"], False)])
def test_a_proxy_is_believed_that_a_setting_names(tmp_path: Path, proxies: list[str] | None, secure: bool) -> None:
    store = open_store(str(tmp_path / "lcb.db"))
    key = create(store, "ops", "admin", 0.0)
    store.close()
    with serving(tmp_path, proxies=proxies, pages=True) as server, server.client() as http:
        forwarded = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
        answered = http.post("/page/login", json={"key": key}, headers=forwarded)
        assert ("; Secure" in answered.headers["set-cookie"]) == secure


# Pages of other sites


async def cross_site(app: App, client: httpx.AsyncClient) -> None:
    """A page on another port of the same machine is the same site: the browser sends it the Strict cookie."""
    cookie = await sign_in(client)
    for site in ({"sec-fetch-site": "same-site"}, {"origin": "http://localhost:3000"}):
        client.cookies.clear()
        headers = {"cookie": f"{SECRET}={cookie}", **site}
        answered = await client.request("DELETE", "/v1/users/nobody", headers=headers)
        assert answered.status_code == 403, f"a page of another site reaches /v1: {site}"
    answered = await client.request("DELETE", "/v1/users/nobody", headers={"cookie": f"{SECRET}={cookie}"})
    assert answered.status_code == 404
    bearer = {"authorization": "Bearer lcb_admin", "origin": "http://elsewhere.example"}
    assert (await client.get("/v1/models", headers=bearer)).status_code == 200, "a key needs no such check"


def test_a_page_of_another_site_cannot_use_the_session_for_the_api(tmp_path: Path) -> None:
    asking(tmp_path, cross_site)


def test_an_api_that_takes_the_cookie_from_any_page_would_let_it_in(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(of_app, "refuse_other_sites", lambda scope: None)
    with pytest.raises(AssertionError, match="reaches /v1"):
        asking(tmp_path, cross_site)


# The name of the host


HOSTS = [
    (None, "127.0.0.1", {"localhost": 200, "localhost:8000": 200, "127.0.0.1:1": 200, "[::1]:80": 200,
                         "127.9.9.9": 200, "evil.example": 421, "evil.example:8000": 421, "localhost.evil.example": 421,
                         "[": 421, "": 421, "LOCALHOST": 200, "192.168.1.5": 421}),
    (("shop.example",), "127.0.0.1", {"shop.example": 200, "SHOP.example:443": 200, "localhost": 200,
                                      "evil.example": 421}),
    (("*",), "127.0.0.1", {"evil.example": 200}),
    (None, "0.0.0.0", {"anything.example": 200}),
    (("shop.example",), "0.0.0.0", {"shop.example": 200, "evil.example": 421, "127.0.0.1": 200}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "address", "wanted"), HOSTS)
def test_the_host_of_a_request_is_on_the_list(tmp_path: Path, given, address: str, wanted: dict[str, int]) -> None:
    async def main() -> dict[str, int]:
        settings = Settings(store=str(tmp_path / "lcb.db"), pages=False, host=address, hosts=given)
        async with inside(settings) as (_, client):
            return {host: (await client.get("/v1/items", headers={"host": host})).status_code for host in wanted}

    assert asyncio.run(main()) == wanted


def rebind(folder: Path) -> None:
    """A page of evil.example, whose name now leads to this machine: the browser takes the two for one origin."""

    async def main() -> None:
        async with inside(Settings(store=str(folder / "lcb.db"))) as (app, client):
            before = app.service.world.seq
            same = {"host": "evil.example:8000", "origin": "http://evil.example:8000", "sec-fetch-site": "same-origin"}
            body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
            answered = await client.post("/v1/decisions", json=body, headers=same)
            assert app.service.world.seq == before, "a page of another host has written"
            assert answered.status_code == 421
            assert answered.headers["content-type"] == "application/problem+json"
            assert "hosts" in answered.json()["detail"]
            assert (await client.get("/dashboard", headers=same)).status_code == 421
            assert (await client.get("/healthz", headers=same)).status_code == 200

    asyncio.run(main())


def test_a_name_that_is_turned_to_this_machine_reaches_nothing(tmp_path: Path) -> None:
    rebind(tmp_path)


def test_a_service_that_takes_any_host_would_be_written_to(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hosts.Hosts, "check", lambda self, host: None)
    with pytest.raises(AssertionError, match="another host has written"):
        rebind(tmp_path)


# Keys that are deleted


def drill_deleted(folder: Path, without: tuple[str, ...] = ()) -> None:
    url = str(folder / "lcb.db")
    store = open_store(url)
    key = create(store, "ops", "admin", 0.0)
    store.close()
    bearer = {"authorization": f"Bearer {key}"}
    with serving(folder, without=without) as server, server.client() as http:
        for _ in range(5 if LONG else 1):
            assert http.get("/v1/items", headers=bearer).status_code == 200
            with sqlite3.connect(url) as connection:
                kept = connection.execute("select * from key").fetchall()
                connection.execute("delete from key")
            until = time.monotonic() + 60
            while http.get("/v1/items", headers=bearer).status_code == 200 and time.monotonic() < until:
                assert http.get("/v1/items").status_code == 401, "deleting the keys opens the service"
                time.sleep(0.05)
            assert http.get("/v1/items").status_code == 401, "deleting the keys opens the service"
            assert "lcb keys create" in http.get("/v1/items").json()["detail"]
            with sqlite3.connect(url) as connection:
                connection.executemany("insert into key values(?, ?, ?, ?, ?)", kept)
            while http.get("/v1/items", headers=bearer).status_code != 200:
                assert time.monotonic() < until + 60
                time.sleep(0.05)


def test_deleting_all_keys_closes_a_running_service(tmp_path: Path) -> None:
    drill_deleted(tmp_path)


def test_a_service_that_asks_only_whether_there_are_keys_would_open(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="opens the service"):
        drill_deleted(tmp_path, ("closing",))


def test_a_ring_without_keys_is_open_only_if_it_never_had_one() -> None:
    ring = Keyring()
    assert ring.open
    ring.keys = KEYS
    ring.keys = []
    assert not ring.open
