"""Requests with very many arms or items, decoded and prepared in parts, so that a thread that does it lets others run.

A thread of Python holds the interpreter lock during one call of compiled code.  Decoding 10,000 arms of 200 features at
once takes 0.1 s, in which the event loop answers nobody; arm by arm, the lock changes hands in between.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Raw

from lcb.arrays import Floats
from lcb.messages import MOST_ARMS, MOST_ITEMS, Arm, DecisionRequest, ItemRequest, ItemsRequest
from lcb.serve import events
from lcb.serve.decide.rules import RULES
from lcb.serve.decide.validation import check_size
from lcb.serve.decide.wrong_arms import build_arms_error
from lcb.serve.state.service_state import ServiceState
from lcb.serve.strict_json import UNREADABLE, count_pairs, refuse_duplicates, refuse_nul, to_problem

LARGE_BODY = 100_000  # bytes; decoding less takes under 5 ms; a single decision with more is decided in the thread too
LARGE_DECISION = 50_000  # numbers to score, features of all arms times slots; scoring less takes under 10 ms
MANY_ARMS = 2000  # that a request sends; reading and logging fewer takes under 4 ms
_FIELDS = msgspec.structs.fields(DecisionRequest)
NO_RULES = b"".join(events.encode(name) + events.encode(None) for name in RULES)
WITHOUT_RULES = bytes([0x80 | len(_FIELDS) - len(RULES)])  # the header of a map of the other fields
Request = TypeVar("Request", bound=msgspec.Struct)


class _InParts(Generic[Request]):
    """Decodes a request whose list `name` may be long, element by element; `raw` is the type of that list undecoded."""

    def __init__(self, request: type[Request], name: str, element: type, raw: Any) -> None:
        self.request, self.name = request, name
        self.fields = msgspec.structs.fields(request)
        of_outer = [(one.name, raw if one.name == name else one.type, *_default_of(one)) for one in self.fields]
        outer = msgspec.defstruct(request.__name__, of_outer, forbid_unknown_fields=True, omit_defaults=True)
        self.outer: msgspec.json.Decoder[Any] = msgspec.json.Decoder(outer)
        self.element: msgspec.json.Decoder[Any] = msgspec.json.Decoder(element)

    def decode(self, raw: bytes) -> Request:
        """Do the same as `strict_json.decode`, element by element; of several errors it may name another one."""
        try:
            outer = self.outer.decode(raw)
        except UNREADABLE as error:
            raise to_problem(error, raw, self.outer) from None
        elements, n_pairs = None, 0
        if (found := getattr(outer, self.name)) is not None:
            elements = []
            for i, one in enumerate(found):
                try:
                    elements.append(self.element.decode(one))
                except UNREADABLE as error:
                    raise to_problem(self._place(error, i), raw, self.outer) from None
                n_pairs += count_pairs(elements[-1])
            setattr(outer, self.name, [])
        if b"\\" in raw or raw.count(b":") != n_pairs + count_pairs(outer):
            refuse_duplicates(raw)
        refuse_nul(raw)
        setattr(outer, self.name, elements)
        return self.request(**{one.name: getattr(outer, one.name) for one in self.fields})

    def _place(self, error: Exception, i: int) -> Exception:
        """Return an error about element `i` as an error about the request."""
        said, found, inside = str(error).rpartition(" - at `$")
        place = f" - at `$.{self.name}[{i}]"
        return type(error)(f"{said}{place}{inside}" if found else f"{inside}{place}`")


def _default_of(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if field.required:
        return ()
    if field.default_factory is msgspec.NODEFAULT:
        return (field.default,)
    return (msgspec.field(default_factory=field.default_factory),)


_ARMS = Annotated[list[Raw], Meta(min_length=1, max_length=MOST_ARMS)] | None
decode_decision = _InParts(DecisionRequest, "arms", Arm, _ARMS).decode
decode_items = _InParts(ItemsRequest, "items", ItemRequest, Annotated[list[Raw], Meta(max_length=MOST_ITEMS)]).decode


class Prepared(msgspec.Struct):
    """What depends on the request alone: its digest, if it has an id, and the features (K, d) that it sent."""

    digest: bytes | None
    context: Floats | None


def is_large(state: ServiceState, request: DecisionRequest) -> bool:
    """Whether to decide this request in a thread."""
    many = request.arms is not None and len(request.arms) > MANY_ARMS
    return many or has_many_numbers(state, request)


def has_many_numbers(state: ServiceState, request: DecisionRequest) -> bool:
    """Whether it scores so much that a batch, which reads arms once for all, does not decide it in a row."""
    return count_numbers(state, request) > LARGE_DECISION


def count_numbers(state: ServiceState, request: DecisionRequest) -> int:
    """Count the numbers that a decision scores: the features of all arms, for every slot."""
    arms = request.arms
    n_arms = len(state.catalogue) if arms is None else len(arms)
    n_features = state.n_features or (0 if arms is None else len(arms[0].x or ()))
    return n_arms * n_features * (request.k or 1)


def prepare(state: ServiceState, request: DecisionRequest) -> Prepared:
    """Compute what depends on the request alone; `state` tells which of its arms is wrong."""
    context, arms = None, request.arms
    if arms is not None and arms[0].x is not None:
        context = _stack_vectors(state, request, arms)
    elif arms is not None and any(arm.x is not None for arm in arms):
        raise build_arms_error(state, request)
    return Prepared(None if request.decision_id is None else compute_digest(request), context)


def _stack_vectors(state: ServiceState, request: DecisionRequest, arms: list[Arm]) -> Floats:
    context = np.empty((len(arms), len(arms[0].x or ())))
    for i, arm in enumerate(arms):
        if arm.x is None or len(arm.x) != context.shape[1]:
            raise build_arms_error(state, request)
        context[i] = arm.x
    check_size(context, "arms")
    return context


def compute_digest(request: DecisionRequest) -> bytes:
    """Do the same as `decisions.compute_digest`: hash the request as MessagePack, a map of its fields, arm by arm."""
    fields = _FIELDS if request.has_rules else _FIELDS[: -len(RULES)]
    digest = hashlib.blake2b(bytes([0x80 | len(fields)]), digest_size=16)
    for one in fields:
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
