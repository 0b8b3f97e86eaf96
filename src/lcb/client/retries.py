"""When a call is sent again, after which pause, and when to give up: no connection and no clock of its own.

    steps = conversation(call, policy, clock, random)
    an Attempt  -> send it, hand back the Reply or Lost
    a Wait      -> sleep, hand back None
    return      -> the answer; ServiceError or Unreachable where there is none

The pause before try n + 2 is drawn from [0, pause * 2**n], at most `longest_pause`, on top of what Retry-After asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from lcb.client.answers import Answer
from lcb.client.calls import Call, Reply, problem
from lcb.errors import InputError, LCBError, ServiceError, Unreachable


@dataclass(frozen=True)
class Policy:
    """How long one try may take, how many more there may be, how long all may take together, in seconds."""

    timeout: float = 2.0
    retries: int = 4
    deadline: float = 10.0
    pause: float = 0.1
    longest_pause: float = 2.0

    def __post_init__(self) -> None:
        for name in ("timeout", "deadline", "pause", "longest_pause"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)}; give seconds above 0")
        if self.retries < 0:
            raise InputError(f"retries={self.retries}; give 0 or more")

    def wait(self, n: int, outcome: Reply | Lost, random: Callable[[], float]) -> float:
        """Seconds before the try that follows try `n`, counted from 0.

        >>> Policy(pause=0.1).wait(2, Lost("refused", sent=False), lambda: 0.5)
        0.2
        >>> Policy(pause=0.1).wait(0, Reply(503, b"", retry_after="3"), lambda: 0.5)
        3.05
        """
        drawn = random() * min(self.pause * 2.0**n, self.longest_pause)
        return drawn + (_seconds(outcome.retry_after) if isinstance(outcome, Reply) else 0.0)


@dataclass(frozen=True)
class Attempt:
    """Send this, and wait no longer than so many seconds."""

    call: Call[Any]
    seconds: float


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Lost:
    """There was no answer; `sent` where the service may have got the request nevertheless."""

    reason: str
    sent: bool


Steps = Generator[Attempt | Wait, Reply | Lost | None, Answer]


def conversation(
    call: Call[Answer], policy: Policy, clock: Callable[[], float], random: Callable[[], float]
) -> Steps[Answer]:
    """The tries of one call, one step at a time."""
    began = clock()
    end = began + policy.deadline
    unsure = False  # whether a try before this one may have been carried out
    n = 0
    while True:
        outcome = yield Attempt(call, min(policy.timeout, max(end - clock(), 0.001)))
        assert outcome is not None
        if isinstance(outcome, Reply) and (outcome.status not in ServiceError.AGAIN or outcome.status == call.also):
            return call.read(outcome, again=unsure)
        unsure |= outcome.status != 429 if isinstance(outcome, Reply) else outcome.sent
        wait = policy.wait(n, outcome, random)
        if n >= policy.retries or clock() + wait >= end:
            raise _error(call, outcome, n + 1, clock() - began)
        yield Wait(wait)
        n += 1


def _error(call: Call[Any], outcome: Reply | Lost, tries: int, seconds: float) -> LCBError:
    if isinstance(outcome, Reply):
        return problem(outcome)
    many = "1 try" if tries == 1 else f"{tries} tries"
    return Unreachable(
        f"{call.method} {call.path} had no answer in {many} and {seconds:.2g} s ({outcome.reason}); "
        "see whether the service runs there, or give it more time"
    )


def _seconds(retry_after: str | None) -> float:
    """What Retry-After asks: a number of seconds, or a date."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
