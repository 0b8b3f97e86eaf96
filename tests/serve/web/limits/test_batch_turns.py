"""A few batches of one caller are in progress at once, so that others do not wait behind all that it has sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from lcb.serve.threads import CALLER
from lcb.serve.web import batches
from lcb.serve.web.batches import Batches
from lcb.serve.web.endpoint import Disconnected


class Numbered:
    """A request for a batch, whose client may be gone."""

    def __init__(self, n: int, *, gone: bool = False) -> None:
        self.n, self.gone = n, gone

    def check_there(self) -> None:
        if self.gone:
            raise Disconnected


def ask(n: int, *, gone: bool = False) -> Any:
    return Numbered(n, gone=gone)


def test_further_batches_of_a_caller_wait_and_those_of_others_do_not() -> None:
    async def drive() -> None:
        service: Any = None
        handlers, go, begun = Batches(service, lambda one, n: None), asyncio.Event(), Counter[str]()

        async def work(one: Any) -> Any:
            begun[CALLER.get()] += 1
            await go.wait()
            return one

        handlers._decide_batch = handlers._reward_batch = work  # type: ignore[method-assign]
        CALLER.set("greedy")
        asked = [asyncio.ensure_future(handlers.decide_batch(ask(i))) for i in range(30)]
        asked += [asyncio.ensure_future(handlers.reward_batch(ask(i))) for i in range(30)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        CALLER.set("other")
        asked.append(asyncio.ensure_future(handlers.decide_batch(ask(60))))
        await asyncio.sleep(0)
        assert begun == {"greedy": batches.MOST_AT_ONCE, "other": 1}
        asked[0].cancel()
        go.set()
        found: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
        assert [one.n for one in found[1:30]] == list(range(1, 30))
        assert begun["greedy"] == 60
        assert not handlers._turns

    asyncio.run(drive())


def test_a_batch_that_waits_is_not_begun_when_its_client_is_gone() -> None:
    async def drive() -> None:
        service: Any = None
        handlers, go, begun = Batches(service, lambda one, n: None), asyncio.Event(), list[int]()

        async def work(one: Any) -> Any:
            begun.append(one.n)
            await go.wait()
            return one

        handlers._decide_batch = handlers._reward_batch = work  # type: ignore[method-assign]
        first = [asyncio.ensure_future(handlers.decide_batch(ask(i))) for i in range(batches.MOST_AT_ONCE)]
        gone = [asyncio.ensure_future(handlers.decide_batch(ask(100 + i, gone=True))) for i in range(50)]
        gone += [asyncio.ensure_future(handlers.reward_batch(ask(200 + i, gone=True))) for i in range(50)]
        last = asyncio.ensure_future(handlers.reward_batch(ask(99)))
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(one, Disconnected) for one in found)
        await asyncio.gather(*first, last)
        assert begun == [*range(batches.MOST_AT_ONCE), 99]

    asyncio.run(drive())
