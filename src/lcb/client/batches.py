"""Batches: many decisions or rewards in few requests.

Elements for which the service is busy are sent again under the rules of `retries`, with the ids of the first attempt.
The next part is sent after that, unless nothing of this one was answered.  What has failed in the end is an outcome as
well, with the id under which it can be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import count
from typing import Any, Generic, TypeVar

from lcb import messages
from lcb.client.calls import Arms, Call, Reply, build_decision, build_reward, convert_arms, encode
from lcb.client.retries import Attempt, Lost, Policy, Wait, build_error
from lcb.errors import InputError, ServiceError, Unreachable

_OF_DECIDE = tuple(signature(build_decision).parameters)  # arguments that an element may have
_OF_REWARD = tuple(signature(build_reward).parameters)
Rewards = Mapping[str, float] | Iterable[Mapping[str, Any]]
Steps = Generator[Attempt | Wait, None, None]


class DecisionOutcome(messages.DecisionOutcome, frozen=True, omit_defaults=True):
    """The answer of one decision of a batch (`status` 200), or why it was refused; `decision_id` is as it was sent."""

    decision_id: str = ""


class RewardOutcome(messages.RewardOutcome, frozen=True, omit_defaults=True):
    """The answer of one reward of a batch (`status` 200), or why it was refused; `decision_id` is as it was sent."""

    decision_id: str = ""


Outcome = TypeVar("Outcome", DecisionOutcome, RewardOutcome)


@dataclass(frozen=True)
class Batch(Generic[Outcome]):
    """Elements as JSON with their ids; `before` is what a body has before its elements."""

    path: str
    before: bytes
    elements: Sequence[bytes]
    ids: Sequence[str]
    answer: type[messages.DecisionsAnswer] | type[messages.RewardsAnswer]
    outcome: type[Outcome]

    def build_call(self, places: Iterable[int]) -> Call[Any]:
        """Return the request for the elements at these places."""
        body = self.before + b",".join(self.elements[i] for i in places) + b"]}"
        return Call[Any]("POST", self.path, body, self.answer)

    def read(self, call: Call[Any], reply: Reply, places: Sequence[int]) -> dict[int, Outcome]:
        """Return the outcomes in the answer to `build_call(places)`, by place."""
        outcomes = call.read(reply).outcomes
        if len(outcomes) != len(places):
            words = f"{call.method} {call.path} got {len(outcomes)} outcomes for {len(places)} elements; check the url"
            raise ServiceError(reply.status, words)
        for i, one in zip(places, outcomes, strict=True):
            if one.answer is not None:
                call.check_id(reply, one.answer, self.ids[i])
            elif one.status < 400:
                raise call.refuse(reply, f"no answer for {self.ids[i]!r:.80} in an outcome with status {one.status}")
        return {
            i: self.outcome(one.status, one.answer, one.detail, one.field, one.retry_after, self.ids[i])
            for i, one in zip(places, outcomes, strict=True)
        }

    def refuse(self, place: int, error: ServiceError | Unreachable) -> Outcome:
        """Return the outcome of an element whose request failed as a whole; an answer that cannot be lcb's is 502."""
        status, name = (error.status, error.field) if isinstance(error, ServiceError) else (503, None)
        status = status if status >= 400 else 502
        return self.outcome(status, None, str(error), name, None, self.ids[place])

    def leave(self, place: int, last: Outcome) -> Outcome:
        """Return the outcome of an element that is not sent, because of what the last one before it got."""
        return self.outcome(last.status, None, f"not sent: {last.detail}", None, last.retry_after, self.ids[place])


def decide_batch(
    decisions: Iterable[Mapping[str, Any]], arms: Arms | None, new_id: Callable[[], str]
) -> Batch[DecisionOutcome]:
    """Return many decisions, each a mapping of the arguments of `decide`; ids are added."""
    elements, ids = [], []
    for i, one in enumerate(decisions):
        _check_arguments(i, one, "decide", _OF_DECIDE, needed=("user",))
        id = one.get("decision_id")
        given = {"arms": None, **one, "decision_id": new_id() if id is None else id}
        elements.append(encode(build_decision(**given)))
        ids.append(given["decision_id"])
    before = b"{" if arms is None else encode({"arms": convert_arms(arms)})[:-1] + b","
    path, answer = "/v1/decisions:batch", messages.DecisionsAnswer
    return Batch(path, before + b'"decisions":[', elements, ids, answer, DecisionOutcome)


