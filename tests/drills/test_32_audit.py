"""Drill 32: who did what and who was refused is in the log; refusals cannot fill it, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lcb.serve.audit.export import export
from lcb.serve.audit.trail import read_trail
from lcb.serve.audit.verify import verify
from lcb.serve.events import Actor
from lcb.serve.state.world import World
from lcb.serve.web import refusals
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Ask
from lcb.serve.web.keys import create, revoke, sha256
from lcb.storage.store.base import Key
from lcb.storage.store.open_store import open_store
from support.harness import LONG, arms, serving, wait_until
from support.http_inside import inside
from support.inside import log_sha256
from support.news_front import front, read

KEYS = [Key(scope, scope, sha256(f"lcb_{scope}"), 0.0, None) for scope in ("reader", "writer", "admin")]
BEARER = {scope: {"authorization": f"Bearer lcb_{scope}"} for scope in ("reader", "writer", "admin", "nobody")}


def asking(folder: Path, work: Callable[[App, httpx.AsyncClient], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        async with inside(front(folder, **more), keys=KEYS) as (app, client):
            await work(app, client)

    asyncio.run(main())


def from_address(app: App, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def a_day(app: App, client: httpx.AsyncClient) -> None:
    """An operator's day: everything that is audited, by key and by cookie, from several addresses."""
    ann = (await read(client, n=3))["visitor"]
    async with from_address(app, "10.0.0.1") as ops:
        assert (await ops.post("/page/login", json={"key": "lcb_admin"})).status_code == 204
        assert (await ops.post("/page/dashboard/activate", json={"version": 0})).status_code == 200
        assert (await ops.post("/page/dashboard/retrain", json={})).status_code == 202
        assert (await ops.post("/page/logout")).status_code == 204
    async with from_address(app, "10.0.0.2") as ops:
        told = await ops.post("/v1/models/1/activate", json={"reason": "back"}, headers=BEARER["admin"])
        assert told.status_code == 200
        assert (await ops.delete(f"/v1/users/{ann}", headers=BEARER["admin"])).status_code == 200
    async with from_address(app, "203.0.113.9") as other:
        for _ in range(7):
            assert (await other.get("/v1/models", headers=BEARER["nobody"])).status_code == 401
    async with from_address(app, "10.0.0.3") as other:
        assert (await other.delete("/v1/users/ann", headers=BEARER["nobody"])).status_code == 401  # hides nobody's key
        assert (await other.delete("/v1/users/ann", headers=BEARER["reader"])).status_code == 403
        assert (await other.post("/v1/models/1/activate", json={}, headers=BEARER["reader"])).status_code == 403
    await app.refusals.flush()


WANTED = [
    ("signed in", "admin", "10.0.0.1", 1),
    ("activated version 0", "admin", "10.0.0.1", 1),
    ("asked for learning", "admin", "10.0.0.1", 1),
    ("signed out", "admin", "10.0.0.1", 1),
    ("activated version 1", "admin", "10.0.0.2", 1),
    ("erased a user with 7 events", "admin", "10.0.0.2", 1),
    ("was refused GET /v1/models (401)", None, "203.0.113.9", 7),
    ("was refused DELETE /v1/users/{user} (401)", None, "10.0.0.3", 1),
    ("was refused DELETE /v1/users/{user} (403), POST /v1/models/{version}/activate (403)", "reader", "10.0.0.3", 2),
]


def drill(folder: Path) -> None:
    asking(folder, a_day)
    store = open_store(str(folder / "lcb.db"))
    try:
        found = [(one["action"], one["key"], one["address"], one["n"]) for one in read_trail(store)]
        assert found == WANTED, "the log does not say who did what"
        assert verify(store).differences == []
        text = json.dumps(read_trail(store))
        assert "reader-" not in text, "the trail names an erased user"
        assert all(secret not in text for secret in ("lcb_admin", "lcb_reader", "lcb_nobody"))
    finally:
        store.close()


def test_the_log_says_who_did_what_and_who_was_refused(tmp_path: Path) -> None:
    drill(tmp_path)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (refusals.Refusals, "note", lambda self, *given: None),
        (Ask, "actor", property(lambda self: Actor(None, ""))),
    ],
)
def test_a_service_that_forgets_who_it_was_or_whom_it_refused_fails(tmp_path, monkeypatch, owner, name, value) -> None:
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(AssertionError, match="does not say who did what"):
        drill(tmp_path)


# Refusals are bounded


def flood(folder: Path) -> None:
    """An attacker tries keys from many addresses; the events are few and count everything."""
    n_addresses, n_each = (3000, 20) if LONG else (300, 3)

    async def work(app: App, client: httpx.AsyncClient) -> None:
        before = app.service.world.seq
        for i in range(n_addresses):
            async with from_address(app, f"198.51.{i // 250}.{i % 250}") as attacker:
                for _ in range(n_each):
                    assert (await attacker.post("/page/login", json={"key": "lcb_guess"})).status_code == 401
        assert app.service.world.seq == before, "a refusal is written at once"
        await app.refusals.flush()
        rows = read_trail(app.service.store)
        assert app.service.world.seq - before <= 11, "refusals fill the log"
        assert sum(row["n"] for row in rows) == n_addresses * n_each
        assert len(app.refusals._counts) == 0

    asking(folder, work)


