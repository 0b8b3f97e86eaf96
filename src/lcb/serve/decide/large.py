"""Decisions over very many arms, decoded and prepared in parts, so that a thread that does it lets others run.

A thread of Python holds the interpreter lock during one call of compiled code.  Decoding 10,000 arms of 200 features at
once takes 0.1 s, in which the event loop answers nobody; arm by arm, the lock changes hands in between.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Raw

from lcb.arrays import Floats
from lcb.messages import MOST_ARMS, Arm, DecisionRequest
from lcb.serve import events
from lcb.serve.decide.arms import build_ragged_error
from lcb.serve.decide.validation import check_size
from lcb.serve.state.service_state import ServiceState
from lcb.serve.strict_json import UNREADABLE, count_pairs, refuse_duplicates, refuse_nul, to_problem

LARGE_BODY = 100_000  # bytes; decoding less takes under 5 ms
_LARGE = 50_000  # numbers to score, features of all arms times slots; scoring less takes under 10 ms
_FIELDS = msgspec.structs.fields(DecisionRequest)
_ARMS = Annotated[list[Raw], Meta(min_length=1, max_length=MOST_ARMS)] | None
_Outer = msgspec.defstruct(  # a request whose arms are not decoded yet
    "DecisionRequest",
    [
        (one.name, one.type) if one.required else (one.name, _ARMS if one.name == "arms" else one.type, one.default)
        for one in _FIELDS
    ],
    forbid_unknown_fields=True,
)
_OUTER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Outer)
_ARM = msgspec.json.Decoder(Arm)


class Prepared(msgspec.Struct):
    """What depends on the request alone: its digest, if it has an id, and the features (K, d) that it sent."""

    digest: bytes | None
    context: Floats | None


def is_large(state: ServiceState, request: DecisionRequest) -> bool:
    """Whether to decide this request in a thread."""
    arms = request.arms
    n_arms = len(state.catalogue) if arms is None else len(arms)
    n_features = state.n_features or (0 if arms is None else len(arms[0].x or ()))
    return n_arms * n_features * (request.k or 1) > _LARGE


def decode_large(raw: bytes) -> DecisionRequest:
    """Do the same as `strict_json.decode`, arm by arm; of several errors it may name another one."""
    try:
        outer = _OUTER.decode(raw)
    except UNREADABLE as error:
        raise to_problem(error, raw, _OUTER) from None
    arms, n_pairs = None, 0
    if outer.arms is not None:
        arms = []
        for i, one in enumerate(outer.arms):
            try:
                arms.append(_ARM.decode(one))
            except UNREADABLE as error:
                raise to_problem(_place_in_arm(error, i), raw, _OUTER) from None
            n_pairs += count_pairs(arms[-1])
        outer.arms = []
    if b"\\" in raw or raw.count(b":") != n_pairs + count_pairs(outer):
        refuse_duplicates(raw)
    refuse_nul(raw)
    outer.arms = arms
    return DecisionRequest(**{one.name: getattr(outer, one.name) for one in _FIELDS})


def _place_in_arm(error: Exception, i: int) -> Exception:
    text = str(error)
    place = f"`$.arms[{i}]"
    return type(error)(text.replace("`$", place, 1) if "`$" in text else f"{text} - at {place}`")


def prepare(request: DecisionRequest) -> Prepared:
    """Compute what depends on the request alone."""
    context = None
    if request.arms is not None and request.arms[0].x is not None:
        context = _stack_vectors(request.arms)
    return Prepared(None if request.decision_id is None else compute_digest(request), context)


def _stack_vectors(arms: list[Arm]) -> Floats:
    context = np.empty((len(arms), len(arms[0].x or ())))
    try:
        for i, arm in enumerate(arms):
            if len(arm.x or ()) != context.shape[1]:
                raise ValueError
            context[i] = arm.x
    except (ValueError, TypeError):
        raise build_ragged_error(arms) from None
    check_size(context, "arms")
    return context


def compute_digest(request: DecisionRequest) -> bytes:
    """Do the same as `decisions.compute_digest`: hash the request as MessagePack, a map of its fields, arm by arm."""
    digest = hashlib.blake2b(bytes([0x80 | len(_FIELDS)]), digest_size=16)
    for one in _FIELDS:
        value = getattr(request, one.name)
        digest.update(events.encode(one.name))
        if one.name != "arms" or value is None:
            digest.update(events.encode(value))
            continue
        digest.update(_build_array_header(len(value)))
        for arm in value:
            digest.update(events.encode(arm))
    return digest.digest()


def _build_array_header(n: int) -> bytes:
    return bytes([0x90 | n]) if n < 16 else b"\xdc" + n.to_bytes(2, "big")  # there are at most 65,535 arms
