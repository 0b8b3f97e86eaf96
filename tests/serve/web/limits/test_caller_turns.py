"""Callers take turns on the event loop: however many slow requests one has, another waits for few of them."""

from __future__ import annotations

import asyncio

import pytest

from lcb.serve.web.limits import caller_turns
from lcb.serve.web.limits.caller_turns import SLICE, CallerTurns


class Clock:
    """Stands still but for what a request takes."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(caller_turns, "perf_counter", made)
    return made


class Played:
    """Requests that were begun, as (caller, turn of the event loop)."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.turns, self.turn = clock, CallerTurns(), 0
        self.log: list[tuple[str, int]] = []

    async def ask(self, caller: str, seconds: float) -> None:
        if not self.turns.may_begin():
            await self.turns.wait(caller)
        self.log.append((caller, self.turn))
        self.clock.now += seconds

    async def run(self, n: int) -> None:
        for _ in range(n):
            await asyncio.sleep(0)
            self.turn += 1

    def when(self, caller: str) -> list[int]:
        return [turn for one, turn in self.log if one == caller]


def test_one_caller_with_many_slow_requests_holds_up_another_for_few_turns(clock: Clock) -> None:
    waited: list[float] = []

    async def main() -> None:
        played = Played(clock)
        slow = [asyncio.create_task(played.ask("ann", 2 * SLICE)) for _ in range(300)]
        first, before = asyncio.create_task(played.ask("ben", 0.0001)), clock.now
        first.add_done_callback(lambda done: waited.append(clock.now - before))
        await played.run(10)
        assert waited
        assert waited[0] <= 20 * SLICE, "a small request waits for all of another caller"
        for _ in range(5):
            came, before = played.turn, clock.now
            await played.run(1)
            other = asyncio.create_task(played.ask("ben", 0.0001))
            await played.run(8)
            assert other.done(), "a small request waits behind those of another caller"
            assert clock.now - before <= 20 * SLICE
            assert played.when("ben")[-1] - came < 8
        await played.run(2000)
        assert all(one.done() for one in slow)
        assert len(played.when("ann")) == 300

    asyncio.run(main())


def test_many_callers_with_slow_requests_are_served_alike(clock: Clock) -> None:
    async def main() -> None:
        played = Played(clock)
        names = [f"caller{i}" for i in range(5)]
        for name in names:
            for _ in range(100):
                asyncio.create_task(played.ask(name, SLICE)).add_done_callback(tasks.discard)
        await played.run(120)
        counts = [len(played.when(name)) for name in names[1:]]  # the first came before there was a line
        assert min(counts) > 10
        assert max(counts) - min(counts) <= 2
        await played.run(3000)
        assert len(played.log) == 500

    tasks: set[asyncio.Task[None]] = set()
    asyncio.run(main())


def test_quick_requests_of_one_turn_are_begun_at_once(clock: Clock) -> None:
    async def main() -> None:
        played = Played(clock)
        tasks = [asyncio.create_task(played.ask("ann", SLICE / 40)) for _ in range(30)]
        await played.run(1)
        assert all(one.done() for one in tasks)
        assert played.when("ann") == [0] * 30
        await played.run(3)
        assert not played.turns._until, "turns are counted while nothing is asked"

    asyncio.run(main())


def test_who_gives_up_takes_no_turn(clock: Clock) -> None:
    async def main() -> None:
        played = Played(clock)
        slow = [asyncio.create_task(played.ask("ann", 2 * SLICE)) for _ in range(20)]
        await played.run(2)
        for one in slow[3:]:
            one.cancel()
        await played.run(20)
        other = asyncio.create_task(played.ask("ben", 0.0))
        await played.run(5)
        assert other.done()
        assert all(one.done() for one in slow)
        assert not played.turns._lines
        assert not played.turns._returned

    asyncio.run(main())


def test_another_caller_does_not_wait_for_those_who_were_woken_and_found_no_time(clock: Clock) -> None:
    async def main() -> None:
        played = Played(clock)
        quick = [asyncio.create_task(played.ask("ann", SLICE / 40)) for _ in range(200)]
        slow = [asyncio.create_task(played.ask("ann", SLICE / 2)) for _ in range(200)]
        while not slow[0].done():
            await played.run(1)
        before = clock.now
        other = asyncio.create_task(played.ask("ben", 0.0001))
        while not other.done():
            await played.run(1)
        assert clock.now - before <= 5 * SLICE
        await played.run(400)
        assert all(one.done() for one in quick + slow)

    asyncio.run(main())


def test_long_work_that_pauses_lets_others_begin(clock: Clock) -> None:
    async def main() -> None:
        played, ended = Played(clock), list[str]()

        async def work(name: str) -> None:
            for _ in range(50):
                clock.now += SLICE / 2
                await played.turns.pause("ann")
            ended.append(name)

        works = [asyncio.create_task(work(f"work{i}")) for i in range(8)]
        await played.run(5)
        for _ in range(3):
            before, other = clock.now, asyncio.create_task(played.ask("ben", 0.0001))
            while not other.done():
                await played.run(1)
            assert clock.now - before <= 5 * SLICE
        assert not ended
        await asyncio.gather(*works)
        assert ended == sorted(ended)
        await played.run(3)
        assert not played.turns._until

    asyncio.run(main())


def test_control_without_turns_a_small_request_waits_for_all_of_another_caller(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CallerTurns, "may_begin", lambda self: True)
    with pytest.raises(AssertionError, match="waits for all of another caller"):
        test_one_caller_with_many_slow_requests_holds_up_another_for_few_turns(clock)
