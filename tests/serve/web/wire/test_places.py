"""Which connections give way, without sockets."""

from __future__ import annotations

import asyncio
import time

from lcb.serve.web.wire.places import Places, Sweep


class Connection:
    def __init__(self, since: float | None) -> None:
        self.waiting_since, self.closed = since, False
        self.places: tuple[Places, ...] = ()

    def give_way(self) -> None:
        self.closed = True
        SWEEPS[-1].release(self)

    give_up = give_way

    def check_times(self, now: float) -> None:
        pass


SWEEPS: list[Sweep] = []


def admit_all(sweep: Sweep, connections: list[Connection], address: str = "192.0.2.1") -> list[int | None]:
    problems = [sweep.admit(one, address) for one in connections]
    return [None if problem is None else problem.status for problem in problems]


def run(most: int, most_per_address: int, drill) -> None:
    async def main() -> None:
        SWEEPS.append(Sweep(asyncio.get_running_loop(), 1.0, most, most_per_address, ()))
        drill(SWEEPS[-1])

    asyncio.run(main())


def test_connections_that_were_used_since_the_last_search_are_searched_again():
    def drill(sweep: Sweep) -> None:
        old = [Connection(1.0 + i) for i in range(4)]
        assert admit_all(sweep, old) == [None] * 4
        assert admit_all(sweep, [Connection(9.0)]) == [None]
        assert [one.closed for one in old] == [True, False, False, False]
        for one in old[1:]:
            one.waiting_since += 4.0  # more of their requests has arrived
        assert admit_all(sweep, [Connection(10.0)]) == [None]
        assert [one.closed for one in old] == [True, True, False, False]

    run(100, 4, drill)


def test_a_full_server_does_not_search_for_every_newcomer():
    looked_at = []

    class Busy(Connection):
        waiting_since = property(lambda self: looked_at.append(self), lambda self, value: None)

    def drill(sweep: Sweep) -> None:
        assert admit_all(sweep, [Busy(None) for _ in range(100)]) == [None] * 100
        assert admit_all(sweep, [Busy(None) for _ in range(50)]) == [503] * 50
        assert len(looked_at) == 100

    run(100, 1000, drill)


def test_an_address_without_connections_takes_no_memory():
    def drill(sweep: Sweep) -> None:
        connections = [Connection(1.0) for _ in range(50)]
        for i, one in enumerate(connections):
            assert sweep.admit(one, f"192.0.2.{i}") is None
        for one in connections:
            sweep.release(one)
            sweep.release(one)
        assert not sweep._by_address
        assert not sweep.admitted.open

    run(100, 10, drill)


def test_an_address_with_most_connections_loses_one_that_is_answered_to_an_address_with_few():
    def drill(sweep: Sweep) -> None:
        many = [Connection(None) for _ in range(60)]
        assert admit_all(sweep, many[:30], "192.0.2.1") == [None] * 30
        assert admit_all(sweep, many[30:], "192.0.2.2") == [None] * 30
        few = [Connection(None) for _ in range(10)]
        assert admit_all(sweep, few, "192.0.2.3") == [None] * 10
        assert sum(one.closed for one in many) == 10
        assert not any(one.closed for one in few)
        assert admit_all(sweep, [Connection(None)], "192.0.2.1") == [503]

    run(60, 30, drill)


def test_an_address_that_has_its_share_takes_no_place_of_a_connection_of_others_that_waits():
    def drill(sweep: Sweep) -> None:
        other = Connection(1.0)
        assert admit_all(sweep, [other], "192.0.2.9") == [None]
        many = [Connection(None) for _ in range(39)]
        assert admit_all(sweep, many, "192.0.2.1") == [None] * 39
        assert admit_all(sweep, [Connection(None)], "192.0.2.1") == [503]
        assert not other.closed
        many[0].waiting_since = 5.0
        time.sleep(0.06)  # until it is searched for again
        assert admit_all(sweep, [Connection(None)], "192.0.2.1") == [None]
        assert many[0].closed
        assert not other.closed

    run(40, 40, drill)


def test_addresses_with_few_connections_keep_those_that_are_answered():
    def drill(sweep: Sweep) -> None:
        for i in range(10):
            assert admit_all(sweep, [Connection(None) for _ in range(4)], f"192.0.2.{i + 1}") == [None] * 4
        assert admit_all(sweep, [Connection(None)], "192.0.2.99") == [503]

    run(40, 4, drill)
