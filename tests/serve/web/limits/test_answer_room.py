"""The memory of large answers: as many as there is room for are computed at once, until they are sent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from lcb.serve.errors import Problem
from lcb.serve.web.batches import Batches
from lcb.serve.web.limits import answer_room
from lcb.serve.web.limits.answer_room import AnswerRoom
from support.running import running


def test_answers_wait_for_room_in_line_and_small_ones_do_not():
    async def drive():
        room = AnswerRoom(1_000_000)
        first = await room.take(700_000)
        large = asyncio.ensure_future(room.take(5_000_000))  # takes all of it
        next_ = asyncio.ensure_future(room.take(200_000))  # has room, but is behind the other
        await asyncio.sleep(0)
        (await room.take(answer_room.SMALL))()
        assert (room.taken, large.done(), next_.done()) == (700_000, False, False)
        first()
        release = await large
        assert (room.taken, next_.done()) == (1_000_000, False)
        release()
        (await next_)()
        assert room.taken == 0

    asyncio.run(drive())


def test_who_finds_no_room_is_refused_and_leaves_no_trace(monkeypatch):
    monkeypatch.setattr(answer_room, "_PATIENCE", 0.01)

    async def drive():
        room = AnswerRoom(1_000_000)
        first = await room.take(900_000)
        with pytest.raises(Problem, match="1 MB are computed or not read yet; send smaller batches") as refused:
            await room.take(200_000)
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        given_up = asyncio.ensure_future(room.take(200_000))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        first()
        assert room.taken == 0

    asyncio.run(drive())


def test_batches_with_large_answers_are_decided_one_after_the_other(tmp_path, monkeypatch):
    at_work, most = [0], [0]
    decide_plain = Batches._decide_plain

    async def watch(self, *given):
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        await asyncio.sleep(0.01)
        reply = await decide_plain(self, *given)
        at_work[0] -= 1
        return reply

    monkeypatch.setattr(Batches, "_decide_plain", watch)
    monkeypatch.setattr(AnswerRoom.__init__, "__defaults__", (1,))  # room for one
    arms = [{"id": f"a{i}", "x": x} for i, x in enumerate(np.eye(3)[np.arange(500) % 3].tolist())]

    async def drive():
        async with running(tmp_path, pages=False) as service:

            async def ask(n):
                users = [{"user": f"u{n}-{i}"} for i in range(20)]
                answer = await service.http.post("/v1/decisions:batch", json={"decisions": users, "arms": arms})
                return [one["status"] for one in answer.json()["outcomes"]]

            assert await asyncio.gather(*map(ask, range(4))) == [[200] * 20] * 4

    asyncio.run(drive())
    assert most == [1]
