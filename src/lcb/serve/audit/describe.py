"""Describes the rows of the log for people: `lcb log show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lcb.serve.audit.trail import describe_words
from lcb.serve.read_event import read_event
from lcb.storage.store.base import Row
from lcb.words import format_count


def describe_row(row: Row) -> dict[str, Any]:
    """Return a row of the log as JSON values; `words` says what happened."""
    body = read_event(row)
    at = getattr(body, "at", None)
    return {
        "seq": row.seq,
        "time": None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "kind": row.kind,
        "id": row.id,
        "user": row.user,
        "model": row.model,
        "words": "".join(c if c.isprintable() else repr(c)[1:-1] for c in _describe(row, body)),  # one line
    }


def _describe(row: Row, body: Any) -> str:
    if row.kind == "decision":
        arms = ", ".join(f"{one.id} ({one.propensity:.3g})" for one in body.shown)
        own = "" if body.chosen is None else f", own choice {body.taken[0].id}"
        left = "" if body.rules is None else f", {len(body.on_offer()):,} left by the rules,"
        of = f"of {format_count(body.n_arms, 'arm')}{left} by {body.recommender}, model {row.model}"
        return f"{arms}{own} {of}, user state of event {body.seen} [{row.id}]"
    if row.kind == "reward":
        before = "" if body.before is None else f", before {body.before:g}"
        return f"{body.reward:g}{before} for event {body.decision} [{row.id}]"
    if row.kind == "items":
        removed = ", all others removed" if body.replace else f", {len(body.remove)} removed" if body.remove else ""
        return f"{format_count(len(body.items), 'item')}{removed}"
    if row.kind == "model":
        place = "active" if body.active else "kept aside" if body.canary is None else f"canary for {body.canary:g}"
        return f"version {body.version}, {place}: {body.reason}"
    if row.kind == "canary":
        return f"version {body.version} was {'promoted' if body.promoted else 'withdrawn'}: {body.reason}"
    if row.kind == "activate":
        return f"version {body.version}: {body.reason}"
    if row.kind == "service":
        return f"rewards {body.rewards}, range {body.reward_range or 'any'}"
    if row.kind == "recommender":
        return str(body.spec.decode())
    if row.kind == "teachers":
        return f"visitors of the pages do not teach: {', '.join(body.closed) or 'no recommender'}"
    if row.kind == "erase":
        return f"a user with {format_count(len(body.history), 'event')}"
    if row.kind in ("audit", "key"):
        return f"{body.by.key or 'no key'} at {body.by.address} {describe_words(row, body)}"
    if row.kind == "refused":
        return f"{body.address} {describe_words(row, body)}, {format_count(body.n, 'time')}"
    if row.kind == "leave":
        return f"of {body.recommender}, last seen with event {body.last}"
    if row.kind == "base":
        return f"the state after {format_count(body.n_events, 'archived event')}, {body.recommender}"
    if row.kind == "erased base":
        return "of an erased user"
    if row.kind == "compact":
        return f"the log begins after event {body.upto:,}; {body.upto - body.before:,} events were archived"
    if row.kind == "learning":
        return "begins, from the events up to this one"
    if row.kind == "refit":
        return f"of the mixture of {body.recommender} begins"
    if row.kind == "mixture":
        return f"of {body.recommender}: {body.reason}"
    return f"of an erased user, {body.recommender}"
