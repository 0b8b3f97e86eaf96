"""Drill 28: while another session holds a lock, requests are refused; then replicas serve and report no damage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.audit.verify import verify
from lcb.storage.store.base import NewRow
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres import connections as postgres_connections
from support.harness import LONG, Server, arms, models_folder, serving, wait_until

HELD = 31.0 if LONG else 1.5  # seconds
SHORT_LOCKS = () if LONG else ("long locks",)  # a lock is waited for 0.1 s in place of 3 s
RESUMES = 15.0 if LONG else 60.0
LOCKS = ["select seq from head for update", "lock table event in exclusive mode"]


@contextmanager
def held(url: str, lock: str) -> Iterator[None]:
    with psycopg.connect(url) as other:
        other.execute(lock)
        yield


def client(server: Server, seed: int, acknowledged: set[str], refused: list[httpx.Response], stop: Any) -> None:
    rng = np.random.default_rng(seed)
    with server.client() as http:
        while not stop.is_set():
            answer = http.post("/v1/decisions", json={"user": f"u{rng.integers(9)}", "arms": arms(rng, 5)})
            if answer.status_code == 200:
                acknowledged.add(answer.json()["decision_id"])
            else:
                refused.append(answer)
            time.sleep(0.02)


def drill(url: str, folder: Path, lock: str, without: tuple[str, ...] = ()) -> None:
    given = {"store": url, "models": models_folder(folder), "limits": {"patience": 1.0}}
    given["without"] = (*SHORT_LOCKS, *without)
    acknowledged: set[str] = set()
    refused: list[httpx.Response] = []
    stop = threading.Event()
    with serving(folder, **given) as one, serving(folder, **given) as other:
        threads = [
            threading.Thread(target=client, args=(server, i, acknowledged, refused, stop))
            for i, server in enumerate((one, other))
        ]
        try:
            with one.client() as http, other.client() as there:
                for _ in range(3):  # each replica sees the others' writes while few statements are prepared
                    for at in (http, there):
                        body = {"user": "ann", "arms": arms(np.random.default_rng(0), 5)}
                        assert at.post("/v1/decisions", json=body).status_code == 200
            with held(url, lock):
                for thread in threads:
                    thread.start()
                time.sleep(HELD)
                wait_until(lambda: refused, "the lock cost nothing")
            began = time.monotonic()
            for server in (one, other):
                resume(server, began + RESUMES)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    for answer in refused:
        assert answer.status_code == 503, answer.text
        assert "damaged" not in answer.text, answer.text
        assert "backup" not in answer.text, answer.text
    store = open_store(url)
    try:
        assert acknowledged <= {row.id for row in store.events(0)}, "an acknowledged decision is lost"
        assert verify(store).differences == []
    finally:
        store.close()


def resume(server: Server, until: float) -> None:
    n = 0
    with server.client() as http:
        while n < 5:
            body = {"user": "afterwards", "arms": arms(np.random.default_rng(0), 5)}
            answer = http.post("/v1/decisions", json=body)
            n = n + 1 if answer.status_code == 200 else 0
            assert time.monotonic() < until, f"a replica does not resume: {answer.text}"
            time.sleep(0.05)


@pytest.mark.parametrize("lock", LOCKS)
def test_replicas_resume_after_a_lock_and_none_calls_its_store_damaged(
    postgres_database: str, tmp_path: Path, lock: str
) -> None:
    drill(postgres_database, tmp_path, lock)


def test_a_replica_that_keeps_its_connection_after_an_error_in_a_pipeline_does_not_resume(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "RESUMES", 1.5)
    with pytest.raises(AssertionError, match=r"does not resume"):
        drill(postgres_database, tmp_path, LOCKS[0], ("new connections",))


# What is reported as damage


def row(id: str) -> NewRow:
    return NewRow(id, "decision", "u", 1, b"body")


def test_an_error_of_a_connection_is_not_called_damage(postgres_database: str) -> None:
    store = open_store(postgres_database)
    try:
        store.append([row("a")], 0)
        for statement in ("execute nowhere", "select 1 / 0", "select * from nowhere"):
            with pytest.raises(StoreUnavailable) as caught:
                store._read(statement)
            assert "no damage" in str(caught.value)
            assert "backup" not in str(caught.value)
        assert [one.id for one in store.events(0)] == ["a"]
    finally:
        store.close()


@pytest.mark.parametrize("damage", ["update head set seq = seq + 1", "drop table snapshot", "delete from head"])
def test_tables_that_fail_a_check_are_called_damaged(postgres_database: str, damage: str) -> None:
    store = open_store(postgres_database)
    try:
        store.append([row("a")], 0)
        with psycopg.connect(postgres_database, autocommit=True) as other:
            other.execute(damage)
        with pytest.raises(StoreError, match=r"restore (it from )?a backup"):
            store._read("select * from nowhere")
    finally:
        store.close()


# Poolers between the service and the server


class Pooled:
    """A connection as PgBouncer provides it: the pooler's own process id, and any of the shared sessions."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.info = type("Info", (), {"backend_pid": -1})

    def __enter__(self) -> Pooled:
        return self

    def __exit__(self, *error: object) -> None: ...

    def execute(self, statement: str) -> Any:
        return self.session.execute(statement)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_that_shares_sessions_is_refused_at_the_start(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    address, real = postgres_connections.Address(postgres_database), postgres_connections.Address.connect
    sessions = [real(address)]

    def connect(self: postgres_connections.Address) -> Any:
        if mode == "session":
            sessions.append(real(self))
        return Pooled(sessions[-1])

    monkeypatch.setattr(postgres_connections.Address, "connect", connect)
    try:
        if mode == "session":
            address.check_sessions()
        else:
            with pytest.raises(StoreError, match="pool_mode = session"):
                open_store(postgres_database)
    finally:
        for one in sessions:
            one.close()
