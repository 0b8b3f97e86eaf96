from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lcb.serve.errors import Problem
from lcb.serve.threads import CALLER, Abandoned, Threads


def test_calls_beyond_the_limit_are_refused_and_the_others_done_in_order():
    async def drive() -> None:
        threads, go = Threads("test", 1, most_waiting=2), threading.Event()
        first = asyncio.ensure_future(threads.run(go.wait))
        others = [asyncio.ensure_future(threads.run(lambda i=i: i)) for i in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="already waiting") as refused:
            await threads.run(int)
        assert refused.value.status == 503
        go.set()
        assert await asyncio.gather(first, *others) == [True, 0, 1]
        assert await threads.run(sorted, [2, 1], reverse=True) == [2, 1]
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 / 0)

    asyncio.run(drive())


def test_callers_take_turns_and_one_who_asks_for_much_gives_place_to_others():
    async def drive() -> None:
        threads, go, order = Threads("test", 1, most_waiting=4), threading.Event(), []

        def ask(caller: str, n: int) -> list[asyncio.Future[None]]:
            CALLER.set(caller)
            return [asyncio.ensure_future(threads.run(order.append, f"{caller}{i}")) for i in range(n)]

        first = asyncio.ensure_future(threads.run(go.wait))
        await asyncio.sleep(0)
        much = ask("a", 4)
        await asyncio.sleep(0)
        few = ask("b", 1) + ask("c", 1)
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(first, *much, *few, return_exceptions=True)
        assert [isinstance(one, Problem) for one in found] == [False, False, False, True, True, False, False]
        assert order == ["a0", "b0", "c0", "a1"]
        CALLER.set("a")
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 / 0)

    asyncio.run(drive())


def test_a_call_that_cannot_begin_in_time_is_refused_and_one_that_has_begun_is_not():
    async def drive() -> None:
        threads, go, begun, done = Threads("test", 1, patience=0.05), threading.Event(), threading.Event(), []
        first = asyncio.ensure_future(threads.run(lambda: (begun.set(), go.wait(60))[1]))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        late = [asyncio.ensure_future(threads.run(done.append, i)) for i in range(3)]
        for one in late:
            with pytest.raises(Problem, match=r"was not free for 0\.05 s") as refused:
                await asyncio.wait_for(one, 60)
            assert (refused.value.status, refused.value.retry_after) == (503, 5)
        go.set()
        assert await first
        threads.patience = 60.0
        await threads.run(done.append, "next")
        assert done == ["next"]
        assert not threads._turns

    asyncio.run(drive())


def test_the_end_gives_up_what_has_begun_and_what_waits():
    async def drive() -> None:
        threads, stopped, begun = Threads("test", 1), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            try:
                while True:
                    threads.check_wanted("progress", 1, 2)
            except Abandoned:
                stopped.set()
                raise

        waiting = [asyncio.ensure_future(threads.run(work)) for _ in range(3)]
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
        threads.end()
        for one in waiting:
            with pytest.raises(Problem, match="shutting down"):
                await one
        assert await asyncio.get_running_loop().run_in_executor(None, stopped.wait, 10)
        with pytest.raises(Problem, match="shutting down"):
            await threads.run(int)

    asyncio.run(drive())


def test_a_call_whose_caller_is_gone_leaves_the_line_and_threads_end_with_their_pool():
    async def drive() -> None:
        threads, go, begun, done = Threads("gone", 2), threading.Event(), threading.Event(), []
        running = [asyncio.ensure_future(threads.run(lambda: (begun.set(), go.wait(60)))) for _ in range(2)]
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        late = [asyncio.ensure_future(threads.run_within(patience, done.append, 1)) for patience in (None, 60)]
        await asyncio.sleep(0)
        assert threads.n_waiting == 4
        for one in late:
            one.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        assert (threads.n_waiting, done) == (2, [])
        go.set()
        await asyncio.gather(*running)
        assert not threads._turns
        threads.end()
        for one in threading.enumerate():
            if one.name.startswith("lcb-gone-"):
                one.join(60)
                assert not one.is_alive()

    asyncio.run(drive())


def test_calls_that_are_done_take_no_room_though_nobody_has_heard_of_them():
    """While the event loop is busy, answers of threads wait for it; who asks then finds threads that do nothing."""

    async def drive() -> None:
        threads = Threads("test", 1, most_waiting=2)
        first = [asyncio.ensure_future(threads.run(int)) for _ in range(3)]
        await asyncio.sleep(0)
        CALLER.set("b")
        for _ in range(6000):
            if not threads._n_open:
                break
            time.sleep(0.01)  # in the event loop, which hears of nothing meanwhile
        assert await asyncio.gather(*first, threads.run(int)) == [0] * 4

    asyncio.run(drive())


def test_a_call_that_was_given_up_and_still_runs_does_not_keep_the_next_from_a_thread_of_its_own():
    async def drive() -> None:
        threads, go, begun = Threads("test", 2), threading.Event(), threading.Event()
        stuck = asyncio.ensure_future(threads.run(lambda: (begun.set(), go.wait(60))))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        assert await asyncio.wait_for(threads.run(int), 30) == 0
        go.set()

    asyncio.run(drive())


def test_what_goes_on_with_a_call_comes_before_the_next_of_its_caller_and_not_before_those_of_others():
    async def drive() -> None:
        threads, go, order = Threads("test", 1, most_waiting=9), threading.Event(), []
        begun = threading.Event()
        asked = [asyncio.ensure_future(threads.run(lambda: begun.set() or go.wait()))]
        while not begun.is_set():
            await asyncio.sleep(0.001)
        CALLER.set("b")
        asked.append(asyncio.ensure_future(threads.run(order.append, "b0")))
        CALLER.set("a")
        asked += [asyncio.ensure_future(threads.run(order.append, f"a{i}")) for i in range(2)]
        asked.append(asyncio.ensure_future(threads.run_next(order.append, "next of a")))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*asked)
        assert order == ["b0", "next of a", "a0", "a1"]

    asyncio.run(drive())


def test_what_goes_on_with_a_call_needs_no_room():
    async def drive() -> None:
        threads, go = Threads("test", 1, most_waiting=2), threading.Event()
        first = asyncio.ensure_future(threads.run(go.wait))
        others = [asyncio.ensure_future(threads.run(lambda i=i: i)) for i in range(2)]
        await asyncio.sleep(0)
        next_one = asyncio.ensure_future(threads.run_next(lambda: 2))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(first, *others, next_one) == [True, 0, 1, 2]

    asyncio.run(drive())
