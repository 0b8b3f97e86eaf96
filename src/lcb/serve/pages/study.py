"""The user study of the paper: visitors are assigned at random, see twenty headlines each, and open some of them.

Only visitors who have answered all twenty count.  Simulated visitors come from a `Simulation` (`lcb serve` uses that of
`lcb.demo`); they are recognised by their names and also counted separately.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import structlog
from msgspec import Meta, Struct

from lcb.errors import InputError, LCBError
from lcb.evaluate.two_groups import Group
from lcb.messages import RewardRequest
from lcb.serve.errors import Problem
from lcb.serve.event_ids import is_visitor
from lcb.serve.pages.visitors import N_STEPS, Visitors
from lcb.serve.state.users import User
from lcb.serve.strict_json import decode
from lcb.serve.web.endpoint import Ask, Reply, json_reply
from lcb.storage.store.base import Row

PAPER = (("population", 0.196, 0.096, 5), ("lcb", 0.380, 0.076, 5))
_PREFIX, _SIMULATED = "study-", "study-simulated-"
_PAGE = 1000
_MOST_VISITORS, _AT_ONCE = 1000, 4  # simulated visitors on their way, and answering
Finished = dict[str, tuple[str, float]]  # visitor -> recommender, share of headlines opened
_PAUSE, _SLOW_PAUSE = 0.02, 0.2  # seconds between two answers of a simulated visitor


class AddVisitorsRequest(Struct, forbid_unknown_fields=True):
    n: Annotated[int, Meta(ge=1, le=_MOST_VISITORS)]


_ADD_VISITORS = msgspec.json.Decoder(AddVisitorsRequest)


class Simulation(Protocol):
    """A source of simulated visitors."""

    def check_catalogue(self, categories: Iterable[Sequence[str]]) -> None:
        """Raise InputError if the visitors cannot read a catalogue whose items have these categories."""

    def draw_visitor(self) -> Callable[[Sequence[str]], bool]:
        """Return a new visitor: a function from an item's categories to whether the visitor opens it."""


