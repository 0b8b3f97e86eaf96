"""The list of a large catalogue: encoded once for all who ask meanwhile, and never older than the request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lcb.messages import Item
from lcb.serve.web import api as web_api
from lcb.serve.web.api import Api

ASK: Any = None


class Catalogue:
    n_features = 2

    def __init__(self, n: int) -> None:
        self.n_changes, self.items = 1, [Item(f"i{i}", x=[1.0, 0.0]) for i in range(n)]

    def __len__(self) -> int:
        return len(self.items)

    def list_items(self) -> Iterator[Item]:
        return iter(list(self.items))

    def add(self, id: str) -> None:
        self.items.append(Item(id, x=[0.0, 1.0]))
        self.n_changes += 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of items of each list that was encoded."""
    sizes, encode = [], web_api._encode_items

    def count(items: Iterator[Item]) -> bytes:
        kept = list(items)
        sizes.append(len(kept))
        return encode(kept)

    monkeypatch.setattr(web_api, "_encode_items", count)
    return sizes


def build(catalogue: Catalogue) -> Api:
    service: Any = SimpleNamespace(world=SimpleNamespace(state=SimpleNamespace(catalogue=catalogue)))
    retraining: Any = None
    return Api(service, retraining, lambda ask, n: None)


@pytest.mark.parametrize("n", [10, 5000])
def test_a_list_is_encoded_once_for_all_who_ask(n: int, counted: list[int]) -> None:
    async def run() -> list[bytes]:
        api = build(Catalogue(n))
        try:
            replies = await asyncio.gather(*(api.get_items(ASK) for _ in range(20)))
            return [reply.body for reply in (*replies, await api.get_items(ASK))]
        finally:
            api.lists.end()

    bodies = asyncio.run(run())
    assert counted == [n]
    assert all(body is bodies[0] for body in bodies)
    assert json.loads(bodies[0])["n_items"] == n


def test_who_asks_after_a_change_gets_it_also_while_an_older_list_is_encoded(counted: list[int]) -> None:
    async def run() -> list[int]:
        catalogue = Catalogue(5000)
        api = build(catalogue)
        try:
            before = asyncio.ensure_future(api.get_items(ASK))
            while not counted:
                await asyncio.sleep(0.001)
            catalogue.add("new")
            after = await api.get_items(ASK)
            return [json.loads(reply.body)["n_items"] for reply in (await before, after)]
        finally:
            api.lists.end()

    before, after = asyncio.run(run())
    assert before in (5000, 5001)
    assert after == 5001
    assert counted == [5000, 5001]
