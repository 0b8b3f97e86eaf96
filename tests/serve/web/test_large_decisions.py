"""A decision whose body a thread reads, because it is large, is decided in that thread too: few numbers or many."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from lcb.serve.config.settings import Settings
from lcb.serve.decide import large
from lcb.serve.decide.decisions import Decisions
from support.http_inside import inside

N_FEATURES = 50


def write_decision(n_arms: int) -> bytes:
    numbers = random.Random(1)
    arms = [{"id": f"a{i}", "x": [numbers.random() for _ in range(N_FEATURES)]} for i in range(n_arms)]
    return json.dumps({"user": "ann", "arms": arms}).encode()


@pytest.mark.parametrize("n_arms", [3, 200])
def test_a_thread_decides_what_a_thread_has_read(n_arms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, finish = list[str](), Decisions.finish
    body = write_decision(n_arms)
    many = len(body) > large.LARGE_BODY
    assert many == (n_arms == 200)
    assert n_arms * N_FEATURES <= large.LARGE_DECISION

    def note(self: Decisions, begun: Any) -> Any:
        threads.append(threading.current_thread().name)
        return finish(self, begun)

    async def ask() -> None:
        async with inside(Settings(store=str(tmp_path / "lcb.db"))) as (_, client):
            for _ in range(2):  # the first fixes the number of features
                answer = await client.post("/v1/decisions", content=body)
                assert answer.status_code == 200, answer.text

    monkeypatch.setattr(Decisions, "finish", note)
    asyncio.run(ask())
    assert [name.startswith("lcb-large") for name in threads] == [many, many]
