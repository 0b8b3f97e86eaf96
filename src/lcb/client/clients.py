"""`Client` and `AsyncClient`: the same methods over two kinds of connection, sharing calls and retry rules."""

from __future__ import annotations

import asyncio
import os
import random as chance
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from lcb import messages
from lcb.client import batches, bounds, calls
from lcb.client.batches import Batch, BatchTries, DecisionOutcome, Outcome, RewardOutcome
from lcb.client.bounds import Body
from lcb.client.calls import Answer, Arms, Call, Reply
from lcb.client.retries import Attempt, Lost, Policy, Tries
from lcb.errors import InputError, ServiceError

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Client:
    """A connection to the service at `url`.  Threads may share it; close it, or use it in a `with` statement.

    An attempt may take `timeout` seconds as a whole, from the connection to the last byte of the answer.  The lookup of
    the host's name is not bounded, and each address of a host that has several may take as long to connect.  An attempt
    that gets no answer, or status 429, 502, 503 or 504, is repeated until `deadline` seconds have passed, or up to
    `retries` times.  An answer of more than 64 MB (`most_bytes`), with a Content-Encoding or with another id than was
    sent is refused with a ServiceError, and so is a redirect.

    >>> def service(request):  # busy at first
    ...     waits.append(request)
    ...     return httpx.Response(503 if len(waits) == 1 else 200, json={"decision_id": "d", "reward": 1.0})
    >>> waits = []
    >>> with Client("http://service", transport=httpx.MockTransport(service), sleep=waits.append) as client:
    ...     client.reward("d", 1)
    RewardAnswer(decision_id='d', reward=1.0)
    """

    most_bytes = bounds.MOST_BYTES  # of an answer

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 2.0, deadline: float = 10.0,
        retries: int | None = None, transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = chance.random, clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.policy = Policy(timeout, retries, deadline)
        self._http = httpx.Client(base_url=check_url(url), headers=build_headers(key), transport=transport)
        self._sleep, self._random, self._clock, self._new_id = sleep, random, clock, new_id or create_id

    def decide(
        self, user: str, arms: Arms | None = None, *, x: Sequence[float] | None = None, k: int | None = None,
        chosen: str | None = None, chosen_propensity: float | None = None, decision_id: str | None = None,
        exclude: Iterable[str] | None = None, seen: str | None = None, at_most: int | None = None,
    ) -> messages.DecisionAnswer:  # fmt: skip
        """Ask which arm to show.

        `arms` maps ids to features, or lists ids of the catalogue; without it the whole catalogue is offered.  `x` are
        features of the user, `k` asks for a list of k arms, `chosen` reports an arm that the caller chose itself.
        Rules: not the ids in `exclude`; with `seen="exclude"` not what this user was shown, with
        `seen="exclude-taken"` not what this user took; `at_most` so many arms of one category in a list.
        """
        id = self._new_id() if decision_id is None else decision_id
        call = calls.decide(
            user, arms, id, x=x, k=k, chosen=chosen, chosen_propensity=chosen_propensity,
            exclude=exclude, seen=seen, at_most=at_most,
        )  # fmt: skip
        return self.send(call)

    def reward(self, decision_id: str, reward: float, *, reward_id: str | None = None) -> messages.RewardAnswer:
        """Send the reward of a decision, or of a slot by its reward_id; sending it again changes nothing."""
        return self.send(calls.reward(decision_id, reward, reward_id))

    def decide_batch(self, decisions: Iterable[Mapping[str, Any]], arms: Arms | None = None) -> list[DecisionOutcome]:
        """Ask for many decisions at once, each a mapping of the arguments of `decide`; return their outcomes in order.

        `arms` are the arms of all that have none of their own.  An outcome has `status` 200 and the `answer`, or the
        status and `detail` of a refusal, and in both cases the `decision_id`.  More than 100 are sent as several
        requests.  Those that find the service busy (429, 502, 503, 504) are sent again as single decisions are, with
        the same ids.  An outcome that has such a status in the end may be sent again later, with its id; one without
        any answer has 503.  If nothing of the batch was answered, the error is raised, and its `outcomes` have the ids.
        """
        return self.send_batch(batches.decide_batch(decisions, arms, self._new_id))

    def reward_batch(self, rewards: batches.Rewards) -> list[RewardOutcome]:
        """Send many rewards at once, under the rules of `decide_batch`; return their outcomes in order.

        `rewards` maps decision ids (of a slot: its reward_id) to rewards, or lists mappings of the arguments of
        `reward`.
        """
        return self.send_batch(batches.reward_batch(rewards))

    def rewards(self, rewards: Mapping[str, float]) -> dict[str, str]:
        """Send many rewards, one request each; return the ids that conflict with an earlier reward, with the reason."""
        refused = {}
        for decision_id, reward in rewards.items():
            try:
                self.reward(decision_id, reward)
            except ServiceError as error:
                refused[decision_id] = read_conflict(error)
        return refused

    def put_items(
        self, items: Iterable[messages.Item], *, replace: bool = False, remove: Iterable[str] = ()
    ) -> messages.ItemsAnswer:
        """Add or change items of the catalogue; `replace` removes all others."""
        return self.send(calls.put_items(items, replace, remove))

    def items(self) -> messages.ItemsList:
        """Return the catalogue."""
        return self.send(calls.items())

    def user(self, user: str) -> messages.UserAnswer:
        """Return the state of one user."""
        return self.send(calls.user(user))

    def erase(self, user: str) -> messages.EraseAnswer:
        """Erase a user: their events lose everything personal."""
        return self.send(calls.erase(user))

    def models(self) -> messages.ModelsAnswer:
        """Return the model versions and the progress of learning the next."""
        return self.send(calls.models())

    def retrain(self) -> messages.RetrainingAnswer:
        """Start learning a version from the whole log, in the background."""
        return self.send(calls.retrain())

    def activate(self, version: int, *, reason: str | None = None) -> messages.ActivateAnswer:
        """Serve new users with this version; the log keeps the reason."""
        return self.send(calls.activate(version, reason))

    def trials(self) -> messages.TrialAnswer:
        """Return the results of the recommenders side by side."""
        return self.send(calls.trials())

    def health(self) -> messages.Health:
        """Return whether the service is ready: it answers and can write."""
        return self.send(calls.health())

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, call: Call[Answer]) -> Answer:
        """Send a call, with retries, and return its answer."""
        tries = Tries(call, self.policy, self._clock, self._random)
        self._carry_out(tries)
        return tries.answer

    def send_batch(self, batch: Batch[Outcome]) -> list[Outcome]:
        """Send a batch, with retries of its elements, and return their outcomes."""
        tries = BatchTries(batch, self.policy, self._clock, self._random)
        self._carry_out(tries)
        return tries.answer

    def _carry_out(self, tries: Tries[Any] | BatchTries[Any]) -> None:
        for step in tries:
            if isinstance(step, Attempt):
                tries.outcome = self._attempt(step)
            else:
                self._sleep(step.seconds)

    def _attempt(self, attempt: Attempt) -> Reply | Lost:
        call = attempt.call
        try:
            with (
                bounds.limit(attempt.seconds) as extensions,
                self._http.stream(call.method, call.path, content=call.body, extensions=extensions) as response,
            ):
                body = Body(response, self.most_bytes)
                pieces = response.iter_bytes()
                while not body.full and (piece := next(pieces, None)) is not None:
                    body.add(piece)
                    bounds.left()
                return body.build_reply()
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            return describe_timeout(attempt)
        except httpx.TransportError as error:
            return describe_loss(error)


