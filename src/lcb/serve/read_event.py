"""Reads the body of a stored event; one that lcb has not written so is one kind of error everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from lcb.errors import UnreadableEvent
from lcb.serve.events import decode, encode
from lcb.storage.store.base import Row

_LARGE_DECISION = 65_536  # bytes
_WRONG = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
_USER_TYPES = (str, type(None))


def read_event(row: Row) -> Any:
    """Return the body of an event; UnreadableEvent names the event if it is not one that lcb has written."""
    if type(row.id) is not str or type(row.user) not in _USER_TYPES:
        raise UnreadableEvent(row.seq, "its id or its user is no text")
    try:
        return decode(row.kind, row.body)
    except KeyError:
        raise UnreadableEvent(row.seq, f"no event is of the kind {row.kind!r}") from None
    except _WRONG as error:
        raise UnreadableEvent(row.seq, f"the body of this {row.kind}: {error}") from None


@contextmanager
def reading_within(row: Row) -> Iterator[None]:
    """Raise the same if what is in a body, such as settings in JSON, cannot be read."""
    try:
        yield
    except (*_WRONG, KeyError) as error:
        raise UnreadableEvent(row.seq, f"what is in this {row.kind}: {error}") from None


def lighten(row: Row) -> Row:
    """Return a large decision without what no fold of its user needs: the arms on offer and their probabilities."""
    if row.kind != "decision" or len(row.body) <= _LARGE_DECISION:
        return row
    body = read_event(row)
    body.arms = body.x = None
    if body.rules is not None:
        body.rules.excluded, body.rules.left = b"", []
    for arm in body.taken if body.chosen is None else (*body.taken, body.chosen):
        arm.distribution = None
    return row._replace(body=encode(body))