def test_refusals_from_many_addresses_are_few_events(tmp_path: Path) -> None:
    flood(tmp_path)


def test_an_event_for_every_address_would_fill_the_log(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(refusals, "MOST", 10**9)
    with pytest.raises(AssertionError, match="refusals fill the log"):
        flood(tmp_path)


def test_refusals_are_written_every_minute_and_at_the_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(refusals, "EVERY", 0.05)

    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.get("/v1/models")
        async with asyncio.timeout(60):
            while not read_trail(app.service.store):
                await asyncio.sleep(0.01)
        monkeypatch.setattr(refusals, "EVERY", 60.0)
        await asyncio.sleep(0.1)
        await client.get("/v1/items")

    asking(tmp_path, work)
    store = open_store(str(tmp_path / "lcb.db"))
    found = [row["action"] for row in read_trail(store)]
    store.close()
    assert found == ["was refused GET /v1/models (401)", "was refused GET /v1/items (401)"]


# Nothing else changes


def test_audit_events_change_no_state_no_export_and_no_other_events(tmp_path: Path) -> None:
    """The same visitors with and without an audited day between them: the same table, the same counts."""
    states = []
    for audited in (False, True):
        folder = tmp_path / str(audited)
        folder.mkdir()

        async def work(app: App, client: httpx.AsyncClient, audited: bool = audited, folder: Path = folder) -> None:
            body = {"user": "ann", "arms": [{"id": "a1"}, {"id": "a2"}], "decision_id": "d1"}
            items = {"items": [{"id": "a1", "categories": ["tennis"]}, {"id": "a2", "categories": ["music"]}]}
            for path, sent, method in (("/v1/items", items, "PUT"), ("/v1/decisions", body, "POST")):
                told = await client.request(method, path, json=sent, headers=BEARER["writer"])
                assert told.status_code == 200, told.text
            if audited:
                await client.post("/page/login", json={"key": "lcb_admin"})
                await client.get("/v1/models", headers=BEARER["nobody"])
                await app.refusals.flush()
                create(app.service.store, "new", "reader", 0.0)
                revoke(app.service.store, "new", 1.0)
            told = await client.post("/v1/rewards", json={"decision_id": "d1", "reward": 1}, headers=BEARER["writer"])
            assert told.status_code == 200
            done = await asyncio.to_thread(export, app.service.store, folder / "events.parquet", missing=None)
            world = World(app.service.store)
            world.load()
            assert world.seq == app.service.world.seq
            counts = (done.n_rows, done.n_users, world.n_events, world.n_started, world.n_rewarded)
            states.append((counts, {name: one.pack() for name, one in world.tallies.items()}))
            assert verify(app.service.store).differences == []

        asking(folder, work, shares={"lcb": 1.0})
    assert states[0] == states[1]


def test_a_key_made_while_a_service_writes_leaves_the_log_whole(tmp_path: Path) -> None:
    url = str(tmp_path / "lcb.db")
    store = open_store(url)
    secret = create(store, "shop", "writer", 0.0)
    store.close()
    with serving(tmp_path, pages=False) as server:
        stop, statuses = threading.Event(), []

        def decide() -> None:
            with server.client(headers={"authorization": f"Bearer {secret}"}) as http:
                rng = np.random.default_rng(0)
                while not stop.is_set():
                    body = {"user": f"u{len(statuses) % 9}", "arms": arms(rng, 3)}
                    statuses.append(http.post("/v1/decisions", json=body).status_code)

        writer = threading.Thread(target=decide)
        writer.start()
        wait_until(lambda: statuses, "nothing is decided")
        other = open_store(url)
        try:
            for i in range(50 if LONG else 5):
                create(other, f"k{i}", "reader", float(i), "command line")
                revoke(other, f"k{i}", float(i), "command line")
                time.sleep(0.02)
        finally:
            other.close()
            stop.set()
            writer.join()
        assert set(statuses) == {200}
        assert server.stop() == 0
    store = open_store(url)
    try:
        assert verify(store).differences == []
        actions = [row["action"] for row in read_trail(store)]
        assert actions[:3] == ["created key shop (writer)", "created key k0 (reader)", "revoked key k0"]
        assert len(log_sha256(store)) == 64
    finally:
        store.close()


def test_the_dashboard_shows_the_trail_also_after_a_restart(tmp_path: Path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.post("/page/login", json={"key": "lcb_reader"})
        shown = app.pages.operator.live.read_state(0.0)["audit"]
        assert (shown[0]["action"], shown[0]["key"]) == ("signed in", "reader")

    async def after(app: App, client: httpx.AsyncClient) -> None:
        assert app.pages.operator.live.read_state(0.0)["audit"][0]["action"] == "signed in"

    asking(tmp_path, work)
    asking(tmp_path, after)


def test_a_store_that_does_not_answer_does_not_delay_the_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(refusals, "_LAST", 0.05)

    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.get("/v1/models")
        with monkeypatch.context() as patch:
            patch.setattr(app.service, "record_refusal", lambda *given: asyncio.Event().wait())
            async with asyncio.timeout(30):
                await app.refusals.stop()

    asking(tmp_path, work)
