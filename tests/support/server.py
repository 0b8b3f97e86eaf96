"""Runs a service for the drills in a separate process: `python server.py SETTINGS_JSON [PROTECTION...]`.

Each PROTECTION named is removed, to show that a drill fails without it.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Limits, Settings


def settings(given: dict[str, Any]) -> Settings:
    """Settings from plain JSON."""
    made = dict(given)
    if "recommenders" in made:
        made["recommenders"] = tuple(RecommenderSpec(**one) for one in made["recommenders"])
    if "learning" in made:
        made["learning"] = Learning(**made["learning"])
    if "limits" in made:
        made["limits"] = Limits(**made["limits"])
    for name in ("categories", "reward_range", "hosts", "proxies"):
        if made.get(name) is not None:
            made[name] = tuple(made[name])
    return Settings(**made)


def replace(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute that must exist: a renamed protection would otherwise stay in place unnoticed."""
    getattr(owner, name)
    setattr(owner, name, value)


def without_waiting() -> None:
    """Answer before the event is on disk."""
    import asyncio

    from lcb.serve.log.journal import Journal

    kept = Journal.append

    def append(self: Journal, *entries: Any) -> asyncio.Future[None]:
        waiting = kept(self, *entries)
        waiting.add_done_callback(lambda done: done.exception())
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(None)
        for entry in entries:
            self.applier.slots.admit(_slots(self, entry)) if entry.row.kind == "decision" else None
        return answered

    def _slots(journal: Journal, entry: Any) -> Any:
        from lcb.serve.state.reward_slots import open_slots
        from lcb.storage.store.base import Row

        return open_slots(Row(journal.world.seq + 1, *entry.row), entry.body)

    Journal.append = append  # type: ignore[method-assign]


def without_head() -> None:
    """Append without locking the head of the log."""
    from lcb.storage.store.postgres import store as postgres

    replace(postgres, "_LOCK", "select seq, link from head")


def without_reconnecting() -> None:
    """Keep every connection, even a broken one."""
    from lcb.storage.store.postgres.connections import Connection, ConnectionPool
    from lcb.storage.store.postgres.store import Postgres

    replace(Connection, "closed", property(lambda self: False))
    replace(Postgres, "_roll_back", lambda self, connection: None)
    replace(Postgres, "_drop_writer", lambda self, connection: None)
    replace(ConnectionPool, "drop_idle", lambda self: None)


def without_new_connections() -> None:
    """Keep a connection to PostgreSQL after an error inside a pipeline."""
    from lcb.storage.store.postgres.store import Postgres

    replace(Postgres, "_drop_writer", lambda self, connection: connection.execute("rollback"))


def without_long_locks() -> None:
    """Wait 0.1 s for a lock of PostgreSQL, in place of 3 s, so that a drill is short."""
    from lcb.storage.store.postgres import connections as postgres_connections

    postgres_connections._LIMITS["lock_timeout"] = "100ms"


def without_scrubbing() -> None:
    """Leave erased rows of PostgreSQL where they are."""
    from lcb.storage.store.postgres.scrub import Scrubber

    replace(Scrubber, "start", lambda self: None)


def without_rewriting() -> None:
    """Vacuum after an erasure, but do not rewrite the tables."""
    from lcb.storage.store.postgres import scrub as postgres_scrub

    replace(postgres_scrub, "REWRITE_BYTES", 0)


def without_drain() -> None:
    """Exit at the first signal, with requests in flight."""
    import os

    from lcb.serve import server

    replace(server._Server, "handle_exit", lambda self, sig, frame: os._exit(0))


def without_lock() -> None:
    """Allow several services on one file."""
    from lcb.storage.store.sqlite import store as sqlite

    replace(sqlite, "ServerLock", lambda path: None)


def without_kept_lock() -> None:
    """Do not look whether the file of the lock is still there."""
    from lcb.storage.store.sqlite.file import ServerLock

    replace(ServerLock, "keep", lambda self: None)


def without_schema_check() -> None:
    """Serve a file whatever its schema is."""
    from lcb.storage.store.sqlite.store import SQLite

    replace(SQLite, "find_changes_of_schema", lambda self: [])


def without_shares() -> None:
    """Let an address take the places of others however many it has."""
    from lcb.serve.web.wire.places import Sweep

    Sweep._has_share = lambda self, own: False  # type: ignore[method-assign]
    Sweep._take_place = lambda self, own: False  # type: ignore[method-assign]


def without_descriptors() -> None:
    """Leave the limit of open files as it is."""
    from lcb.serve import server

    replace(server, "provide_descriptors", lambda most: most)