def reward_batch(rewards: Rewards) -> Batch[RewardOutcome]:
    """Return many rewards: a mapping of decision ids to rewards, or mappings of the arguments of `reward`."""
    if isinstance(rewards, Mapping):
        rewards = [{"decision_id": id, "reward": reward} for id, reward in rewards.items()]
    elements, ids = [], []
    for i, one in enumerate(rewards):
        _check_arguments(i, one, "reward", _OF_REWARD, needed=("decision_id", "reward"))
        elements.append(encode(build_reward(**one)))
        ids.append(one["decision_id"])
    path, answer = "/v1/rewards:batch", messages.RewardsAnswer
    return Batch(path, b'{"rewards":[', elements, ids, answer, RewardOutcome)


def _check_arguments(i: int, one: Any, call: str, names: Sequence[str], needed: Sequence[str]) -> None:
    """Raise InputError if element `i` of a batch is not a mapping of the arguments of a call."""
    what = {"decide": "decision"}.get(call, call)
    if not isinstance(one, Mapping):
        raise InputError(f"{what} {i} is {one!r:.80}; give a mapping of the arguments of {call}")
    wrong = [f"{name!r} is no argument of {call}" for name in one if name not in names]
    wrong += [f"without {name}" for name in needed if name not in one]
    if wrong:
        raise InputError(f"{what} {i} is {one!r:.80}, {wrong[0]}; give the arguments of {call}: {', '.join(names)}")


@dataclass
class BatchTries(Generic[Outcome]):
    """The steps of a batch, as `retries.Tries` has those of one call, and its outcomes in order.

    Each part of a batch has the retries and the deadline of one call.
    """

    batch: Batch[Outcome]
    policy: Policy
    clock: Callable[[], float]
    random: Callable[[], float]
    outcome: Reply | Lost = field(init=False)
    answer: list[Outcome] = field(init=False)

    def __iter__(self) -> Iterator[Attempt | Wait]:
        n, most, found = len(self.batch.ids), messages.MOST_IN_BATCH, dict[int, Outcome]()
        answered, error = False, None
        for start in range(0, n, most):
            part = range(start, min(start + most, n))
            try:
                yield from self._send(part, found)
            except (ServiceError, Unreachable) as failed:
                error = failed
            busy = [i for i in part if i not in found or is_busy(found[i])]
            answered |= len(busy) < len(part)
            if error is not None:
                found |= {i: self.batch.refuse(i, error) for i in busy}
            if error is not None or len(busy) == len(part):
                found |= {i: self.batch.leave(i, found[part[-1]]) for i in range(part.stop, n)}
                break
        self.answer = [found[i] for i in range(n)]
        if error is not None and not answered:
            error.outcomes = tuple(self.answer)
            raise error

    def _send(self, part: Sequence[int], found: dict[int, Outcome]) -> Steps:
        """Send a part until none of it is busy, or it is time to give up; raise if an attempt failed as a whole."""
        policy, began, left = self.policy, self.clock(), list(part)
        end = began + policy.deadline
        for n in count():
            call = self.batch.build_call(left)
            yield Attempt(call, min(policy.timeout, max(end - self.clock(), 0.001)))
            outcome, answered = self.outcome, False
            if isinstance(outcome, Reply) and outcome.status not in ServiceError.AGAIN:
                found |= self.batch.read(call, outcome, left)
                left, answered = [i for i in left if is_busy(found[i])], True
                if not left:
                    return
                outcome = Reply(503, b"", str(max(found[i].retry_after or 0 for i in left)))
            wait = policy.wait(n, outcome, end - self.clock(), self.random)
            if wait is None:
                if answered:
                    return
                raise build_error(call, outcome, n + 1, self.clock() - began)
            yield Wait(wait)


def is_busy(outcome: messages.DecisionOutcome | messages.RewardOutcome) -> bool:
    """Whether the same element may succeed later."""
    return outcome.status in ServiceError.AGAIN
