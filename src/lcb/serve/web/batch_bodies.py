"""Reads the bodies of batches, and refuses batches that would write or score too much.

A body is decoded at once if everything in it has the right form, else element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from lcb import messages
from lcb.serve.decide.large import LARGE_BODY
from lcb.serve.decide.validation import refuse_answers_of_visitors
from lcb.serve.errors import Problem
from lcb.serve.strict_json import UNREADABLE, count_pairs, decode, refuse_duplicates, to_problem

T = TypeVar("T")
DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_SPACE = b" \t\n\r"
_OUT = b"0"  # in place of arms that are taken out of a body
_MOST_WRITTEN = 16_000_000  # bytes of common arms, which every decision of a batch writes: 2,000,000 numbers


_MOST_SCORED = (
    2_000_000  # arms, counted for every slot that is chosen from them; a single request has half of it at most
)


class _Slots(Struct):
    """What an element of a batch costs, besides its user."""

    k: int | None = None
    arms: Raw = Raw()


class _Decisions(Struct, forbid_unknown_fields=True):
    decisions: Annotated[list[Raw], Meta(min_length=1, max_length=messages.MOST_IN_BATCH)]
    arms: Raw = Raw()


class _Rewards(Struct, forbid_unknown_fields=True):
    rewards: Annotated[list[Raw], Meta(min_length=1, max_length=messages.MOST_IN_BATCH)]


_VALUE = msgspec.json.Decoder(Raw)
_OF_SLOTS = msgspec.json.Decoder(_Slots)
_OF_DECISIONS = msgspec.json.Decoder(_Decisions)
_OF_REWARDS = msgspec.json.Decoder(_Rewards)

_Around: Any = msgspec.defstruct(  # a decision, its arms undecoded
    "Around", [("arms", Raw, Raw())], bases=(messages.DecisionRequest,), forbid_unknown_fields=True
)


def _build_decoder(element: Any) -> msgspec.json.Decoder[Any]:
    decisions: Any = Annotated[list[element], Meta(min_length=1, max_length=messages.MOST_IN_BATCH)]
    fields: list[Any] = [("decisions", decisions), ("arms", Raw, Raw())]
    return msgspec.json.Decoder(msgspec.defstruct("Whole", fields, forbid_unknown_fields=True))


_WITH_COMMON_ARMS, _WITH_OWN_ARMS = _build_decoder(messages.DecisionRequest), _build_decoder(_Around)
_ALL_REWARDS = msgspec.json.Decoder(messages.RewardsRequest)


class Undecoded(Struct):
    """A decision of a batch: its request without arms, and `sent`, these arms undecoded; or all of it undecoded."""

    request: messages.DecisionRequest | None
    sent: bytes


class Decisions(NamedTuple):
    """The elements of a batch of decisions, and its field `arms` undecoded; `plain` ones have nothing but a user."""

    elements: Sequence[messages.DecisionRequest | Undecoded]
    arms: bytes | None
    plain: bool = False


def read_decisions(body: bytes) -> Decisions:
    """Return what a batch of decisions consists of.

    >>> read_decisions(b'{"arms": [{"id": "a"}], "decisions": [{"user": "ann"}, {"user": "ben"}]}')[1:]
    (b'[{"id": "a"}]', True)
    >>> read_decisions(b'{"decisions": [{"user": "ann", "user": "ben"}]}')[0][0].sent
    b'{"user": "ann", "user": "ben"}'
    """
    # the colons outside of strings are as many as the pairs, unless a key comes twice or a value is null
    few = len(body) <= LARGE_BODY and body.count(b'"arms"') <= 1
    if few and (found := _decode_whole(_WITH_COMMON_ARMS, body)) is not None:
        arms = bytes(found.arms)
        n_pairs = body.count(b":") - _count_around(arms)
        if n_pairs == len(found.decisions):  # every element has a user, and nothing else
            return Decisions(found.decisions, arms or None, plain=True)
        if n_pairs == count_pairs(found.decisions):
            return Decisions(found.decisions, arms or None)
    if not few and (own := _read_own_arms(body)) is not None:
        return Decisions(*own)
    raws, raw_arms = read_elements(_OF_DECISIONS, "decisions", body)
    return Decisions([Undecoded(None, raw) for raw in raws], raw_arms)


def _read_own_arms(body: bytes) -> tuple[list[Undecoded], bytes | None] | None:
    """Return the elements of a batch, each with its arms undecoded; None if something has not the right form."""
    short, first = _take_out_arms(body)
    found = _decode_whole(_WITH_OWN_ARMS, short)
    if found is None:
        return None
    arms, elements, last, n_colons, n_out = bytes(found.arms), list[Undecoded](), b"", 0, 0
    n_pairs = _count_around(arms)
    if arms == _OUT:
        arms, n_out = first, 1
    for one in found.decisions:
        sent = bytes(one.arms)
        if sent == _OUT:
            sent = first
            n_pairs += 1
            n_out += 1
        else:
            if sent == last:
                sent = last  # the same object: it is hashed and searched once
            else:
                last, n_colons = sent, 1 + sent.count(b":") if sent else 0
            n_pairs += n_colons
        one.arms = None
        elements.append(Undecoded(one, sent))
    n_bytes = len(short) + n_out * (len(first) - len(_OUT))
    if n_bytes != len(body) or short.count(b":") != n_pairs + count_pairs([one.request for one in elements]):
        return None
    return elements, arms or None


def _take_out_arms(body: bytes) -> tuple[bytes, bytes]:
    """Return a body with 0 in place of the first arms, wherever a decision has the same bytes, and these arms.

    So they are read once; where most arms are others, the search for more of them ends.  The body is valid JSON if it
    was, and only then: in both, what follows the name is a value.

    >>> _take_out_arms(b'{"decisions":[{"user":"ann","arms":[{"id":"a"}]},{"user":"ben","arms":[{"id":"a"}]}]}')
    (b'{"decisions":[{"user":"ann","arms":0},{"user":"ben","arms":0}]}', b'[{"id":"a"}]')
    """
    name = b'"arms":'
    start = body.find(name) + len(name)
    if body.startswith(b" ", start):
        name, start = name + b" ", start + 1
    first = body[start : body.find(b"}]", start) + 2]
    if b"\\" in first or not first.startswith(b"["):
        return body, b""
    try:
        _VALUE.decode(first)
    except UNREADABLE:
        return body, b""
    pieces, done, place, n_others = list[bytes](), 0, 0, 0  # bytes.replace would take ten times as long
    while n_others <= len(pieces) and (place := body.find(name, place)) >= 0:
        place += len(name)
        if body.startswith(first, place):
            pieces.append(body[done:place])
            done = place = place + len(first)
        else:
            n_others += 1
    return _OUT.join([*pieces, body[done:]]), first


def _count_around(arms: bytes) -> int:
    """Count the pairs of a batch without those of its decisions; `arms` are the common ones."""
    return 2 + arms.count(b":") if arms else 1


def read_rewards(body: bytes) -> list[messages.RewardRequest | Problem]:
    """Return the elements of a batch of rewards, or why they are refused."""
    found = _decode_whole(_ALL_REWARDS, body)
    if found is not None and body.count(b":") == 1 + count_pairs(found.rewards):
        return [_try_to_take(one) for one in found.rewards]
    return [_try_to_decode(raw) for raw in read_elements(_OF_REWARDS, "rewards", body)[0]]


def _decode_whole(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    """Decode a body; None if it is not as it must be, or if that is hard to say."""
    if b"\\" in body:
        return None
    try:
        return decoder.decode(body)
    except UNREADABLE:
        return None


def _try_to_decode(raw: bytes) -> messages.RewardRequest | Problem:
    try:
        if len(raw) > LARGE_BODY:
            raise Problem(422, f"a reward has {len(raw):,} bytes; send decision_id, reward and reward_id alone")
        return _try_to_take(decode(_REWARD, raw))
    except Problem as problem:
        return problem


def _try_to_take(request: messages.RewardRequest) -> messages.RewardRequest | Problem:
    try:
        refuse_answers_of_visitors(request)
    except Problem as problem:
        return problem
    return request


def check_written(arms: list[messages.Arm], n_decisions: int) -> None:
    """Refuse common arms that a batch of this size would write too often: the event of each decision has them all."""
    size = sum(8 * len(arm.x or ()) + len(arm.id.encode()) for arm in arms)
    written, most = size * n_decisions, max(1, _MOST_WRITTEN // size)
    if n_decisions > most:
        raise Problem(
            422,
            f"{len(arms):,} arms of {size:,} bytes for {n_decisions} decisions would write {written:,} bytes "
            f"of arms (8 per number of x, and the ids) to the log, and at most {_MOST_WRITTEN:,} are written at once; "
            f"put the items into the catalogue and leave out arms, or send at most {most} decisions",
            field="arms",
        )


def check_scored(elements: Sequence[messages.DecisionRequest | Undecoded], n_arms: int) -> int:
    """Return how many arms are scored; refuse a batch of lists that would take minutes.

    `n_arms` are those of an element without arms of its own.
    """
    counted: dict[bytes, int] = {}
    n_scored = sum(_count_scored(one, n_arms, counted) for one in elements)
    if n_scored > _MOST_SCORED:
        raise Problem(
            422,
            f"every slot of a list is chosen from all arms, and the {len(elements)} decisions of this batch have "
            f"{n_scored:,} arms to score for their slots, at most {_MOST_SCORED:,} at once; "
            "send fewer, or shorter lists",
            field="decisions",
        )
    return n_scored


def _count_scored(element: messages.DecisionRequest | Undecoded, n_arms: int, counted: dict[bytes, int]) -> int:
    """Return the slots of an element times its arms; 0 if it cannot be read, and will be refused by itself.

    `counted` are the numbers of arms of elements before.

    >>> raws = b'{"user": "a", "k": 3}', b'{"k": 2, "arms": [{"id": "a"}, {"id": "b"}]}'
    >>> [_count_scored(Undecoded(None, raw), 50, {}) for raw in raws]
    [150, 4]
    """
    if isinstance(element, messages.DecisionRequest):
        return (element.k or 1) * (len(element.arms or ()) or n_arms)
    if element.request is not None:
        if (n := counted.get(element.sent)) is None:
            n = counted[element.sent] = element.sent.count(b'"id"') or n_arms
        return (element.request.k or 1) * n
    try:
        found = _OF_SLOTS.decode(element.sent)
    except UNREADABLE:
        return 0
    arms = bytes(found.arms)
    n = arms.count(b"{" if b"\\" in arms else b'"id"')  # a name may be written with escapes, a brace not
    return min(max(found.k or 1, 1), messages.MOST_SLOTS) * (n or n_arms)


def read_elements(decoder: msgspec.json.Decoder[Any], name: str, body: bytes) -> tuple[list[bytes], bytes | None]:
    """Return the elements of the list `name` and the field `arms`, undecoded; there are no other fields.

    >>> read_elements(_OF_REWARDS, "rewards", b'{"rewards": [{"reward": 1}, 2]}')
    ([b'{"reward": 1}', b'2'], None)
    >>> read_elements(_OF_DECISIONS, "decisions", b'{"arms": [{"id": "a"}], "decisions": [{}, {}]}')
    ([b'{}', b'{}'], b'[{"id": "a"}]')
    """
    try:
        found = decoder.decode(body)
    except UNREADABLE as error:
        # to name what is wrong in a large body takes seconds, in which nobody else is answered
        raise to_problem(error, *((body, decoder) if len(body) <= LARGE_BODY else ())) from None
    elements = [bytes(one) for one in getattr(found, name)]
    arms = bytes(getattr(found, "arms", b"")) or None
    if not _comes_once(body, name.encode(), elements, arms):
        if len(body) > LARGE_BODY:
            raise Problem(422, f"{name} comes twice, or its name is written with escapes; send it once", field=name)
        refuse_duplicates(body)
    return elements, arms


def _comes_once(body: bytes, name: bytes, elements: list[bytes], arms: bytes | None) -> bool:
    """Whether the body has nothing beside these elements and these arms; False also if that is hard to say."""
    wanted = b'{"%b":[%b]}' % (name, b"," * (len(elements) - 1))
    if arms is not None:
        before, _, after = body.partition(arms)
        if before.translate(None, _SPACE) == b'{"arms":':
            body, wanted = b"{" + after.lstrip(_SPACE).removeprefix(b","), wanted
        else:
            before, _, after = body.rpartition(arms)
            if after.translate(None, _SPACE) != b"}":
                return False
            body, wanted = before, wanted[:-1] + b',"arms":'
    around, place = [], 0
    for one in elements:
        start = body.index(one, place)
        around.append(body[place:start])
        place = start + len(one)
    return b"".join([*around, body[place:]]).translate(None, _SPACE) == wanted
