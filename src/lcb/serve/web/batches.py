"""Many decisions or rewards in one request: each has its own outcome, and all that arrive together are one commit.

An element is decoded, checked and answered as if it had been sent alone at the same moment; the answer lists the
outcomes in the order of the request.  Where the states of users are large, they are several commits: the users of one
take few MB.  An element that is refused changes nothing and does not concern the others.
Decisions may share their arms, which are then read once, as are arms that come again, byte by byte the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from lcb import messages
from lcb.errors import StoreError
from lcb.serve.decide.large import LARGE_BODY, LARGE_DECISION, count_numbers, decode_decision
from lcb.serve.decide.validation import refuse_visitors
from lcb.serve.decide_many import Outcome, decide_many, find_user_now, reward_many, split_by_users
from lcb.serve.errors import Problem, forget_frames
from lcb.serve.event_ids import is_like_visitor
from lcb.serve.service import Service
from lcb.serve.strict_json import decode
from lcb.serve.threads import CALLER
from lcb.serve.web.batch_bodies import DECISION, Undecoded, check_scored, check_written, read_decisions, read_rewards
from lcb.serve.web.endpoint import Ask, Reply, build_problem
from lcb.serve.web.limits.answer_room import AnswerRoom
from lcb.serve.web.limits.caller_turns import CallerTurns

_ENCODER = msgspec.json.Encoder()
MOST_AT_ONCE = 8  # batches of one caller
_PROBABILITY = 24  # bytes of one in an answer, about: every decision answers with the distribution over its arms


class Batches:
    """The handlers of batches; `count` counts the further elements of a request against its caller's rate.

    `turns` are those of single requests: a batch whose users have to be loaded takes its turn with them.
    """

    def __init__(self, service: Service, count: Callable[[Ask, int], None], turns: CallerTurns | None = None) -> None:
        self.turns = CallerTurns() if turns is None else turns
        self.service, self.count, self.room = service, count, AnswerRoom()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by caller

    def _turn(self) -> asyncio.Semaphore:
        """Return what lets the caller of this request have `MOST_AT_ONCE` batches in progress; others wait for them."""
        caller = CALLER.get()
        found = self._turns.get(caller)
        if found is None:
            found = self._turns[caller] = asyncio.Semaphore(MOST_AT_ONCE)
        return found

    async def decide_batch(self, ask: Ask) -> Reply:
        """Decide for many requests at once."""
        async with self._turn():
            ask.check_there()
            return await self._decide_batch(ask)

    async def reward_batch(self, ask: Ask) -> Reply:
        """Report many rewards at once."""
        async with self._turn():
            ask.check_there()
            return await self._reward_batch(ask)

    async def _decide_batch(self, ask: Ask) -> Reply:
        """Decide a large batch in parts, so that it holds up no other request for long."""
        elements, raw_arms, plain = read_decisions(ask.body)
        self.count(ask, len(elements) - 1)
        arms = None if raw_arms is None else await self._read_arms(raw_arms)
        if arms is not None:
            check_written(arms, len(elements))
        n_scored = check_scored(elements, len(self.service.world.state.catalogue) if arms is None else len(arms))
        release = await self.room.take(n_scored * _PROBABILITY)
        try:
            if plain and arms is not None:
                reply = await self._decide_plain(elements, arms)
            else:
                reply = await self._decide_all(elements, arms)
        except BaseException:
            release()
            raise
        reply.release = release
        return reply

    async def _decide_plain(self, requests: Sequence[Any], arms: list[messages.Arm]) -> Reply:
        """Decide for requests with nothing but a user, all from the same arms."""
        for request in requests:
            request.arms = arms
        if any(is_like_visitor(request.user) for request in requests):
            return await self._decide_all(requests, arms)
        at_once = max(1, int(LARGE_DECISION / max(count_numbers(self.service.world.state, requests[0]), 1)))
        outcomes: list[Outcome] = []
        for start in range(0, len(requests), at_once):
            outcomes += await self._decide_in_parts(requests[start : start + at_once], plain=True)
        return self._reply("decided", outcomes)

    async def _decide_all(
        self, elements: Sequence[messages.DecisionRequest | Undecoded], arms: list[messages.Arm] | None
    ) -> Reply:
        outcomes: list[Outcome] = [b""] * len(elements)
        known, part, work = dict[bytes, list[messages.Arm] | None](), dict[int, messages.DecisionRequest](), 0.0
        request: messages.DecisionRequest | None
        counted: Any = ()  # the last arms whose numbers were counted
        numbers = 0
        for i, element in enumerate(elements):
            own = 0.0
            try:
                if isinstance(element, messages.DecisionRequest):
                    request = element
                else:
                    request, sent = element.request, element.sent
                    if request is not None and sent in known:
                        request.arms = known[sent]
                    else:
                        own = len(sent) / LARGE_BODY
                        request = await self._read(element, known)
                refuse_visitors(request)
            except Problem as problem:
                outcomes[i] = problem
                continue
            if request.arms is None:
                request.arms = arms
            if request.k is not None:
                own += count_numbers(self.service.world.state, request) / LARGE_DECISION
            else:
                if request.arms is not counted:
                    counted, numbers = request.arms, count_numbers(self.service.world.state, request)
                own += numbers / LARGE_DECISION
            if part and work + own > 1:
                await self._decide(part, outcomes)
                part, work = {}, 0.0
            part[i] = request
            work += own
        await self._decide(part, outcomes)
        return self._reply("decided", outcomes)

    async def _decide(self, part: dict[int, messages.DecisionRequest], outcomes: list[Outcome]) -> None:
        for i, answer in zip(part, await self._decide_in_parts(list(part.values())), strict=True):
            outcomes[i] = answer

    async def _decide_in_parts(
        self, requests: Sequence[messages.DecisionRequest], *, plain: bool = False
    ) -> list[Outcome]:
        """Decide in a row, or if the users take much memory, some of them after the others."""
        outcomes: list[Outcome] = []
        async for part in split_by_users(self.service, (one.user for one in requests), self._pause):
            outcomes += await decide_many(self.service, requests[part], plain=plain)
        return outcomes

    async def _pause(self) -> None:
        await self.turns.pause(CALLER.get())

    async def _read(
        self, element: Undecoded, known: dict[bytes, list[messages.Arm] | None]
    ) -> messages.DecisionRequest:
        """Return the request of an element whose arms are not among the `known` ones, to which they are added."""
        request, sent = element.request, element.sent
        if request is None:
            return await self._decode(sent)
        if sent:
            request.arms = known[sent] = await self._read_arms(sent)
        return request

    async def _read_arms(self, raw: bytes) -> list[messages.Arm] | None:
        return (await self._decode(b'{"user":"-","arms":%b}' % raw)).arms

    async def _decode(self, raw: bytes) -> messages.DecisionRequest:
        if len(raw) > LARGE_BODY:
            return await self.service.large.run(decode_decision, raw)
        return decode(DECISION, raw)

    async def _reward_batch(self, ask: Ask) -> Reply:
        requests = read_rewards(ask.body)
        self.count(ask, len(requests) - 1)
        asked = [one for one in requests if not isinstance(one, Problem)]
        missing = await self.service.fetch_slots([one.decision_id for one in asked])
        users = (find_user_now(self.service, one.decision_id) for one in asked)
        found: list[Outcome] = []
        async for part in split_by_users(self.service, users, self._pause):
            found += await reward_many(self.service, asked[part], missing)
        answers = iter(found)
        outcomes = [one if isinstance(one, Problem) else next(answers) for one in requests]
        return self._reply("rewarded", outcomes)

    def _reply(self, what: str, outcomes: list[Outcome]) -> Reply:
        n = sum(isinstance(one, bytes) for one in outcomes)
        self.service.n_in_batches[what] += n
        self.service.n_in_batches["refused"] += len(outcomes) - n
        if n == len(outcomes):
            answers: Any = outcomes
            return Reply(b'{"outcomes":[{"status":200,"answer":' + b'},{"status":200,"answer":'.join(answers) + b"}]}")
        return Reply(b'{"outcomes":[' + b",".join(map(self._write_outcome, outcomes)) + b"]}")

    def _write_outcome(self, outcome: Outcome) -> bytes:
        return b'{"status":200,"answer":%b}' % outcome if isinstance(outcome, bytes) else self._write_refusal(outcome)

    def _write_refusal(self, error: Problem | StoreError) -> bytes:
        problem = build_problem(error, self.service.places)
        forget_frames(error)
        return _ENCODER.encode(messages.Refusal(problem.status, problem.detail, problem.field, problem.retry_after))
