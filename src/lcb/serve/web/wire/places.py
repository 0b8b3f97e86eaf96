"""The open connections of a server: how many there may be in all and of one address, and which one gives way.

A connection gives way while it waits for its client: it is idle, its request has not arrived completely, or its answer
is not read.  The one that has waited longest goes first; an address that has its share of all connections only takes
the places of its own.  If none waits, the address with most connections loses one whose request is being answered, to
an address that has at most half as many.  Otherwise such a connection never gives way.

Addresses of proxies have no limit of their own, because their connections carry the requests of many clients.  The
64 high bits of an IPv6 address count as one address: a client usually has all addresses with the same ones.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Protocol

from lcb.serve.errors import Problem
from lcb.serve.web.wire.lines import Lines

_SEARCH_EVERY = 0.05  # seconds between two searches for connections that can give way, if the first found few
_PARTS_AT_ONCE = 8  # of large answers of all connections, written in one turn of the event loop
_FAR_MORE = 8  # connections of an address; one of fewer is not closed while it is answered
_FEW = 1 / 16  # of all connections; a search that finds more has cost little for each


class Connection(Protocol):
    """What this file needs of a connection."""

    places: tuple[Places, ...]
    held: int  # bytes of memory that its request takes

    @property
    def waiting_since(self) -> float | None:
        """Since when the connection waits for its client; None while a request is answered and the answer read."""

    def give_way(self) -> None:
        """Close the connection, to make room for another one."""

    def give_up(self) -> None:
        """Close the connection at once, though its request is being answered."""

    def check_times(self, now: float) -> None:
        """Close the connection if it has waited too long."""

    def drop_request(self) -> None:
        """Refuse the request, which is not complete."""


class Places:
    """Connections that share a limit: all of a server, or those of one address."""

    __slots__ = ("_found_few", "_searched", "_waiting", "address", "most", "open")

    def __init__(self, most: int, address: str | None = None) -> None:
        self.most, self.address = most, address
        self.open: set[Connection] = set()
        self._waiting: list[tuple[float, Connection]] = []  # found by the last search, the longest waiting last
        self._searched, self._found_few = 0.0, False

    def has_room(self, now: float, among: Places | None = None) -> bool:
        """Whether one more can be opened, if need be in place of one that gives way (`among` these, if given)."""
        return len(self.open) < self.most or (among or self)._make_room(now)

    def _make_room(self, now: float) -> bool:
        """Close the connection that has waited longest; False if none waits.  A search finds many, for later calls."""
        if self._close_one():
            return True
        if self._found_few and now - self._searched < _SEARCH_EVERY:
            return False
        found = ((since, one) for one in self.open if (since := one.waiting_since) is not None)
        self._waiting = sorted(found, key=lambda pair: -pair[0])
        self._searched, self._found_few = now, len(self._waiting) < _FEW * len(self.open)
        return self._close_one()

    def _close_one(self) -> bool:
        """Close the next connection that the last search found, unless it has been used since."""
        while self._waiting:
            since, one = self._waiting.pop()
            if one in self.open and one.waiting_since == since:
                one.give_way()
                return True
        return False


class Sweep:
    """All connections of one server; checks their times, only while there are any, so nothing is left to cancel."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, every: float, most: int, most_per_address: int, proxies: tuple[str, ...]
    ) -> None:
        self.loop, self.every, self.most_per_address = loop, every, most_per_address
        self.admitted = Places(most)
        self.turned_away: set[Connection] = set()
        self.turns = asyncio.Semaphore(_PARTS_AT_ONCE)  # to write a part of a large answer
        self.lines = Lines(loop)
        self.running = False
        self.n_held = 0  # bytes of memory that requests of all connections take
        self.n_ahead = 0  # bytes of memory of those that were sent ahead of answers
        self._by_address: dict[str, Places] = {}
        self._proxies = [ipaddress.ip_network(one) for one in proxies]

    @property
    def n_open(self) -> int:
        return len(self.admitted.open) + len(self.turned_away)

    def start(self) -> None:
        if not self.running:
            self.running = True
            self.loop.call_later(self.every, self.run)

    def run(self) -> None:
        now = self.loop.time()
        for connection in [*self.admitted.open, *self.turned_away]:
            connection.check_times(now)
        self.running = False
        if self.admitted.open or self.turned_away:
            self.start()

    def admit(self, one: Connection, address: str) -> Problem | None:
        """Admit a connection; a Problem if there is no place for it."""
        self.start()
        now, own = self.loop.time(), self._find_places(address)
        if own is not None and not own.has_room(now):
            words = f"{own.most} connections of this address are already open; use them for more than one request"
            return Problem(429, f"{words}, or raise limits.max_per_address", retry_after=1)
        if not self.admitted.has_room(now, own if self._has_share(own) else None) and not self._take_place(own):
            words = f"{self.admitted.most} connections are already open; try again in a second"
            return Problem(503, words, retry_after=1)
        one.places = (self.admitted,)
        if own is not None and own.address is not None:
            self._by_address[own.address] = own
            one.places = (self.admitted, own)
        for places in one.places:
            places.open.add(one)
        return None

    def _has_share(self, own: Places | None) -> bool:
        """Whether an address has as many connections as it would have if all had the same number."""
        return own is not None and len(own.open) * max(len(self._by_address), 2) > self.admitted.most

    def _take_place(self, own: Places | None) -> bool:
        """Close a connection of the address that has most, though it is being answered; False if none has far more."""
        n = 0 if own is None else len(own.open)
        largest = max(self._by_address.values(), key=lambda one: len(one.open), default=None)
        if largest is None or len(largest.open) < max(_FAR_MORE, 2 * n):
            return False
        next(iter(largest.open)).give_up()
        return True

    def limit_held(self, most: int) -> None:
        """While requests take more bytes, refuse the largest that is not complete."""
        while self.n_held > most:
            unfinished = [one for one in self.admitted.open if one.held and one.waiting_since is not None]
            if not unfinished:
                return
            max(unfinished, key=lambda one: one.held).drop_request()

    def release(self, one: Connection) -> None:
        """Free the place of a connection; it may have been freed before."""
        for places in one.places:
            places.open.discard(one)
            if not places.open and places.address is not None:
                self._by_address.pop(places.address, None)
        one.places = ()

    def find_line(self, address: str, port: int) -> str:
        """Return the line in which a connection waits: that of its address, or one of its own if it is of a proxy."""
        return f"{address} {port}" if self._is_proxy(address) else group_address(address)

    def _is_proxy(self, address: str) -> bool:
        return bool(self._proxies and address) and _is_in(self._proxies, address)

    def _find_places(self, address: str) -> Places | None:
        """Return the places of an address; None for a proxy."""
        if self._is_proxy(address):
            return None
        address = group_address(address)
        return self._by_address.get(address) or Places(self.most_per_address, address)


def group_address(address: str) -> str:
    """Return the name under which an address is counted.

    >>> group_address("192.0.2.1"), group_address("2001:db8::1"), group_address("::ffff:192.0.2.1")
    ('192.0.2.1', '2001:db8::/64', '192.0.2.1')
    """
    if ":" not in address:
        return address
    found = _read(address)
    return str(found if found.version == 4 else ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def unmap_address(address: str) -> str:
    """Return the IPv4 address of a client that reached an IPv6 socket over IPv4; all others as they are.

    >>> unmap_address("::ffff:192.0.2.1"), unmap_address("2001:db8::1")
    ('192.0.2.1', '2001:db8::1')
    """
    return str(_read(address)) if address.startswith("::ffff:") else address


def _is_in(networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network], address: str) -> bool:
    found = _read(address)
    return any(found in network for network in networks)


def _read(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found