def without_known_log() -> None:
    """Repeated requests are answered from memory, also while the store no longer has what was answered."""
    from lcb.serve.log.journal import Journal

    replace(Journal, "lost", None)


def without_file_check() -> None:
    """Do not look whether the file is still there."""
    from lcb.storage.store.sqlite.file import OpenFiles

    replace(OpenFiles, "are_in_place", lambda self: True)


def without_known_events() -> None:
    """Do not look whether the file still has the events that are known."""
    from lcb.storage.store.sqlite.known_log import KnownLog

    replace(KnownLog, "look", lambda self: None)


def without_test_writes() -> None:
    """Take a store that refused a write for unwritable until a request is stored."""
    from lcb.errors import StoreUnavailable
    from lcb.storage.store.sqlite.store import SQLite

    kept = SQLite.check

    def check(self: SQLite, *, writing: bool = False) -> None:
        kept(self)
        if writing:
            raise StoreUnavailable("not tried")

    replace(SQLite, "check", check)


def without_private_files() -> None:
    """Leave the modes of the files to the umask."""
    from lcb.storage.store.sqlite import store as sqlite

    replace(sqlite, "create_file", lambda path: None)
    replace(sqlite, "make_private", lambda path: None)


def without_closing() -> None:
    """Need no key while the store has none."""
    from lcb.serve.web.keys import Keyring

    replace(Keyring, "open", property(lambda self: not self._keys, lambda self, value: None))


def without_key_events() -> None:
    """Believe the table of keys."""
    from lcb.serve import server
    from lcb.serve.log.key_events import CheckedKeys

    def believe(store: Any, *_: Any) -> CheckedKeys:
        keys = store.list_keys()
        return CheckedKeys(keys, not keys, {})

    replace(server, "read_keys", believe)
    replace(server, "check_keys", believe)


def without_checked_addresses() -> None:
    """Take what a proxy reports for an address, whatever it is."""
    from lcb.serve import server

    replace(server, "CheckedAddresses", lambda app: app)


def without_guard() -> None:
    """Use uvicorn's own protocol, without deadlines and limits."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from lcb.serve import server
    from lcb.serve.web.wire.protocol import protocol

    def unguarded(**limits: Any) -> type[HttpToolsProtocol]:
        class Unguarded(HttpToolsProtocol):
            find_sweep = protocol(**limits).find_sweep  # connections are accepted as always

        return Unguarded

    replace(server, "protocol", unguarded)


def without_bound() -> None:
    """Remove the limit on the queue."""
    from lcb.serve.log.waiting_room import WaitingRoom

    WaitingRoom.n_free = property(lambda self: 10**9)  # type: ignore[assignment, misc]


def without_words() -> None:
    """Raise msgspec's own errors for invalid bodies."""
    from lcb.serve import strict_json

    replace(strict_json, "to_problem", lambda error, *_: error)


def with_learning(fault: str) -> None:
    """Let the learning process fail while it reads the log, as in faulty_learning.py."""
    from pathlib import Path

    from lcb.serve.learn.supervisor import Retraining

    script = str(Path(__file__).with_name("faulty_learning.py"))
    kept = Retraining.__init__

    def init(self: Retraining, *given: Any, **more: Any) -> None:
        kept(self, *given, **more)
        self.command = lambda: [sys.executable, script, fault, "reading"]

    Retraining.__init__ = init  # type: ignore[method-assign]


def without_pinning() -> None:
    """Give users the version that is active now."""
    from lcb.serve.decide.decisions import Decisions

    kept = Decisions.decide

    def decide(self: Decisions, request: Any, *more: Any) -> Any:
        user = self.world.user(request.user)
        if user is not None:
            user.model = self.world.state.active
        return kept(self, request, *more)

    Decisions.decide = decide  # type: ignore[method-assign]


def without_logging_activations() -> None:
    """Activate a version without logging it."""
    from lcb.serve.service import Service

    async def activate(self: Service, version: int, reason: str, by: Any = None) -> None:
        self.world.state.activations.append(version)

    Service.activate = activate  # type: ignore[method-assign]


def without_fast_snapshots() -> None:
    """Let a commit of snapshots alone take a minute."""
    import time

    from lcb.storage.store.sqlite.store import SQLite

    kept = SQLite.append

    def append(self: SQLite, rows: Any, seen: int, snapshots: Any = (), *more: Any) -> Any:
        if snapshots and not rows:
            time.sleep(60)
        return kept(self, rows, seen, snapshots, *more)

    SQLite.append = append  # type: ignore[method-assign]


