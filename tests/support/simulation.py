"""A long day of a service in one process: clients, crashes, clock jumps and a store that is slow, full or gone.

Everything follows from one seed: there are no threads and no sockets, and time is a number.  The service is the real
one, on a SQLite file; its journal writes when the simulation says so, and the file between them
refuses, waits or ends the process before, within or after a commit.  Clients decide with ids of their own or without,
send the same again, send something else under the same id, reward late, twice and against themselves; the catalogue
changes, models come and go, people are erased and come back.

After every crash, and at the end: what was acknowledged is in the log, once, and asked again gives the same bytes; the
world in memory is the fold of the log; and at the end every decision is made again.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from lcb import messages
from lcb.errors import StoreUnavailable
from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.errors import Problem
from lcb.serve.log import journal
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Appended
from support.harness import classes
from support.inside import MONDAY, Loop, Unsynced, WithoutSnapshots, fold_log, log_sha256, pack_cached_users, turns

DAY = 86_400.0
RECOMMENDERS = (
    RecommenderSpec("lcb", "thompson", settings={"gamma": 0.1}),
    RecommenderSpec("exp4", "exp4"),
    RecommenderSpec("epochs", "epoch-greedy"),
    RecommenderSpec("population", "linucb", scope="everyone"),
    RecommenderSpec("own", "lints"),
)
REVISABLE = (RECOMMENDERS[0], RECOMMENDERS[1], RECOMMENDERS[3], RECOMMENDERS[4])
_POOL = 3000  # requests that may be sent again
Defect = Callable[[Service], None]


class Crash(BaseException):
    """The process is gone."""


class Trouble(Unsynced):
    """A store whose commits fail, hang or crash at random, as `fate` decides."""

    fate: Callable[[], str] = staticmethod(lambda: "")
    slow: Callable[[float], None] = staticmethod(lambda seconds: None)
    _within = False

    def append(self, *given: Any) -> Appended:
        return self._fated(lambda: super(Trouble, self).append(*given))

    def erase(self, user: str, rewrite: Any, seen: int, archived: Sequence[str] = ()) -> Appended:
        return self._fated(lambda: super(Trouble, self).erase(user, rewrite, seen, archived))

    def _fated(self, work: Callable[[], Appended]) -> Appended:
        fate = self.fate()
        if fate == "busy":
            raise StoreUnavailable("locked by another process", busy=True)
        if fate == "full":
            raise StoreUnavailable("the disk is full")
        if fate == "before":
            raise Crash
        if fate == "slow":
            self.slow(3.0)
        self._within = fate == "within"
        try:
            done = work()
        finally:
            self._within = False
        if fate == "after":
            raise Crash
        return done

    @contextmanager
    def _transaction(self, **how: bool) -> Iterator[Any]:
        with super()._transaction(**how) as connection:
            yield connection
            if self._within:
                raise Crash


@dataclass(slots=True)
class Sent:
    """One request on its way."""

    kind: str
    user: str
    id: str
    value: Any  # which body, or which reward
    age: int  # how often the user had been erased when it was sent
    task: asyncio.Task[Any]


class Simulation:
    """`run(n)` takes n steps; `defect` breaks the service each time it comes up."""

    def __init__(
        self, path: Path, seed: int, *, rule: str = "once", n_users: int = 200, defect: Defect | None = None
    ) -> None:
        self.path, self.rule, self.n_users, self.defect = path, rule, n_users, defect
        self.chance = random.Random(seed)
        self.loop = Loop()
        self.wall = MONDAY
        self.settings = Settings(
            recommenders=REVISABLE if rule in ("sum", "last") else RECOMMENDERS, pages=False, rewards=rule,  # type: ignore[arg-type]
            reward_range=(0.0, 1000.0), limits=Limits(cached_bytes=500 * max(20, n_users // 4)),
        )  # fmt: skip
        self._ids = itertools.count()
        self.n = {"steps": 0, "crashes": 0, "restarts": 0, "given up": 0, "commits": 0, "erased": 0, "refused": 0}
        self.flying: list[Sent] = []
        self.pool: list[tuple[messages.DecisionRequest, str]] = []  # decisions with ids
        self.slots: list[tuple[str, str]] = []  # user, reward_id
        self.answers: dict[str, tuple[int, int]] = {}  # acknowledged decision -> hash of the answer, which body
        self.rewards: dict[str, float] = {}  # acknowledged reward -> its value
        self.tried: dict[str, set[float]] = {}  # values that were sent for a slot
        self.of_user: dict[str, list[str]] = {}
        self.age: dict[str, int] = {}
        self.recent: list[str] = []
        self.items = [f"i{j}" for j in range(5)]
        self.mirror: World | None = None
        self.often = 1.0

    # The service

    def open(self) -> None:
        self.store = Trouble(self.path)
        self.store.slow = self.pass_time  # type: ignore[method-assign]
        self.service = Service(
            self.settings, self.store, now=lambda: self.wall, new_id=lambda: f"id{next(self._ids):09d}",
            seed=lambda: b"the seed of a simulation", monotonic=self.loop.time, sleep=self.pass_time,
        )  # fmt: skip
        if self.defect is not None:
            self.defect(self.service)
        self.service.start(alone=True)
        self.store.fate = self.fate  # type: ignore[method-assign]

    def pass_time(self, seconds: float) -> None:
        self.loop.moment += seconds
        self.wall += seconds

    def fate(self) -> str:
        """Draw what happens to one commit."""
        self.n["commits"] += 1
        x, rare = self.chance.random(), 1e-3 * self.often
        for name, p in (("busy", 0.01), ("full", 0.005), ("slow", 0.01), ("before", rare), ("within", rare),
                        ("after", rare)):  # fmt: skip
            x -= p
            if x < 0:
                return name
        return ""

    async def down(self) -> None:
        """Drop the whole process."""
        for one in self.flying:
            one.task.cancel()
        await turns(3)
        self.flying.clear()
        looking = self.service.journal._timer
        if looking is not None:
            looking.cancel()
        self.store.close()

    async def crash(self) -> None:
        self.n["crashes"] += 1
        await self.down()
        if self.chance.random() < min(0.3, 2000 / (1 + self.service.world.seq)):
            bare = Unsynced(self.path)
            bare.forget_snapshots()
            bare.close()
        self.open()
        self.check()

    async def restart(self) -> None:
        """Stop and start as an operator does: all events and snapshots are written."""
        self.n["restarts"] += 1
        self.store.fate = lambda: ""  # type: ignore[method-assign]
        await self.write(10**9)
        self.check()
        self.store.append([], self.service.world.seq, self.service.build_snapshots())
        await self.down()
        self.open()
        self.check()

    async def write(self, most: int) -> None:
        """Let requests proceed as far as they can, then let the journal write."""
        await turns(2)
        try:
            while self.service.journal.step(most=most, wait=False) and most > 100:
                await turns(4)
        except Crash:
            await turns(2)
            await self.crash()
            return
        await turns(4)
        self.look()

    # Clients

    def send(self, kind: str, user: str, id: str, value: Any, work: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(work)
        self.flying.append(Sent(kind, user, id, value, self.age.get(user, 0), task))

    def act(self) -> None:
        """Let a random client take one step."""
        chance, x = self.chance, self.chance.random()
        self.pass_time(chance.expovariate(1.0))
        if x < 0.45 or not self.slots:
            self.decide()
        elif x < 0.80:
            self.reward()
        elif x < 0.92:
            self.again()
        elif x < 0.93:
            self.change_items()
        elif x < 0.935:
            self.erase()
        elif x < 0.936:
            self.models()
        elif x < 0.938:
            self.wall += chance.choice((-DAY, DAY))
        elif x < 0.9395:
            self.pass_time(11)  # longer than any request waits
        # else: do nothing

    def someone(self) -> str:
        return f"u{int(self.n_users * self.chance.random() ** 2)}"

    def vector(self, n: int) -> list[float]:
        return [self.chance.gauss(0, 1) for _ in range(n)]

    def decide(self) -> None:
        chance, user = self.chance, self.someone()
        kind = chance.randrange(4)
        request = messages.DecisionRequest(user)
        if kind == 0:
            request.arms = [messages.Arm(f"a{i}", self.vector(3)) for i in range(chance.randint(1, 5))]
        elif kind == 1:
            request.arms = [messages.Arm(id) for id in chance.sample(self.items, 3)]
        elif kind == 2:
            request.arms = [messages.Arm(f"b{i}", self.vector(1)) for i in range(3)]
            request.x = self.vector(2)
        n = 5 if request.arms is None else len(request.arms)
        if n >= 2 and chance.random() < 0.1:
            request.k = 2
        elif request.arms is not None and chance.random() < 0.1:
            request.chosen = chance.choice(request.arms).id
            request.chosen_propensity = chance.choice((None, 0.5))
        if chance.random() < 0.6:
            request.decision_id = f"d{next(self._ids):09d}"
            if len(self.pool) < _POOL:
                self.pool.append((request, user))
            else:
                self.pool[chance.randrange(_POOL)] = (request, user)
        for _ in range(2 if request.decision_id and chance.random() < 0.05 else 1):
            self.send("decision", user, request.decision_id or "", 0, self.service.decide(request))

    def again(self) -> None:
        """Send an earlier decision or reward again: the same one, or a different one under the same id."""
        if self.pool and self.chance.random() < 0.6:
            request, user = self.chance.choice(self.pool)
            body = int(self.chance.random() < 0.3)
            if body:
                request = msgspec.structs.replace(request, user=f"{user} ")
            self.send("decision", user, request.decision_id or "", body, self.service.decide(request))
            return
        user, id = self.slots[-1 - int(len(self.slots) * self.chance.random() ** 4)]
        values = sorted(self.tried.get(id, {1.0}))
        self.send_reward(user, id, self.chance.choice((*values, 1.0 - values[0])))

    def reward(self) -> None:
        user, id = self.slots[self.chance.randrange(len(self.slots))]
        if self.chance.random() < 0.7:
            user, id = self.slots[-1 - int(len(self.slots) * self.chance.random() ** 6)]
        self.send_reward(user, id, float(self.chance.random() < 0.4))

    def send_reward(self, user: str, id: str, value: float) -> None:
        self.tried.setdefault(id, set()).add(value)
        part = f"p{int(value)}" if self.rule == "sum" else None
        self.send("reward", user, id, value, self.service.reward(messages.RewardRequest(id, value, part)))

    def change_items(self) -> None:
        chance = self.chance
        request = messages.ItemsRequest([messages.ItemRequest(chance.choice(self.items), self.vector(3))])
        if chance.random() < 0.3:
            gone = chance.choice(self.items[5:]) if len(self.items) > 5 else ""
            new = f"i{chance.randrange(20)}"
            self.items = [id for id in dict.fromkeys((*self.items, new)) if id != gone or id == new]
            request = messages.ItemsRequest(
                [messages.ItemRequest(new, self.vector(3))], remove=[gone] if gone != new else []
            )
        self.send("items", "", "", 0, self.service.put_items(request))

    def erase(self) -> None:
        user = self.someone()
        self.age[user] = self.age.get(user, 0) + 1
        self.forget(user)
        self.send("erase", user, "", 0, self.service.erase(user))

    def forget(self, user: str) -> None:
        """Drop what was acknowledged to an erased user, which need not be in the log any more."""
        for id in self.of_user.pop(user, []):
            self.answers.pop(id, None)
            self.rewards.pop(id, None)

    def models(self) -> None:
        service, chance = self.service, self.chance
        if service.world.state.versions and chance.random() < 0.5:
            version = chance.choice([0, *service.world.state.versions])
            self.send("activate", "", "", 0, service.activate(version, "a test"))
        elif len(service.world.state.versions) < 20:
            made = classes(chance.randrange(1000), chance.randint(2, 5), 3)
            manifest, tensors = pack_models(made)
            given = {"active": chance.random() < 0.7, "reason": "a test", "n_users": 1}
            self.send("model", "", "", 0, service.add_model(manifest, tensors, **given))

    # What clients see

    def look(self) -> None:
        left = []
        for one in self.flying:
            if not one.task.done():
                left.append(one)
            elif (error := one.task.exception()) is None:
                self.answered(one, one.task.result())
            elif isinstance(error, Problem):
                self.refused(one, error)
            else:
                raise error
        self.flying = left
        assert self.service.journal.broken is None, self.service.journal.broken

    def answered(self, one: Sent, answer: Any) -> None:
        if one.kind == "erase":
            self.n["erased"] += 1
            self.age[one.user] += 1
            self.forget(one.user)
        elif one.kind == "decision":
            told = msgspec.json.decode(answer)
            id = told["decision_id"]
            if self.age.get(one.user, 0) != one.age:
                return
            known = self.answers.get(id)
            if known is None:
                self.answers[id] = (hash(answer), one.value)
                self.of_user.setdefault(one.user, []).append(id)
                self.recent.append(id)
                self.slots += [(one.user, slot["reward_id"]) for slot in told.get("slots") or [{"reward_id": id}]]
            else:
                assert known[1] == one.value, f"{id} was answered for two bodies"
                assert known[0] == hash(answer), f"{id} has two answers"
        elif one.kind == "reward" and self.age.get(one.user, 0) == one.age:
            if self.rule in ("once", "first") and one.id in self.rewards:
                counts = msgspec.json.decode(answer)["reward"]
                assert counts == self.rewards[one.id], f"the reward of {one.id} changed"
            told = msgspec.json.decode(answer)["reward"]
            assert self.rule != "once" or told == one.value, f"{one.id} took another reward than it was sent"
            if one.id not in self.rewards:
                self.rewards[one.id] = told
                self.of_user.setdefault(one.user, []).append(one.id)
            self.recent.append(one.id)

    def refused(self, one: Sent, problem: Problem) -> None:
        self.n["refused"] += 1
        same_age = self.age.get(one.user, 0) == one.age
        if problem.status == 503:
            self.n["given up"] += 1
        elif one.kind == "decision":
            known = self.answers.get(one.id)
            assert problem.status == 422
            assert known is None or known[1] != one.value or not same_age, f"{one.id} was answered, now {problem}"
        elif one.kind == "reward":
            assert problem.status in (404, 409), problem
            if problem.status == 409:
                assert len(self.tried[one.id]) > 1, f"{one.id}: {problem}"
                assert self.rule == "once", problem
                assert self.rewards.get(one.id) != one.value or not same_age, f"{one.id} had this reward: {problem}"
            elif same_age:
                assert one.id.partition("/")[0] not in self.answers, f"{one.id} was answered: {problem}"
        elif one.kind == "erase":
            assert problem.status == 404
            assert not self.of_user.get(one.user), f"{one.user} was there: {problem}"
        else:
            raise problem

    # Checks

    def check(self) -> None:
        """The world in memory is the fold of the log, and what was acknowledged lately is there."""
        if self.mirror is None:
            self.mirror = World(WithoutSnapshots(self.store))  # type: ignore[arg-type]
        self.mirror.store = self.mirror.loader.store = WithoutSnapshots(self.store)  # type: ignore[assignment]
        for row in self.store.events(self.mirror.seq):
            self.mirror.apply(row)
        world = self.service.world
        assert world.seq == self.mirror.seq, "the world is not at the end of the log"
        found = compare_worlds(world, self.mirror)
        assert not found, f"the world is not the fold of the log: {found}"
        for _ in range(20):
            self.check_user(self.someone())
        for id in self.recent[-300:]:
            self.check_there(id)
        self.recent.clear()

    def check_user(self, name: str) -> None:
        assert self.mirror is not None
        one, other = self.service.world.user(name), self.mirror.user(name)
        assert (one is None) == (other is None), f"{name} is not the fold of the log"
        assert one is None or other is None or one.pack() == other.pack(), f"{name} is not the fold of the log"

    def check_there(self, id: str) -> None:
        """An acknowledged decision or reward is in the log, and says the same."""
        if id in self.answers:
            row = self.store.event(id)
            assert row is not None, f"{id} was acknowledged and is lost"
            again = self.service.decisions.answer(id, row.model or 0, events.decode("decision", row.body))
            assert hash(again) == self.answers[id][0], f"{id} was answered otherwise"
        if id in self.rewards:
            row = self.store.event(f"r/{id}")
            assert row is not None, f"the reward of {id} was acknowledged and is lost"
            if self.rule in ("once", "first"):
                assert events.decode("reward", row.body).reward == self.rewards[id], f"the reward of {id} is another"

    def check_all(self) -> None:
        self.check()
        for id in (*self.answers, *self.rewards):
            self.check_there(id)
        again = fold_log(self.store)
        assert not compare_worlds(self.service.world, again), "the world is not the fold of the log"
        report = verify(self.store, live=pack_cached_users(self.service.world))
        assert not report.differences, "\n".join(map(str, report.differences))

    # All of it

    async def _run(self, n_steps: int) -> None:
        self.often = min(1.0, math.sqrt(20_000 / n_steps))  # coming up takes longer with a long log
        self.open()
        await turns(2)
        items = [messages.ItemRequest(id, self.vector(3)) for id in self.items]
        self.send("items", "", "", 0, self.service.put_items(messages.ItemsRequest(items)))
        await self.write(1)
        for _ in range(n_steps):
            self.n["steps"] += 1
            self.act()
            if self.chance.random() < 0.25:
                await self.write(self.chance.choice((1, 4, 32, 512)))
            if self.chance.random() < 1e-3 * self.often:
                await self.crash()
            elif self.chance.random() < 5e-4 * self.often:
                await self.restart()
        await self.restart()
        self.check_all()
        self.sha256 = log_sha256(self.store)
        await self.down()

    def run(self, n_steps: int) -> str:
        """SHA-256 of the log after so many steps."""
        kept, journal._SNAPSHOT_EVERY = journal._SNAPSHOT_EVERY, 300
        try:
            self.loop.run_until_complete(self._run(n_steps))
        finally:
            journal._SNAPSHOT_EVERY = kept
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(turns(2))
            for one in self.flying:
                if one.task.done() and not one.task.cancelled():
                    one.task.exception()
            self.loop.close()
            self.store.close()
        return self.sha256


def simulate(path: Path, seed: int, n_steps: int, **more: Any) -> Simulation:
    """A simulation that has run, and found nothing."""
    made = Simulation(path, seed, **more)
    made.run(n_steps)
    return made
