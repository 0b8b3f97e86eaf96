"""Addresses take turns: what one of them begins, however much it is, holds up another for a turn or two."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import uvloop

from lcb.serve.web.wire.lines import AT_ONCE, Lines
from lcb.serve.web.wire.places import Sweep

ANN, BEN, EVE = "192.0.2.1", "192.0.2.2", "192.0.2.3"


class Begun:
    """Lines, and what was begun through them: address and turn of the event loop."""

    def __init__(self) -> None:
        self.lines, self.turn = Lines(asyncio.get_running_loop()), 0
        self.log: list[tuple[str, int]] = []

    def ask(self, address: str) -> None:
        if self.lines.may_begin(address):
            self.log.append((address, self.turn))
        else:
            self.lines.wait(address, lambda: self.log.append((address, self.turn)))

    async def run(self, n: int) -> None:
        for _ in range(n):
            await asyncio.sleep(0)
            self.turn += 1

    def count(self, address: str) -> Counter[int]:
        return Counter(turn for one, turn in self.log if one == address)


def drill(work) -> None:
    async def main() -> None:
        await work(Begun())

    uvloop.run(main())


def test_a_few_begin_at_once():
    async def work(begun: Begun) -> None:
        for _ in range(3):
            for _ in range(AT_ONCE):
                begun.ask(ANN)
            assert begun.count(ANN)[begun.turn] == AT_ONCE
            await begun.run(2)

    drill(work)


def test_one_address_with_very_much_does_not_hold_up_another():
    async def work(begun: Begun) -> None:
        for _ in range(100 * AT_ONCE):
            begun.ask(EVE)
        await begun.run(3)
        begun.ask(ANN)
        asked = begun.turn
        await begun.run(3)
        assert begun.count(ANN).total() > 0
        await begun.run(120)
        assert min(begun.count(ANN)) <= asked + 2
        assert begun.count(EVE).total() == 100 * AT_ONCE
        assert max(begun.count(EVE).values()) <= 2 * AT_ONCE

    drill(work)


def test_addresses_take_turns_and_each_keeps_its_order():
    async def work(begun: Begun) -> None:
        for address in (EVE, BEN):
            for _ in range(10 * AT_ONCE):
                begun.ask(address)
        await begun.run(6)
        assert abs(begun.count(EVE).total() - AT_ONCE - begun.count(BEN).total()) <= 1
        turns = [turn for one, turn in begun.log if one == EVE]
        assert turns == sorted(turns)

    drill(work)


def test_what_fails_in_its_turn_does_not_stop_the_others():
    async def work(begun: Begun) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(AT_ONCE):
            begun.ask(EVE)
        assert not begun.lines.may_begin(BEN)
        begun.lines.wait(BEN, lambda: 1 / 0)
        begun.ask(ANN)
        await begun.run(5)
        assert begun.count(ANN).total() == 1
        begun.ask(BEN)
        assert begun.count(BEN).total() == 1, "all is as it was"

    drill(work)


@pytest.mark.parametrize(
    ("address", "same"), [("192.0.2.1", True), ("2001:db8::1", True), ("198.51.100.1", False), ("2001:db8:1::1", False)]
)
def test_connections_of_an_address_share_a_line_and_those_of_a_proxy_do_not(address, same):
    async def main() -> tuple[str, str]:
        sweep = Sweep(asyncio.get_running_loop(), 1.0, 10, 10, ("198.51.100.0/24", "2001:db8:1::/48"))
        return sweep.find_line(address, 1000), sweep.find_line(address, 1001)

    first, second = asyncio.run(main())
    assert (first == second) is same
