"""`Client` and `AsyncClient`: the same verbs over two connections, with one set of calls and of rules when to retry."""

from __future__ import annotations

import asyncio
import os
import random as chance
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self
from urllib.parse import urlsplit

from lcb.client import calls
from lcb.client.answers import (
    ActivateAnswer,
    Answer,
    DecisionAnswer,
    EraseAnswer,
    Health,
    Item,
    ItemsAnswer,
    ItemsList,
    ModelsAnswer,
    RetrainingAnswer,
    RewardAnswer,
    TrialAnswer,
    UserAnswer,
)
from lcb.client.calls import Arms, Call, Reply
from lcb.client.retries import Attempt, Lost, Policy, conversation
from lcb.errors import InputError, MissingExtra, ServiceError

try:
    import httpx
except ImportError:
    raise MissingExtra("httpx", "client") from None

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Client:
    """The service at `url`; may be shared by threads, and closed or used with `with`.

    A try takes at most `timeout` seconds to connect, to send and to answer each; after one that was lost, or was
    answered by 429, 502, 503 or 504, up to `retries` more follow as long as all of them fit into `deadline`.

    >>> def service(request):  # a service that is busy at first
    ...     waits.append(request)
    ...     return httpx.Response(503 if len(waits) == 1 else 200, json={"decision_id": "d", "reward": 1.0})
    >>> waits = []
    >>> with Client("http://service", transport=httpx.MockTransport(service), sleep=waits.append) as client:
    ...     client.reward("d", 1)
    RewardAnswer(decision_id='d', reward=1.0)
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 2.0, retries: int = 4, deadline: float = 10.0,
        transport: httpx.BaseTransport | None = None, sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = chance.random, clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.policy = Policy(timeout, retries, deadline)
        self._http = httpx.Client(base_url=checked(url), headers=headers(key), transport=transport)
        self._sleep, self._random, self._clock, self._new_id = sleep, random, clock, new_id or time_ordered_id

    def decide(
        self, user: str, arms: Arms | None = None, *, x: Sequence[float] | None = None, k: int | None = None,
        chosen: str | None = None, chosen_propensity: float | None = None, decision_id: str | None = None,
    ) -> DecisionAnswer:  # fmt: skip
        """What to show: `arms` are ids with their features, or ids of the catalogue; without them all of it.

        `x` are the user's own features, `k` asks for a list of slots; `chosen` is an arm that was taken elsewhere.
        """
        id = decision_id or self._new_id()
        return self._ask(calls.decide(user, arms, x, k, chosen, chosen_propensity, id))

    def reward(self, decision_id: str, reward: float, *, reward_id: str | None = None) -> RewardAnswer:
        """What came of a decision, or of a slot by its reward_id; the same again changes nothing."""
        return self._ask(calls.reward(decision_id, reward, reward_id))

    def rewards(self, rewards: Mapping[str, float]) -> dict[str, str]:
        """Many, one after another; those that the service has with another value are returned, in its words."""
        refused = {}
        for decision_id, reward in rewards.items():
            try:
                self.reward(decision_id, reward)
            except ServiceError as error:
                refused[decision_id] = conflict(error)
        return refused

    def put_items(self, items: Iterable[Item], *, replace: bool = False, remove: Iterable[str] = ()) -> ItemsAnswer:
        """Items to add or change; with `replace`, all others go."""
        return self._ask(calls.put_items(items, replace, remove))

    def items(self) -> ItemsList:
        """The catalogue."""
        return self._ask(calls.items())

    def user(self, user: str) -> UserAnswer:
        """What is known of one user."""
        return self._ask(calls.user(user))

    def erase(self, user: str) -> EraseAnswer:
        """Forget a person."""
        return self._ask(calls.erase(user))

    def models(self) -> ModelsAnswer:
        """The model versions, and how far the training of the next is."""
        return self._ask(calls.models())

    def retrain(self) -> RetrainingAnswer:
        """Learn a new version from the whole log, in the background."""
        return self._ask(calls.retrain())

    def activate(self, version: int, *, reason: str | None = None) -> ActivateAnswer:
        """Serve newcomers by this version; the log keeps the reason."""
        return self._ask(calls.activate(version, reason))

    def trials(self) -> TrialAnswer:
        """The recommenders side by side."""
        return self._ask(calls.trials())

    def health(self) -> Health:
        """Whether the service answers and can write."""
        return self._ask(calls.health())

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, call: Call[Answer]) -> Answer:
        steps = conversation(call, self.policy, self._clock, self._random)
        outcome: Reply | Lost | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Attempt):
                    outcome = self._try(step)
                else:
                    outcome = None
                    self._sleep(step.seconds)
        except StopIteration as done:
            answer: Answer = done.value
            return answer

    def _try(self, attempt: Attempt) -> Reply | Lost:
        call = attempt.call
        try:
            return reply(self._http.request(call.method, call.path, content=call.body, timeout=attempt.seconds))
        except httpx.TransportError as error:
            return lost(error)


class AsyncClient:
    """As `Client`, every verb awaited; used with `async with`.  `timeout` and `deadline` are kept to exactly."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 2.0, retries: int = 4, deadline: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = chance.random, clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.policy = Policy(timeout, retries, deadline)
        self._http = httpx.AsyncClient(base_url=checked(url), headers=headers(key), transport=transport)
        self._sleep, self._random, self._clock, self._new_id = sleep, random, clock, new_id or time_ordered_id

    async def decide(
        self, user: str, arms: Arms | None = None, *, x: Sequence[float] | None = None, k: int | None = None,
        chosen: str | None = None, chosen_propensity: float | None = None, decision_id: str | None = None,
    ) -> DecisionAnswer:  # fmt: skip
        id = decision_id or self._new_id()
        return await self._ask(calls.decide(user, arms, x, k, chosen, chosen_propensity, id))

    async def reward(self, decision_id: str, reward: float, *, reward_id: str | None = None) -> RewardAnswer:
        return await self._ask(calls.reward(decision_id, reward, reward_id))

    async def rewards(self, rewards: Mapping[str, float]) -> dict[str, str]:
        refused = {}
        for decision_id, reward in rewards.items():
            try:
                await self.reward(decision_id, reward)
            except ServiceError as error:
                refused[decision_id] = conflict(error)
        return refused

    async def put_items(
        self, items: Iterable[Item], *, replace: bool = False, remove: Iterable[str] = ()
    ) -> ItemsAnswer:
        return await self._ask(calls.put_items(items, replace, remove))

    async def items(self) -> ItemsList:
        return await self._ask(calls.items())

    async def user(self, user: str) -> UserAnswer:
        return await self._ask(calls.user(user))

    async def erase(self, user: str) -> EraseAnswer:
        return await self._ask(calls.erase(user))

    async def models(self) -> ModelsAnswer:
        return await self._ask(calls.models())

    async def retrain(self) -> RetrainingAnswer:
        return await self._ask(calls.retrain())

    async def activate(self, version: int, *, reason: str | None = None) -> ActivateAnswer:
        return await self._ask(calls.activate(version, reason))

    async def trials(self) -> TrialAnswer:
        return await self._ask(calls.trials())

    async def health(self) -> Health:
        return await self._ask(calls.health())

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, call: Call[Answer]) -> Answer:
        steps = conversation(call, self.policy, self._clock, self._random)
        outcome: Reply | Lost | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Attempt):
                    outcome = await self._try(step)
                else:
                    outcome = None
                    await self._sleep(step.seconds)
        except StopIteration as done:
            answer: Answer = done.value
            return answer

    async def _try(self, attempt: Attempt) -> Reply | Lost:
        call = attempt.call
        try:
            async with asyncio.timeout(attempt.seconds):
                return reply(await self._http.request(call.method, call.path, content=call.body, timeout=None))
        except TimeoutError:
            return Lost(f"nothing within {attempt.seconds:.2g} s", sent=True)
        except httpx.TransportError as error:
            return lost(error)


def checked(url: str) -> str:
    """The address of a service, or InputError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"url {url!r}; give an address such as http://127.0.0.1:8000")
    return url


def headers(key: str | None) -> dict[str, str]:
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise InputError("the key has characters no key has; give it as `lcb keys create` printed it")
    return {"content-type": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})


def reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.content, response.headers.get("retry-after"))


def lost(error: httpx.TransportError) -> Lost:
    return Lost(str(error) or type(error).__name__, sent=not isinstance(error, _UNSENT))


def conflict(error: ServiceError) -> str:
    """What the service said of a reward it has with another value; anything else is raised."""
    if error.status != 409:
        raise error
    return error.detail


def time_ordered_id() -> str:
    """An id that nobody else makes, after all that were made before it, to the millisecond."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(7).hex()}"