class AsyncClient:
    """As `Client`, with methods to be awaited, for `async with`; the lookup of the host's name is bounded as well."""

    most_bytes = bounds.MOST_BYTES  # of an answer

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 2.0, deadline: float = 10.0,
        retries: int | None = None, transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep, random: Callable[[], float] = chance.random,
        clock: Callable[[], float] = time.monotonic, new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.policy = Policy(timeout, retries, deadline)
        self._http = httpx.AsyncClient(base_url=check_url(url), headers=build_headers(key), transport=transport)
        self._sleep, self._random, self._clock, self._new_id = sleep, random, clock, new_id or create_id

    async def decide(
        self, user: str, arms: Arms | None = None, *, x: Sequence[float] | None = None, k: int | None = None,
        chosen: str | None = None, chosen_propensity: float | None = None, decision_id: str | None = None,
        exclude: Iterable[str] | None = None, seen: str | None = None, at_most: int | None = None,
    ) -> messages.DecisionAnswer:  # fmt: skip
        id = self._new_id() if decision_id is None else decision_id
        call = calls.decide(
            user, arms, id, x=x, k=k, chosen=chosen, chosen_propensity=chosen_propensity,
            exclude=exclude, seen=seen, at_most=at_most,
        )  # fmt: skip
        return await self.send(call)

    async def reward(self, decision_id: str, reward: float, *, reward_id: str | None = None) -> messages.RewardAnswer:
        return await self.send(calls.reward(decision_id, reward, reward_id))

    async def decide_batch(
        self, decisions: Iterable[Mapping[str, Any]], arms: Arms | None = None
    ) -> list[DecisionOutcome]:
        return await self.send_batch(batches.decide_batch(decisions, arms, self._new_id))

    async def reward_batch(self, rewards: batches.Rewards) -> list[RewardOutcome]:
        return await self.send_batch(batches.reward_batch(rewards))

    async def rewards(self, rewards: Mapping[str, float]) -> dict[str, str]:
        refused = {}
        for decision_id, reward in rewards.items():
            try:
                await self.reward(decision_id, reward)
            except ServiceError as error:
                refused[decision_id] = read_conflict(error)
        return refused

    async def put_items(
        self, items: Iterable[messages.Item], *, replace: bool = False, remove: Iterable[str] = ()
    ) -> messages.ItemsAnswer:
        return await self.send(calls.put_items(items, replace, remove))

    async def items(self) -> messages.ItemsList:
        return await self.send(calls.items())

    async def user(self, user: str) -> messages.UserAnswer:
        return await self.send(calls.user(user))

    async def erase(self, user: str) -> messages.EraseAnswer:
        return await self.send(calls.erase(user))

    async def models(self) -> messages.ModelsAnswer:
        return await self.send(calls.models())

    async def retrain(self) -> messages.RetrainingAnswer:
        return await self.send(calls.retrain())

    async def activate(self, version: int, *, reason: str | None = None) -> messages.ActivateAnswer:
        return await self.send(calls.activate(version, reason))

    async def trials(self) -> messages.TrialAnswer:
        return await self.send(calls.trials())

    async def health(self) -> messages.Health:
        return await self.send(calls.health())

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, call: Call[Answer]) -> Answer:
        tries = Tries(call, self.policy, self._clock, self._random)
        await self._carry_out(tries)
        return tries.answer

    async def send_batch(self, batch: Batch[Outcome]) -> list[Outcome]:
        tries = BatchTries(batch, self.policy, self._clock, self._random)
        await self._carry_out(tries)
        return tries.answer

    async def _carry_out(self, tries: Tries[Any] | BatchTries[Any]) -> None:
        for step in tries:
            if isinstance(step, Attempt):
                tries.outcome = await self._attempt(step)
            else:
                await self._sleep(step.seconds)

    async def _attempt(self, attempt: Attempt) -> Reply | Lost:
        call = attempt.call
        try:
            async with (
                asyncio.timeout(attempt.seconds),
                self._http.stream(call.method, call.path, content=call.body, timeout=None) as response,
            ):
                body = Body(response, self.most_bytes)
                pieces = response.aiter_bytes()
                while not body.full and (piece := await anext(pieces, None)) is not None:
                    body.add(piece)
                return body.build_reply()
        except TimeoutError:
            return describe_timeout(attempt)
        except httpx.TransportError as error:
            return describe_loss(error)


def check_url(url: str) -> str:
    """Return `url`; raise InputError if it is not the address of a service."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"url {url!r} is not an address of a service; give one such as http://127.0.0.1:8000")
    return url


def build_headers(key: str | None) -> dict[str, str]:
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise InputError("the key has characters that keys do not have; give it as `lcb keys create` printed it")
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    return headers | ({} if key is None else {"authorization": f"Bearer {key}"})


def describe_timeout(attempt: Attempt) -> Lost:
    return Lost(f"no answer within {attempt.seconds:.2g} s", sent=True)


def describe_loss(error: httpx.TransportError) -> Lost:
    return Lost(str(error) or type(error).__name__, sent=not isinstance(error, _UNSENT))


def read_conflict(error: ServiceError) -> str:
    """Return why a reward conflicts with an earlier one; raise any other error."""
    if error.status != 409:
        raise error
    return error.detail


def create_id() -> str:
    """Return a unique id; ids sort by the millisecond they were created in."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(7).hex()}"