class Study:
    """The results of the study, and simulated visitors on demand."""

    def __init__(self, visitors: Visitors, simulation: Simulation | None = None) -> None:
        self.visitors, self.service, self.simulation = visitors, visitors.service, simulation
        self.finished: Finished | None = None  # None: not read from the log yet
        self._coming: Finished | None = None  # while it is read
        self.running = self.done = 0
        self._loading, self._places = asyncio.Lock(), asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.service.watchers.watch(self._watch, ("reward", "erase"), self._forget)
        self._log = structlog.get_logger("lcb.serve")

    def _watch(self, row: Row, body: Any) -> None:
        if row.kind == "erase":
            self._forget()
        elif row.user is not None and _is_of_study(row.user):
            user = self.service.world.user(row.user)
            for kept in (self.finished, self._coming):
                if kept is not None and user is not None:
                    _add_if_finished(kept, row.user, user)

    def _forget(self) -> None:
        """Let the log be read again."""
        self.finished = self._coming = None

    async def load(self) -> Finished:
        """Return all visitors who have finished; the log is read once."""
        while self.finished is None:
            async with self._loading:
                if self.finished is None:
                    self.finished = await self._read()
        return self.finished

    async def _read(self) -> Finished | None:
        """Read all finished visitors; None if a user was erased meanwhile."""
        world, store = self.service.world, self.service.store
        coming: Finished = {}
        self._coming, after = coming, _PREFIX
        while names := [one for one in await asyncio.to_thread(store.users, after, _PAGE) if one.startswith(_PREFIX)]:
            for name in names:
                user = await asyncio.to_thread(world.loader.load, name, world.seq) if _is_of_study(name) else None
                if user is not None:
                    _add_if_finished(coming, name, user)
            after = names[-1]
        erased, self._coming = self._coming is not coming, None
        return None if erased else coming

    # Routes

    async def results(self, ask: Ask) -> Reply:
        """Mean and deviation over visitors for each recommender, and the published numbers."""
        finished = await self.load()
        groups: dict[str, Group] = {}
        rows = []
        for name in self.service.settings.share:
            rates = {visitor: rate for visitor, (recommender, rate) in finished.items() if recommender == name}
            group = groups[name] = Group.of_rates(np.array(list(rates.values())))
            rows.append(
                {
                    "name": name,
                    "users": group.n,
                    "mean": group.mean,
                    "deviation": group.deviation,
                    "decisions": N_STEPS * group.n,
                    "rewards": round(sum(rates.values()) * N_STEPS),
                    "simulated": sum(visitor.startswith(_SIMULATED) for visitor in rates),
                }
            )
        paper = [dict(zip(("name", "mean", "deviation", "users"), row, strict=True)) for row in PAPER]
        return json_reply({"recommenders": rows, "difference": _compare(groups), "paper": paper})

    async def export(self, ask: Ask) -> Reply:
        """A CSV file with one line per finished visitor."""
        finished = await self.load()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["visitor", "recommender", "simulated", "opened", "steps", "rate"])
        for visitor, (recommender, rate) in sorted(finished.items()):
            simulated = int(visitor.startswith(_SIMULATED))
            writer.writerow([visitor, recommender, simulated, round(rate * N_STEPS), N_STEPS, f"{rate:.4f}"])
        headers = [(b"content-disposition", b'attachment; filename="study.csv"')]
        return Reply(text.getvalue().encode(), 200, b"text/csv; charset=utf-8", headers)

    async def add_visitors(self, ask: Ask) -> Reply:
        """Start simulated visitors, of whom up to four run at once, whoever has started them."""
        n = decode(_ADD_VISITORS, ask.body).n
        try:
            items = self.service.world.state.catalogue.items.values()
            self._get_simulation().check_catalogue(item.categories or () for item in items)
        except InputError as error:
            raise Problem(409, str(error)) from None
        if self.running and self.running + n > _MOST_VISITORS:
            raise Problem(429, f"{self.running} simulated visitors are on their way; wait for them", retry_after=10)
        if not self.running:
            self.done = 0
        self.running += n
        self._begin(self.run_visitors(n))
        return json_reply({"running": self.running}, 202)

    def _get_simulation(self) -> Simulation:
        if self.simulation is None:
            raise InputError("this service was started without simulated visitors; start it with lcb serve")
        return self.simulation

    def start(self) -> None:
        """Start the stream of simulated visitors if the settings ask for one; called inside the event loop."""
        per_minute = self.service.settings.simulated_visitors
        if per_minute > 0:
            self._get_simulation()
            self._begin(self.run_stream(per_minute))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Simulated visitors

    async def run_visitors(self, n: int, pause: float = _PAUSE) -> None:
        """Run `n` simulated visitors, up to four at once."""
        left = iter(range(n))

        async def run_some() -> None:
            for _ in left:
                try:
                    async with self._places:
                        finished = await self.run_visitor(pause)
                    self.done += finished
                finally:
                    self.running = max(self.running - 1, 0)

        await asyncio.gather(*(run_some() for _ in range(min(n, _AT_ONCE))))

    async def run_stream(self, per_minute: float) -> None:
        """Run `per_minute` simulated visitors for as long as the service runs."""
        while True:
            await self.run_visitor(_SLOW_PAUSE)
            await asyncio.sleep(60 / per_minute)

    async def run_visitor(self, pause: float) -> bool:
        """Take one simulated visitor through all steps; False if the service fails on the way."""
        name, opens = f"{_SIMULATED}{self.service.new_id()}", self._get_simulation().draw_visitor()
        try:
            while not (seen := await self.visitors.build_view(name))["done"]:
                offer = seen["offer"]
                await self.service.reward(RewardRequest(offer["decision_id"], float(opens(offer["categories"]))))
                await asyncio.sleep(pause)
        except LCBError as error:
            self._log.warning("a simulated visitor gave up", error=str(error))
            return False
        return True


def _is_of_study(user: str) -> bool:
    """Whether a user is a visitor of the study, and not one of a caller with a similar name."""
    return user.startswith(_PREFIX) and is_visitor(user)


def _add_if_finished(finished: Finished, name: str, user: User) -> None:
    if user.n_rewards >= N_STEPS:
        finished[name] = (user.recommender, user.rate)


def _compare(groups: dict[str, Group]) -> dict[str, Any] | None:
    """Return the difference between the first two recommenders."""
    if len(groups) < 2:
        return None
    (of, a), (to, b) = list(groups.items())[:2]
    found = a.difference_to(b)
    return None if found is None else {"of": of, "to": to, "mean": found[0], "low": found[1], "high": found[2]}
