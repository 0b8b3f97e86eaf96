"""Who did what to the service, and who was refused: `lcb log audit`, and the table of the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lcb.serve import events
from lcb.serve.log import key_events
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Row, Store
from lcb.words import format_count

KINDS = ("audit", "refused", "erase", "activate", "key", "compact")


def read_trail(store: Store, limit: int = 10_000) -> list[dict[str, Any]]:
    """Return the newest `limit` entries, the oldest of them first."""
    newest = store.newest_of_service(KINDS, limit=limit)
    return [describe_action(row, read_event(row)) for row in reversed(newest)]


def describe_action(row: Row, body: Any) -> dict[str, Any]:
    """Return an entry as JSON values; `key` and `address` are None where an earlier version did not record them."""
    by = None if row.kind == "compact" else events.Actor(body.key, body.address) if row.kind == "refused" else body.by
    return {
        "seq": row.seq,
        "time": datetime.fromtimestamp(body.at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "key": None if by is None else by.key,
        "address": body.address if row.kind == "compact" else None if by is None else by.address,
        "action": describe_words(row, body),
        "n": body.n if row.kind == "refused" else 1,
    }


_NAMED = 5  # routes of refused requests


def describe_words(row: Row, body: Any) -> str:
    """Return what was done, in words."""
    if row.kind == "refused":
        asked = [(body.status, body.route), *body.others]
        named = [f"{route.replace(':path', '')} ({status})" for status, route in asked[:_NAMED]]
        more = f" and {len(asked) - _NAMED} more" if len(asked) > _NAMED else ""
        return f"was refused {', '.join(named)}{more}"
    if row.kind == "erase":
        return f"erased a user with {format_count(len(body.history), 'event')}"
    if row.kind == "compact":
        return f"archived the events up to {body.upto:,}"
    if row.kind == "key":
        return _describe_key(body)
    if row.kind == "activate":
        return f"activated version {body.version}"
    return f"{body.action}: {body.detail}" if body.detail else str(body.action)


def _describe_key(body: events.KeyBody) -> str:
    if body.action == key_events.OPENED:
        return "let the service need no key"
    if not body.name:
        return "recorded the keys that were created before keys were events"
    scope = "" if body.action == key_events.REVOKED else f" ({body.scope})"
    return f"{body.action} key {body.name}{scope}"
