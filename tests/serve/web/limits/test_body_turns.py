"""Large bodies of one caller wait for each other, and those of others do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from lcb.serve.config.settings import Settings
from lcb.serve.threads import CALLER
from lcb.serve.web.limits.body_turns import BURST, LARGE, PATIENCE, RATE, BodyTurns
from support.http_inside import inside


def test_bodies_of_every_route_wait_when_one_caller_has_sent_many(tmp_path: Path) -> None:
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def drive() -> None:
        settings = Settings(store=str(tmp_path / "lcb.db"), pages=False)
        async with inside(settings) as (app, client):
            app.body_turns = BodyTurns(clock=lambda: 0.0, sleep=sleep)
            arms = [{"id": f"a{i}" + "x" * 200, "x": [1.0, 0.5]} for i in range(1000)]
            small = {"user": "ann", "arms": arms[:2]}
            large = json.dumps({"user": "ann", "arms": arms}).encode()
            assert len(large) > LARGE
            n_at_once = BURST // len(large)
            for i in range(n_at_once + 3):
                path = ("/v1/decisions", "/v1/decisions:batch", "/v1/rewards:batch")[i % 3]
                answer = await client.post(path, content=large)
                assert answer.status_code == (200 if path == "/v1/decisions" else 422), answer.text
            assert len(waits) in (2, 3)
            assert all(0 < one < 4 * len(large) / RATE for one in waits)
            assert (await client.post("/v1/decisions", json=small)).status_code == 200
            assert len(waits) in (2, 3)
            app.body_turns.reserve("127.0.0.1", int(RATE * (PATIENCE + 1)))
            refused = await client.post("/v1/decisions", content=large)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert (await client.post("/v1/decisions", json=small)).status_code == 200

    asyncio.run(drive())


def test_a_waiting_body_keeps_no_other_caller_waiting() -> None:
    async def drive() -> None:
        turns = BodyTurns()
        CALLER.set("greedy")
        turns.reserve("greedy", BURST + RATE)
        greedy = asyncio.ensure_future(turns.take("greedy", 1_000_000))
        await asyncio.sleep(0)
        await asyncio.wait_for(turns.take("other", BURST), 0.5)
        assert not greedy.done()
        greedy.cancel()

    asyncio.run(drive())
