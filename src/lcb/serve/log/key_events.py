"""The keys as the log has them: every key that is created or revoked is an event, and the table of keys must agree.

Whoever can write to the store could add a key to the table, raise its scope, or delete all keys.  The events are in the
chain, where that is seen.  A log of an earlier version has no such events: the first start, or the first command that
changes keys, records the keys that are in the table (`adopt`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lcb.serve import events
from lcb.serve.event_ids import event_id
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Key, NewRow, Store

CREATED, REVOKED, ADOPTED, OPENED = "created", "revoked", "adopted", "opened"
_LIMIT = 1_000_000  # events of keys that are read
_TRIES, _PAUSE = 4, 0.25  # a key is an event first and then a row of the table, so a difference may be gone soon


class KeyOfLog(NamedTuple):
    """A key as its last event has it; `seq` is that event.

    `created` is when the key was created; None: an earlier version created it, and only the table knows.
    """

    scope: str
    sha256: bytes
    seq: int
    created: float | None


class KeysOfLog(NamedTuple):
    """The valid keys by name, the seqs of the events that revoked others, and whether the service needs no key."""

    valid: dict[str, KeyOfLog]
    revoked: dict[str, int]
    open: bool


class CheckedKeys(NamedTuple):
    """The keys of the table that agree with the log, whether the service needs none, and what disagrees, by name."""

    keys: list[Key]
    open: bool
    problems: dict[str, str]


def record(store: Store, action: str, at: float, address: str, key: Key | None = None) -> None:
    """Append the event of a key, or of the service as a whole; `address` says where the command was given."""
    store.append([_build_row(action, at, address, key)], store.head())


def adopt(store: Store, at: float, address: str) -> list[Key]:
    """Record the keys of the table in a log that has no events of keys yet; returns them."""
    if _has_events(store):
        return []
    keys = store.list_keys()
    rows = [_build_row(ADOPTED if one.revoked is None else REVOKED, at, address, one) for one in keys]
    if rows or store.head():
        store.append([*rows, _build_row(ADOPTED, at, address)], store.head())
    return keys


def read_keys_of_log(store: Store) -> KeysOfLog | None:
    """Return the keys that the log says there are; None if it was written before keys were events."""
    if not _has_events(store):
        return None
    found = KeysOfLog({}, {}, open=True)
    for row in reversed(store.newest_of_service(("key",), limit=_LIMIT)):
        body: events.KeyBody = read_event(row)
        if body.action == OPENED:
            found = found._replace(open=True)
        elif body.name:
            found = found._replace(open=False)
            found.valid.pop(body.name, None)
            if body.action == REVOKED:
                found.revoked[body.name] = row.seq
            else:
                created = body.at if body.action == CREATED else None
                found.valid[body.name] = KeyOfLog(body.scope, body.sha256, row.seq, created)
    return found


def check_keys(store: Store) -> CheckedKeys | None:
    """Compare the table of keys with the log; None if the log was written before keys were events."""
    for left in reversed(range(_TRIES)):
        keys, of_log = store.list_keys(), read_keys_of_log(store)
        if of_log is None:
            return None
        problems = compare_keys(keys, of_log)
        checked = CheckedKeys([key for key in keys if key.name not in problems], of_log.open, problems)
        if not problems:
            break
        time.sleep(_PAUSE if left else 0)
    return checked


def compare_keys(keys: Sequence[Key], of_log: KeysOfLog) -> dict[str, str]:
    """Return what is wrong with each key that the table and the log do not both have as valid, or have differently."""
    table = {key.name: key for key in keys}
    problems = {}
    for name in sorted({key.name for key in keys if key.revoked is None} | set(of_log.valid)):
        row, logged = table.get(name), of_log.valid.get(name)
        if logged is None:
            revoked = f"event {of_log.revoked[name]} revoked it" if name in of_log.revoked else "no event created it"
            problems[name] = f"key {name!r} is valid in the table of keys, but {revoked}"
        elif row is None:
            problems[name] = f"key {name!r} is missing in the table of keys; event {logged.seq} created it"
        elif row.revoked is not None:
            problems[name] = f"key {name!r} is revoked in the table of keys, but no event after {logged.seq} revoked it"
        elif row.scope != logged.scope:
            has = f"has scope {row.scope} in the table of keys"
            problems[name] = f"key {name!r} {has}, but event {logged.seq} created it with scope {logged.scope}"
        elif row.sha256 != logged.sha256:
            problems[name] = f"key {name!r} in the table of keys is not the key that event {logged.seq} created"
        elif logged.created not in (None, row.created):
            has = f"was created at {row.created!r} by the table of keys"
            problems[name] = f"key {name!r} {has}, but event {logged.seq} created it at {logged.created!r}"
    return problems


def describe_problems(problems: Iterable[str]) -> str:
    """Return the problems with what to do about them, as one line."""
    remedy = "somebody has changed the table; revoke each of these keys (lcb keys revoke NAME) and create new ones"
    return f"{'; '.join(problems)}: {remedy}"


def _has_events(store: Store) -> bool:
    """Whether every key of this log has its event: the log began so, or the keys were recorded later."""
    first = next(iter(store.events(0, 1)), None)
    if first is None:
        return not store.list_keys()
    if first.kind == "key" or (first.kind == "service" and read_event(first).has_key_events):
        return True
    found = store.newest_of_service(("key",), limit=_LIMIT)
    return any(read_event(row).action == ADOPTED for row in found)


def _build_row(action: str, at: float, address: str, key: Key | None = None) -> NewRow:
    name, scope, sha256 = ("", "", b"") if key is None else key[:3]
    body = events.KeyBody(at, action, events.Actor(None, address), name, scope, sha256)
    id = f"{int(at * 1000):012x}{secrets.token_hex(7)}"
    return NewRow(event_id("key", id), "key", None, None, events.encode(body))
