"""Reads the body of a stored event; one that lcb has not written so is one kind of error everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from lcb.errors import UnreadableEvent
from lcb.serve.events import EraseBody, ErasedReward, RewardBody, decode, encode
from lcb.storage.store.base import Row

_LARGE_DECISION = 65_536  # bytes
_WRONG = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
_USER_TYPES = (str, type(None))
_MOST = 1e100  # size of a reward or a sum of them; squares of such numbers can be added up


def _list_of_reward(body: RewardBody) -> Sequence[float | None]:
    return body.reward, body.before, body.sent


def _list_of_erased_reward(body: ErasedReward) -> Sequence[float | None]:
    return body.reward, body.before, None if body.residual is None else body.residual[1]


def _list_of_erasure(body: EraseBody) -> Sequence[float | None]:
    return [reward_sum for _, _, _, reward_sum, _ in body.history]


_ADDED_UP: dict[str, Callable[[Any], Sequence[float | None]]] = {  # numbers of a body that go into exact sums
    "reward": _list_of_reward,
    "erased reward": _list_of_erased_reward,
    "erase": _list_of_erasure,
}


def read_event(row: Row) -> Any:
    """Return the body of an event; UnreadableEvent names the event if it is not one that lcb has written."""
    if type(row.id) is not str or type(row.user) not in _USER_TYPES:
        raise UnreadableEvent(row.seq, "its id or its user is no text")
    try:
        body = decode(row.kind, row.body)
    except KeyError:
        raise UnreadableEvent(row.seq, f"no event is of the kind {row.kind!r}") from None
    except _WRONG as error:
        raise UnreadableEvent(row.seq, f"the body of this {row.kind}: {error}") from None
    if (list_numbers := _ADDED_UP.get(row.kind)) is not None:
        for number in list_numbers(body):
            if number is not None and not -_MOST <= number <= _MOST:  # nor is NaN
                raise UnreadableEvent(row.seq, f"the body of this {row.kind}: {number} is no reward")
    return body


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
