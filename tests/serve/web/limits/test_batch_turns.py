"""A few batches of one caller are in progress at once, so that others do not wait behind all that it has sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from lcb.serve.threads import CALLER
from lcb.serve.web import batches
from lcb.serve.web.batches import Batches


def test_further_batches_of_a_caller_wait_and_those_of_others_do_not() -> None:
    async def drive() -> None:
        service: Any = None
        handlers, go, begun = Batches(service, lambda ask, n: None), asyncio.Event(), Counter[str]()

        async def work(ask: Any) -> Any:
            begun[CALLER.get()] += 1
            await go.wait()
            return ask

        handlers._decide_batch = handlers._reward_batch = work  # type: ignore[method-assign]
        CALLER.set("greedy")
        asked = [asyncio.ensure_future(handlers.decide_batch(i)) for i in range(30)]  # type: ignore[arg-type]
        asked += [asyncio.ensure_future(handlers.reward_batch(i)) for i in range(30)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        CALLER.set("other")
        asked.append(asyncio.ensure_future(handlers.decide_batch(60)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert begun == {"greedy": batches.MOST_AT_ONCE, "other": 1}
        asked[0].cancel()
        go.set()
        found: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
        assert found[1:30] == list(range(1, 30))
        assert begun["greedy"] == 60
        assert not handlers._turns

    asyncio.run(drive())