def without_time_of_snapshots() -> None:
    """Wait for snapshots at the end as long as they take."""
    from lcb.serve import server

    replace(server, "_SNAPSHOTS", 1000.0)


def without_refusal() -> None:
    """Answer as if a full disk had stored the events."""
    from lcb.errors import StoreUnavailable
    from lcb.storage.store.base import Appended, Row
    from lcb.storage.store.sqlite.store import SQLite

    kept = SQLite.append

    def append(self: SQLite, rows: Any, seen: int, *more: Any) -> Appended:
        try:
            return kept(self, rows, seen, *more)
        except StoreUnavailable:
            return Appended([Row(seen + i, *row) for i, row in enumerate(rows, start=1)], frozenset())

    SQLite.append = append  # type: ignore[method-assign]


def _wait_while_held_up(store: Any) -> None:
    """Wait while the file `lcb-slow` is beside the store, for work that an attacker would make last.

    Each that waits adds a byte to the file `lcb-waiting`.
    """
    import time
    from pathlib import Path

    place = Path(store.url).with_name("lcb-slow")
    if place.exists():
        with place.with_name("lcb-waiting").open("ab") as file:
            file.write(b".")
    while place.exists():
        time.sleep(0.01)


def with_slow_stories() -> None:
    """Hold up recomputations."""
    from lcb.serve.pages import operator

    kept = operator.verify

    def verify(store: Any, *given: Any, **more: Any) -> Any:
        _wait_while_held_up(store)
        return kept(store, *given, **more)

    replace(operator, "verify", verify)


def with_slow_scores() -> None:
    """Hold up decisions over more than 1,000 arms."""
    from lcb.serve.decide.decisions import Decisions

    kept = Decisions.finish

    def finish(self: Decisions, begun: Any) -> Any:
        if len(begun.arms.ids) > 1000:
            _wait_while_held_up(self.world.store)
        return kept(self, begun)

    replace(Decisions, "finish", finish)


def with_slow_items() -> None:
    """Hold up requests with more than 1,000 items."""
    from lcb.serve import service
    from lcb.serve.decide import items

    kept = items.read_items

    def read_items(request: Any, *given: Any) -> Any:
        if len(request.items) > 1000:
            _wait_while_held_up(stores[0])
        return kept(request, *given)

    stores: list[Any] = []
    init = service.Service.__init__

    def note_store(self: Any, settings: Any, store: Any, **more: Any) -> None:
        stores.append(store)
        init(self, settings, store, **more)

    replace(service.Service, "__init__", note_store)
    replace(service, "read_items", read_items)
    replace(items, "read_items", read_items)


def without_sparse_distributions() -> None:
    """Store every distribution whole, as for a policy that gives each arm a probability of its own."""
    from lcb.serve import sparse

    sparse.FEWEST_ARMS = 10**9


def with_slow_histories() -> None:
    """Hold up reading the events of the user "large" and the decision "large"."""
    from lcb.storage.store.sqlite.store import SQLite

    def hold_up(kept: Any) -> Any:
        def read(self: SQLite, name: str, *given: Any) -> Any:
            if name == "large":
                _wait_while_held_up(self)
            return kept(self, name, *given)

        return read

    replace(SQLite, "events_of", hold_up(SQLite.events_of))
    replace(SQLite, "stream_of", hold_up(SQLite.stream_of))
    replace(SQLite, "event", hold_up(SQLite.event))


def without_large_reads_apart() -> None:
    """Read the events of every user in the event loop."""
    from lcb.serve import service
    from lcb.serve.state.per_user import load_users

    replace(load_users, "LARGE_HISTORY", math.inf)
    replace(service, "LARGE_HISTORY", math.inf)


def without_own_threads() -> None:
    """One pool of threads for everything, as asyncio has it."""
    import asyncio

    from lcb.serve.threads import Threads

    async def run(self: Threads, function: Any, *given: Any, **more: Any) -> Any:
        return await asyncio.to_thread(function, *given, **more)

    replace(Threads, "run", run)


def without_large_work_apart() -> None:
    """Make all decisions and read all items in the event loop."""
    from lcb.serve import service
    from lcb.serve.web import api

    replace(service, "is_large", lambda state, request: False)
    replace(api, "LARGE_BODY", math.inf)


def without_giving_way() -> None:
    """Keep idle connections when there is no room for others."""
    from lcb.serve.web.wire.places import Places

    replace(Places, "_make_room", lambda self, now: False)


