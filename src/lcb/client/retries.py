"""Retry rules: when a call is sent again, after which pause, and when to give up.

`Tries` neither sends nor sleeps; a client iterates over its steps and carries them out.

    an Attempt  -> send it, then set `outcome` to the Reply or Lost
    a Wait      -> sleep
    the end     -> `answer` is set; if no attempt got one, the iteration raises ServiceError or Unreachable

The pause after attempt n, counted from 0, is uniform on [0, min(pause * 2**n, longest_pause)], plus Retry-After.  It is
at most half of the time that is left, so that the last attempt ends with the deadline and not long before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, Generic

from lcb.client.calls import Answer, Call, Reply, read_problem
from lcb.errors import InputError, ServiceError, Unreachable


@dataclass(frozen=True)
class Policy:
    """Limits of a call: seconds per attempt (`timeout`), seconds for all (`deadline`), retries (None: any number)."""

    timeout: float = 2.0
    retries: int | None = None
    deadline: float = 10.0
    pause: float = 0.1
    longest_pause: float = 2.0

    def __post_init__(self) -> None:
        for name in ("timeout", "deadline", "pause", "longest_pause"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)}; give a number of seconds above 0")
        if self.retries is not None and self.retries < 0:
            raise InputError(f"retries={self.retries}; give 0 or more, or None for as many as the deadline allows")

    def wait(self, n: int, outcome: Reply | Lost, left: float, random: Callable[[], float]) -> float | None:
        """Return the seconds to wait after attempt `n`, counted from 0, with `left` seconds left; None to give up.

        >>> Policy(pause=0.1).wait(2, Lost("refused", sent=False), 9.0, lambda: 0.5)
        0.2
        >>> Policy(pause=0.1).wait(0, Reply(503, b"", retry_after="3"), 9.0, lambda: 0.5)
        3.05
        >>> Policy(pause=0.1).wait(0, Reply(503, b"", retry_after="3"), 2.0, lambda: 0.5) is None
        True
        """
        asked = _parse_retry_after(outcome.retry_after) if isinstance(outcome, Reply) else 0.0
        left -= asked
        if left < self.pause or (self.retries is not None and n >= self.retries):
            return None
        pause = random() * min(self.pause * 2.0 ** min(n, 30), self.longest_pause)
        return asked + min(pause, left / 2)


@dataclass(frozen=True)
class Attempt:
    """Send the call and wait at most this many seconds for the answer."""

    call: Call[Any]
    seconds: float


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Lost:
    """No answer came; `sent` if the service may have received the request."""

    reason: str
    sent: bool


@dataclass
class Tries(Generic[Answer]):
    """The steps of one call, and its answer."""

    call: Call[Answer]
    policy: Policy
    clock: Callable[[], float]
    random: Callable[[], float]
    outcome: Reply | Lost = field(init=False)
    answer: Answer = field(init=False)

    def __iter__(self) -> Iterator[Attempt | Wait]:
        call, policy, began = self.call, self.policy, self.clock()
        end = began + policy.deadline
        unsure = False  # whether an earlier attempt may have been carried out
        for n in count():
            yield Attempt(call, min(policy.timeout, max(end - self.clock(), 0.001)))
            outcome = self.outcome
            if isinstance(outcome, Reply) and (outcome.status not in ServiceError.AGAIN or outcome.status == call.also):
                self.answer = call.read(outcome, again=unsure)
                return
            unsure |= outcome.status != 429 if isinstance(outcome, Reply) else outcome.sent
            wait = policy.wait(n, outcome, end - self.clock(), self.random)
            if wait is None:
                raise build_error(call, outcome, n + 1, self.clock() - began)
            yield Wait(wait)


def build_error(call: Call[Any], outcome: Reply | Lost, tries: int, seconds: float) -> ServiceError | Unreachable:
    """Return the error of a call that is given up after this outcome."""
    if isinstance(outcome, Reply):
        return read_problem(outcome)
    many = "1 attempt" if tries == 1 else f"{tries} attempts"
    message = (
        f"{call.method} {call.path} got no answer in {many} and {seconds:.2g} s ({outcome.reason}); "
        "check that the service runs there, or raise timeout and deadline"
    )
    return Unreachable(message, outcome.reason)


def _parse_retry_after(retry_after: str | None) -> float:
    """Return the seconds that Retry-After asks to wait; it holds a number of seconds or a date."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
