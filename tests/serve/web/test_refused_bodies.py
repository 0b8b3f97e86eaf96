"""The body of a refused request is freed with its answer, not by a later garbage collection."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.raw_requests import Local

SIZE, N = 500_000, 20
LONG = b"a" * SIZE
EXCLUDE = json.dumps([f"{i:0250d}" for i in range(SIZE // 254)]).encode()
BODIES = {
    "a wrong type": ("POST", "/v1/decisions", b'{"user": ' + b"[" * (SIZE // 2) + b"]" * (SIZE // 2) + b"}"),
    "a long string": ("POST", "/v1/decisions", b'{"user": "' + LONG + b'"}'),
    "no JSON": ("POST", "/v1/decisions", b'{"user": "' + LONG),
    "a wrong value": ("POST", "/v1/decisions", b'{"user": "a", "k": 0, "exclude": ' + EXCLUDE + b"}"),
    "a wrong item": ("PUT", "/v1/items", b'{"items": [{"id": "' + LONG + b'"}]}'),
    "an element": (
        "POST",
        "/v1/decisions:batch",
        b'{"decisions": [{"user": "a", "k": 0, "exclude": ' + EXCLUDE + b"}]}",
    ),
    "a reward": ("POST", "/v1/rewards", b'{"decision_id": "' + LONG + b'"}'),
    "no such decision": ("POST", "/v1/rewards", b'{"decision_id": "a", "reward": 1' + b" " * 60_000 + b"}"),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    path: Path = tmp_path_factory.mktemp("refused") / "lcb.db"
    with Local(str(path)) as local:
        local.ask("POST", "/v1/decisions", b'{"user": "a", "arms": [{"id": "q", "x": [1, 0]}]}')
        yield local


@pytest.mark.parametrize("name", BODIES)
def test_a_refused_body_is_freed_at_once(name: str, local: Local) -> None:
    method, path, body = BODIES[name]
    for _ in range(2):
        answer = local.ask(method, path, body)
        refused = answer.json["outcomes"][0]["status"] if path.endswith("batch") else answer.status
        assert 400 <= refused < 500
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(N):
            local.ask(method, path, bytes(bytearray(body)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 3 * len(body), "refused bodies stay in memory"
