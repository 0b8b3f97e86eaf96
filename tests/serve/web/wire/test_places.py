"""Which connections give way, without sockets."""

from __future__ import annotations

import asyncio

from lcb.serve.web.wire.places import Places, Sweep


class Connection:
    def __init__(self, since: float | None) -> None:
        self.waiting_since, self.closed = since, False
        self.places: tuple[Places, ...] = ()

    def give_way(self) -> None:
        self.closed = True
        SWEEPS[-1].release(self)

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