def without_noticed_aborts() -> None:
    """Tell only the last request of a connection that the client is gone, as uvicorn does; write on to the others."""
    from lcb.serve.web.wire.protocol import GuardedProtocol

    replace(GuardedProtocol, "answering", property(lambda self: None, lambda self, cycle: None))


def without_shared_memory() -> None:
    """Write every answer at once, copied behind its head."""
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from lcb.serve.web.wire.cycle import Cycle

    replace(Cycle, "send", RequestResponseCycle.send)


def without_whole_bodies() -> None:
    """Take what arrived before the client disconnected for the whole body."""
    from lcb.serve.web import endpoint

    async def receive_part(receive: Any) -> Any:
        return await receive()

    replace(endpoint, "_receive_part", receive_part)


def without_headers() -> None:
    """Send no headers but the type and the length."""
    from lcb.serve.web import endpoint

    replace(endpoint, "list_common_headers", lambda reply: ((b"content-type", reply.type),))


def without_endless_streams() -> None:
    """End the event stream of the dashboard after its first event, so that a client can read it to the end."""
    from lcb.serve.pages.operator import Operator

    kept = Operator._stream

    async def stream(self: Operator, ask: Any) -> Any:
        async for part in kept(self, ask):
            yield part
            return

    replace(Operator, "_stream", stream)


def without_small_bodies() -> None:
    """Let all routes take as much as decisions and items may."""
    from lcb.serve.web import app

    replace(app, "_SMALL_BODY", 4_000_000)


def without_seats() -> None:
    """Write departures, but leave the users unseated."""
    from lcb.serve.state.mixtures import Mixtures

    replace(Mixtures, "leave", lambda self, *_: None)


def with_a_bug() -> None:
    """Let the reward .125 fail after it has changed a part of the state."""
    from lcb.serve.state.world import World

    kept = World._compare_canary

    def compare(self: World, user: Any, seq: int) -> None:
        if user.reward_sum == 0.125:
            raise KeyError("a bug")
        kept(self, user, seq)

    replace(World, "_compare_canary", compare)


def say(address: str) -> None:
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


WITHOUT = {
    "waiting": without_waiting,
    "fast stories": with_slow_stories,
    "fast scores": with_slow_scores,
    "fast items": with_slow_items,
    "fast histories": with_slow_histories,
    "sparse distributions": without_sparse_distributions,
    "large reads apart": without_large_reads_apart,
    "own threads": without_own_threads,
    "large work apart": without_large_work_apart,
    "giving way": without_giving_way,
    "small bodies": without_small_bodies,
    "endless streams": without_endless_streams,
    "noticed aborts": without_noticed_aborts,
    "whole bodies": without_whole_bodies,
    "shared memory": without_shared_memory,
    "headers": without_headers,
    "refusal": without_refusal,
    "drain": without_drain,
    "fast snapshots": without_fast_snapshots,
    "time of snapshots": without_time_of_snapshots,
    "scrubbing": without_scrubbing,
    "rewriting": without_rewriting,
    "new connections": without_new_connections,
    "long locks": without_long_locks,
    "lock": without_lock,
    "known log": without_known_log,
    "file check": without_file_check,
    "known events": without_known_events,
    "private files": without_private_files,
    "test writes": without_test_writes,
    "kept lock": without_kept_lock,
    "schema check": without_schema_check,
    "descriptors": without_descriptors,
    "shares": without_shares,
    "closing": without_closing,
    "key events": without_key_events,
    "checked addresses": without_checked_addresses,
    "guard": without_guard,
    "bound": without_bound,
    "head": without_head,
    "reconnecting": without_reconnecting,
    "words": without_words,
    "pinning": without_pinning,
    "seats": without_seats,
    "logged activations": without_logging_activations,
    "correctness": with_a_bug,
    "learning:hang": lambda: with_learning("hang"),
    "learning:orphan": lambda: with_learning("orphan"),
}


def main(arguments: list[str]) -> None:
    from lcb.cli.settings import run_service
    from lcb.serve.learn.refits import Refits
    from lcb.serve.learn.supervisor import Retraining
    from support.learning import build_command

    for each in (Retraining, Refits):
        defaults = each.__init__.__kwdefaults__ or {}  # type: ignore[misc]
        assert "command" in defaults, "tests would learn at a low priority"
        defaults["command"] = build_command
    for name in arguments[1:]:
        WITHOUT[name]()
    run_service(settings(json.loads(arguments[0])), say)


if __name__ == "__main__":
    main(sys.argv[1:])
