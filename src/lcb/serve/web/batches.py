"""Many decisions or rewards in one request: each has its own outcome, and all that arrive together are one commit.

An element is decoded, checked and answered as if it had been sent alone at the same moment; the answer lists the
outcomes in the order of the request.  An element that is refused changes nothing and does not concern the others.
Decisions may share their arms, which are then read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from lcb import messages
from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.decide.large import LARGE_BODY, LARGE_DECISION, decode_decision
from lcb.serve.decide_many import decide_many
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.strict_json import UNREADABLE, count_pairs_of_request, decode, refuse_duplicates, to_problem
from lcb.serve.web.endpoint import Ask, Reply

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ENCODER = msgspec.json.Encoder()
_SPACE = b" \t\n\r"
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


_OF_SLOTS = msgspec.json.Decoder(_Slots)
_OF_DECISIONS = msgspec.json.Decoder(_Decisions)
_OF_REWARDS = msgspec.json.Decoder(_Rewards)


_UNDECODED: dict[str, tuple[Any, ...]] = {"arms": (Raw, Raw())}  # type and default of a field
_FIELDS = [
    (one.name, *_UNDECODED.get(one.name, (one.type,) if one.required else (one.type, None)))
    for one in msgspec.structs.fields(messages.DecisionRequest)
]
_AROUND: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct("Around", _FIELDS, forbid_unknown_fields=True)
)
_ARMS = [name for name, *_ in _FIELDS].index("arms")


class KnownArms:
    """Decodes the elements of a batch; arms that come again, byte by byte the same, are decoded and checked once."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[messages.Arm] | None] = {}

    def decode(self, raw: bytes) -> messages.DecisionRequest:
        """Do the same as `strict_json.decode`."""
        try:
            around = _AROUND.decode(raw)
        except UNREADABLE:
            return decode(_DECISION, raw)
        sent = bytes(around.arms)
        arms = self._known.get(sent)
        if arms is not None and b"\\" not in raw:
            values = list(msgspec.structs.astuple(around))
            values[_ARMS] = []
            request = messages.DecisionRequest(*values)
            if raw.count(b":") - sent.count(b":") == count_pairs_of_request(request):
                request.arms = arms
                return request
        request = decode(_DECISION, raw)
        self._known[sent] = request.arms
        return request


class Batches:
    """The handlers of batches; `count` counts the further elements of a request against its caller's rate."""

    def __init__(self, service: Service, count: Callable[[Ask, int], None]) -> None:
        self.service, self.count = service, count

    async def decide_batch(self, ask: Ask) -> Reply:
        """Decide for many requests at once."""
        elements, raw_arms = read_elements(_OF_DECISIONS, "decisions", ask.body)
        self.count(ask, len(elements) - 1)
        arms = None if raw_arms is None else (await self._decode(b'{"user":"-","arms":%b}' % raw_arms)).arms
        if arms is not None:
            _check_written(arms, len(elements))
        catalogue, found = self.service.world.state.catalogue, list[bytes]()
        n_arms = len(catalogue) if arms is None else len(arms)
        n_features = (catalogue.n_features or 0) if arms is None else len(arms[0].x or ()) or catalogue.n_features or 0
        _check_scored(elements, n_arms)
        for part in split_work(elements, n_arms * n_features):
            found += await self._decide(part, arms)
        return Reply(b'{"outcomes":[' + b",".join(found) + b"]}")

    async def _decide(self, part: list[bytes], arms: list[messages.Arm] | None) -> list[bytes]:
        """Return the outcomes of some elements, of which those without arms get `arms`."""
        outcomes: list[bytes] = [b""] * len(part)
        requests, known = {}, KnownArms()
        for i, raw in enumerate(part):
            try:
                request = requests[i] = known.decode(raw) if len(raw) <= LARGE_BODY else await self._decode(raw)
                if request.arms is None:
                    request.arms = arms
            except Problem as problem:
                outcomes[i] = _write_refusal(problem)
        answers = await decide_many(self.service, list(requests.values()))
        for i, answer in zip(requests, answers, strict=True):
            outcomes[i] = _write_answer(answer) if isinstance(answer, bytes) else _write_refusal(answer)
        return outcomes

    async def _decode(self, raw: bytes) -> messages.DecisionRequest:
        if len(raw) > LARGE_BODY:
            return await self.service.large.run(decode_decision, raw)
        return decode(_DECISION, raw)

    async def reward_batch(self, ask: Ask) -> Reply:
        """Report many rewards at once."""
        elements, _ = read_elements(_OF_REWARDS, "rewards", ask.body)
        self.count(ask, len(elements) - 1)
        found: list[bytes] = []
        for part in split_work(elements, 0):
            found += await asyncio.gather(*(self._find_outcome(one) for one in part))
        return Reply(b'{"outcomes":[' + b",".join(found) + b"]}")

    async def _find_outcome(self, raw: bytes) -> bytes:
        try:
            if len(raw) > LARGE_BODY:
                raise Problem(422, f"a reward has {len(raw):,} bytes; send decision_id, reward and reward_id alone")
            return _write_answer(await self.service.reward(decode(_REWARD, raw)))
        except (Problem, StoreError) as error:
            return _write_refusal(error)


def _check_written(arms: list[messages.Arm], n_decisions: int) -> None:
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


def _check_scored(elements: list[bytes], n_arms: int) -> None:
    """Refuse a batch of lists that would take minutes; `n_arms` are those of an element without arms of its own."""
    n_scored = sum(_count_scored(one, n_arms) for one in elements)
    if n_scored > _MOST_SCORED:
        raise Problem(
            422,
            f"every slot of a list is chosen from all arms, and the {len(elements)} decisions of this batch have "
            f"{n_scored:,} arms to score for their slots, at most {_MOST_SCORED:,} at once; "
            "send fewer, or shorter lists",
            field="decisions",
        )


def _count_scored(raw: bytes, n_arms: int) -> int:
    """Return the slots of an element times its arms; 0 if it cannot be read, and will be refused by itself.

    >>> _count_scored(b'{"user": "a", "k": 3}', 50), _count_scored(b'{"k": 2, "arms": [{"id": "a"}, {"id": "b"}]}', 50)
    (150, 4)
    """
    try:
        found = _OF_SLOTS.decode(raw)
    except UNREADABLE:
        return 0
    return min(max(found.k or 1, 1), messages.MOST_SLOTS) * (bytes(found.arms).count(b'"id"') or n_arms)


def _write_answer(answer: bytes) -> bytes:
    return b'{"status":200,"answer":%b}' % answer


def _write_refusal(error: Problem | StoreError) -> bytes:
    if isinstance(error, StoreError):
        error = Problem(503, str(error), retry_after=1 if isinstance(error, StoreUnavailable) else 60)
    return _ENCODER.encode(messages.Refusal(error.status, error.detail, error.field, error.retry_after))


def split_work(elements: list[bytes], n_catalogue: int) -> Iterator[list[bytes]]:
    """Split a batch so that no part holds up other requests for long; most batches are one part, and one commit.

    `n_catalogue` is the number of features of all items, or of the shared arms, which an element without arms scores.

    >>> [len(part) for part in split_work([b"1"] * 5, n_catalogue=20_000)], list(split_work([b"1"], 0))
    ([2, 2, 1], [[b'1']])
    """
    most = max(1, LARGE_DECISION // max(n_catalogue, 1))
    part: list[bytes] = []
    size = 0
    for one in elements:
        if part and (len(part) == most or size + len(one) > LARGE_BODY):
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one)
    yield part


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
