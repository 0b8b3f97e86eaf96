"""Many decisions or rewards in one request: each has its own outcome, and all that arrive together are one commit.

An element is decoded, checked and answered as if it had been sent alone at the same moment; the answer lists the
outcomes in the order of the request.  An element that is refused changes nothing and does not concern the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from lcb import messages
from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.decide.large import LARGE_BODY, LARGE_DECISION, decode_decision
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.strict_json import UNREADABLE, decode, refuse_duplicates, to_problem
from lcb.serve.web.endpoint import Ask, Reply

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ENCODER = msgspec.json.Encoder()
_SPACE = b" \t\n\r"


class _Decisions(Struct, forbid_unknown_fields=True):
    decisions: Annotated[list[Raw], Meta(min_length=1, max_length=messages.MOST_IN_BATCH)]


class _Rewards(Struct, forbid_unknown_fields=True):
    rewards: Annotated[list[Raw], Meta(min_length=1, max_length=messages.MOST_IN_BATCH)]


_OF_DECISIONS = msgspec.json.Decoder(_Decisions)
_OF_REWARDS = msgspec.json.Decoder(_Rewards)


class Batches:
    """The handlers of batches; `count` counts the further elements of a request against its caller's rate."""

    def __init__(self, service: Service, count: Callable[[Ask, int], None]) -> None:
        self.service, self.count = service, count

    async def decide_batch(self, ask: Ask) -> Reply:
        """Decide for many requests at once."""
        return await self._answer(ask, read_elements(_OF_DECISIONS, "decisions", ask.body), self._decide)

    async def reward_batch(self, ask: Ask) -> Reply:
        """Report many rewards at once."""
        return await self._answer(ask, read_elements(_OF_REWARDS, "rewards", ask.body), self._reward)

    async def _answer(self, ask: Ask, elements: list[bytes], handle: Callable[[bytes], Awaitable[bytes]]) -> Reply:
        self.count(ask, len(elements) - 1)
        catalogue = self.service.world.state.catalogue
        found: list[bytes] = []
        for part in split_work(elements, len(catalogue) * (catalogue.n_features or 0)):
            found += await asyncio.gather(*(_find_outcome(handle, one) for one in part))
        return Reply(b'{"outcomes":[' + b",".join(found) + b"]}")

    async def _decide(self, raw: bytes) -> bytes:
        if len(raw) > LARGE_BODY:
            return await self.service.decide(await self.service.large.run(decode_decision, raw))
        return await self.service.decide(decode(_DECISION, raw))

    async def _reward(self, raw: bytes) -> bytes:
        if len(raw) > LARGE_BODY:
            raise Problem(422, f"a reward has {len(raw):,} bytes; send decision_id, reward and reward_id alone")
        return await self.service.reward(decode(_REWARD, raw))


def split_work(elements: list[bytes], n_catalogue: int) -> Iterator[list[bytes]]:
    """Split a batch so that no part holds up other requests for long; most batches are one part, and one commit.

    `n_catalogue` is the number of features of all items, which an element without arms has to score.

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


def read_elements(decoder: msgspec.json.Decoder[Any], name: str, body: bytes) -> list[bytes]:
    """Return the elements of the list `name`, the only field of the body, undecoded.

    >>> read_elements(_OF_REWARDS, "rewards", b'{"rewards": [{"reward": 1}, 2]}')
    [b'{"reward": 1}', b'2']
    """
    try:
        elements = [bytes(one) for one in getattr(decoder.decode(body), name)]
    except UNREADABLE as error:
        # to name what is wrong in a large body takes seconds, in which nobody else is answered
        raise to_problem(error, *((body, decoder) if len(body) <= LARGE_BODY else ())) from None
    around, place = [], 0
    for one in elements:
        start = body.index(one, place)
        around.append(body[place:start])
        place = start + len(one)
    rest = b"".join([*around, body[place:]]).translate(None, _SPACE)
    if rest != b'{"%b":[%b]}' % (name.encode(), b"," * (len(elements) - 1)):
        if len(body) > LARGE_BODY:
            raise Problem(422, f"{name} comes twice, or its name is written with escapes; send it once", field=name)
        refuse_duplicates(body)
    return elements


async def _find_outcome(handle: Callable[[bytes], Awaitable[bytes]], raw: bytes) -> bytes:
    try:
        return b'{"status":200,"answer":%b}' % await handle(raw)
    except Problem as problem:
        refused = problem
    except StoreUnavailable as error:
        refused = Problem(503, str(error), retry_after=1)
    except StoreError as error:
        refused = Problem(503, str(error), retry_after=60)
    return _ENCODER.encode(messages.Refusal(refused.status, refused.detail, refused.field, refused.retry_after))
