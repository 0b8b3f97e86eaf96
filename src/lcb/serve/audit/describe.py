"""Describes the rows of the log for people: `lcb log show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lcb.serve.audit.trail import describe_words
from lcb.serve.events import decode
from lcb.storage.store.base import Row


def describe_row(row: Row) -> dict[str, Any]:
    """Return a row of the log as JSON values; `words` says what happened."""
    body = decode(row.kind, row.body)
    at = getattr(body, "at", None)
    return {
        "seq": row.seq,
        "time": None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "kind": row.kind,
        "id": row.id,
        "user": row.user,
        "model": row.model,
        "words": _describe(row, body),
    }


def _describe(row: Row, body: Any) -> str:
    if row.kind == "decision":
        arms = ", ".join(f"{one.id} ({one.propensity:.3g})" for one in body.shown)
        own = "" if body.chosen is None else f", own choice {body.taken[0].id}"
        of = f"of {body.n_arms} arms by {body.recommender}, model {row.model}"
        return f"{arms}{own} {of}, user state of event {body.seen} [{row.id}]"
    if row.kind == "reward":
        before = "" if body.before is None else f", before {body.before:g}"
        return f"{body.reward:g}{before} for event {body.decision} [{row.id}]"
    if row.kind == "items":
        removed = ", all others removed" if body.replace else f", {len(body.remove)} removed" if body.remove else ""
        return f"{len(body.items)} items{removed}"
    if row.kind == "model":
        return f"version {body.version}, {'active' if body.active else 'kept aside'}: {body.reason}"
    if row.kind == "activate":
        return f"version {body.version}: {body.reason}"
    if row.kind == "service":
        return f"rewards {body.rewards}, range {body.reward_range or 'any'}"
    if row.kind == "recommender":
        return str(body.spec.decode())
    if row.kind == "erase":
        return f"a user with {len(body.history)} events"
    if row.kind == "audit":
        return f"{body.by.key or 'no key'} at {body.by.address} {describe_words(row, body)}"
    if row.kind == "refused":
        return f"{body.address} {describe_words(row, body)}, {body.n} times"
    return f"of an erased user, {body.recommender}"
