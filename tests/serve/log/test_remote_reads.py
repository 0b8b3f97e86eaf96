"""Reads from a store that is not in this process: whose turn it is, and who is refused."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from lcb.serve.errors import Problem
from lcb.serve.log import remote_reads
from lcb.serve.log.remote_reads import RemoteReads
from lcb.serve.threads import CALLER


class Cache(dict[str, Any]):
    knows, admit = dict.__contains__, dict.__setitem__


class HeldStore:
    """Reads wait until `go` is set; `order` has who asked, in the order of the reads."""

    def __init__(self) -> None:
        self.go, self.order = threading.Event(), list[str]()
        self.cache, self.seq = Cache(), 0
        self.loader = SimpleNamespace(load=lambda name, seq: self.read(name))

    def read(self, name: str) -> str:
        self.go.wait(30)
        self.order.append(name)
        return name


def make_reads(store: HeldStore) -> RemoteReads:
    journal: Any = SimpleNamespace(trouble=None, world=store)
    slots: Any = None
    return RemoteReads(journal, slots, patience=30.0)


def ask(caller: str, *asked: Coroutine[Any, Any, Any]) -> list[asyncio.Future[Any]]:
    CALLER.set(caller)
    return [asyncio.ensure_future(one) for one in asked]


async def settle() -> None:
    """Let all tasks come to where they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "_SOON", 30.0)  # this machine may be slow


def test_a_caller_with_few_reads_does_not_wait_for_one_with_thousands() -> None:
    async def drive() -> None:
        store = HeldStore()
        reads = make_reads(store)
        much = ask("batch", *(reads.read(store.read, "batch") for _ in range(3000)))
        await settle()
        few = ask("web", *(reads.read(store.read, "web") for _ in range(2)))
        one = ask("page", reads.read(store.read, "page"))
        await settle()
        store.go.set()
        assert await asyncio.gather(*few, *one) == ["web", "web", "page"]
        found = Counter(type(answer) for answer in await asyncio.gather(*much, return_exceptions=True))
        assert found == {str: 1061, Problem: 1939}  # all in all, 1064 may read or wait
        # eight threads had begun a read of the first caller; then each reads for another one in turn
        assert store.order.index("page") < 24
        assert max(i for i, caller in enumerate(store.order) if caller == "web") < 32
        reads.end()

    asyncio.run(drive())


def test_a_caller_does_not_wait_in_the_line_of_another_who_asks_for_the_same_user() -> None:
    async def drive() -> None:
        store = HeldStore()
        reads = make_reads(store)
        much = ask("batch", *(reads.fetch_user(f"u{i}") for i in range(500)))
        await settle()
        one = ask("web", reads.fetch_user("u499"), reads.fetch_user("u499"))
        await settle()
        store.go.set()
        await asyncio.gather(*much, *one)
        assert store.order.index("u499") < 24
        assert store.order.count("u499") == 2  # once for each caller
        assert len(store.cache) == 500
        reads.end()

    asyncio.run(drive())


def test_a_user_who_changes_while_two_callers_read_them_is_admitted_for_neither() -> None:
    async def drive() -> None:
        store = HeldStore()
        reads = make_reads(store)
        asked = ask("a", reads.fetch_user("Ann"), reads.fetch_user("Ben")) + ask("b", reads.fetch_user("Ann"))
        await settle()
        changed: Any = SimpleNamespace(user="Ann", kind="decision")
        reads.note_events([changed])
        store.go.set()
        await asyncio.gather(*asked)
        assert list(store.cache) == ["Ben"]
        await asyncio.gather(*ask("a", reads.fetch_user("Ann")))
        assert set(store.cache) == {"Ann", "Ben"}
        erased: Any = SimpleNamespace(user=None, kind="erase")
        store.go.clear()
        asked = ask("a", reads.fetch_user("Cid")) + ask("b", reads.fetch_user("Dan"))
        await settle()
        reads.note_events([erased])
        store.go.set()
        await asyncio.gather(*asked)
        assert set(store.cache) == {"Ann", "Ben"}
        reads.end()

    asyncio.run(drive())


def test_a_read_that_cannot_begin_soon_is_refused_and_says_when_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "_SOON", 0.01)

    async def drive() -> None:
        store = HeldStore()
        reads = make_reads(store)
        asked = ask("batch", *(reads.read(store.read, "batch") for _ in range(70)))
        late = await asyncio.wait_for(asyncio.gather(*asked[64:], return_exceptions=True), 20)
        assert [(type(one), one.status, one.retry_after) for one in late] == [(Problem, 503, 1)] * 6
        other = ask("web", reads.read(store.read, "web"))  # a caller's first reads wait as long as any
        await asyncio.sleep(0.1)
        store.go.set()
        assert await asyncio.gather(*asked[:64], *other) == ["batch"] * 64 + ["web"]
        reads.end()

    asyncio.run(drive())
