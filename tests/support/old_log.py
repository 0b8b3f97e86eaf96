"""A seeded service with a long past: users who come for weeks, late and changed rewards, lists, rules, items that come
and go, model versions, erasures.  Two services with the same seed get the same requests; one of them is compacted.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.errors import Problem
from lcb.serve.events import Actor
from lcb.serve.retain.compact import Compacted, compact
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Store
from support.harness import classes
from support.inside import Inside, sqlite

T = TypeVar("T")
DAY = 86_400.0
N_ITEMS = 8
RECOMMENDERS = (
    RecommenderSpec("lcb", "thompson", settings={"gamma": 0.1}),
    RecommenderSpec("auto", "learned-classes", uniform=0.05),
    RecommenderSpec("population", "linucb", scope="everyone"),
    RecommenderSpec("own", "lints"),
)


def build_settings(rule: str, n_users: int, archive: Path) -> Settings:
    return Settings(
        recommenders=RECOMMENDERS, pages=False, archive=str(archive), rewards=rule, reward_range=(0.0, 1000.0),  # type: ignore[arg-type]
        limits=Limits(cached_bytes=500 * max(4, n_users // 4)),
    )  # fmt: skip


class OldLog(Inside):
    """`live(days)` lets days pass with requests that follow from the seed; `answers` are all that was answered."""

    def __init__(
        self, folder: Path, seed: int, rule: str = "once", n_users: int = 25, store: Any = None, at_once: int = 3
    ) -> None:
        self.folder, self.n_users, self.at_once = folder, n_users, at_once  # decisions at a time, from one state
        self.chance = random.Random(seed)
        self.answers: list[Any] = []
        self.open_slots: list[tuple[float, str]] = []  # when the decision was made, its slot
        self.archived: set[str] = set()  # of a service that is not compacted: what would be
        self.erased: set[str] = set()
        self.n_made = 0
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(store or sqlite(folder / "lcb.db"), build_settings(rule, n_users, self.archive))
        self.items(*(self._draw_item(j) for j in range(N_ITEMS)))

    def _draw_item(self, j: int) -> dict[str, Any]:
        return {"id": f"i{j}", "x": [self.chance.gauss(0, 1) for _ in range(6)]}

    def live(self, days: float, per_day: int = 30) -> None:
        for _ in range(int(days * per_day)):
            self.pass_time(DAY / per_day * self.chance.uniform(0.5, 1.5))
            self._step()

    def _step(self) -> None:
        draw = self.chance.random()
        if draw < 0.02:
            self.items(self._draw_item(self.chance.randrange(N_ITEMS)))
        elif draw < 0.03:
            manifest, tensors = pack_models(classes(seed=self.chance.randrange(99)))
            self.done(self.service.add_model(manifest, tensors, active=True, reason="a drill", n_users=3))
        elif draw < 0.6:
            self._decide_some()
        elif self.open_slots:
            self._reward_one()

    def _decide_some(self) -> None:
        asked = []
        for _ in range(min(self.at_once, self.chance.choice([1, 1, 2, 3]))):
            name, more = f"u{self.chance.randrange(self.n_users)}", dict[str, Any]()
            if self.chance.random() < 0.3:
                more["k"] = 2
            if self.chance.random() < 0.3:
                more["seen"] = self.chance.choice(["exclude-taken", "exclude"])
            elif self.chance.random() < 0.3:
                ids = self.chance.sample(range(N_ITEMS), 4)
                more["arms"] = [{"id": f"i{j}"} for j in ids]
            self.n_made += 1
            asked.append(self.begin_decide(name, decision_id=f"d{self.n_made}", **more))
        for one in asked:
            try:
                answer = self.ended(one).decode()
            except Problem as problem:  # no item is left that this user has not seen
                self.answers.append((problem.status, problem.detail))
                continue
            self.answers.append(answer)
            made = _decode(answer)
            slots = [slot["reward_id"] for slot in made["slots"]] if made.get("slots") else [made["decision_id"]]
            self.open_slots += [(self.wall, slot) for slot in slots]

    def _reward_one(self) -> None:
        i = min(int(self.chance.expovariate(0.2)), len(self.open_slots) - 1)
        at, slot = self.open_slots[-1 - i]
        value = self.chance.choice([0.0, 1.0, 3.0])
        if at <= self.oldest:  # both services must refuse it, so neither is asked
            return
        part = {"reward_id": f"p{value}"} if self.settings.rewards == "sum" else {}
        try:
            self.answers.append(self.reward(slot, value, **part))
        except Problem as problem:
            self.answers.append((problem.status, slot))

    oldest = 0.0  # decisions up to this time are archived

    def mark(self) -> None:
        """Append what takes the place of `compact` in the log of a service that is not compacted."""
        self.done(self.service.record("a mark", Actor(None, "here")))

    def compact(self, keep: float, **more: Any) -> Compacted:
        """Compact by another connection, as the command does."""
        store = self.open_other()
        try:
            return compact(store, self.archive, keep, now=lambda: self.wall, sleep=lambda seconds: None, **more)
        finally:
            store.close()

    def open_other(self) -> Store:
        return self.open()

    @property
    def archive(self) -> Path:
        return self.folder / "lcb.db.archive"

    def erase_now(self, user: str) -> int:
        """Erase a user, also if threads have to read the archive."""
        return self.ended(self.ask(self.service.erase(user)))

    def ended(self, task: asyncio.Task[T]) -> T:
        """Wait for a request, also if threads read the store or the archive for it."""
        until = time.monotonic() + 30
        while not task.done():
            assert time.monotonic() < until, "a request does not end"
            self.write()
            if not task.done():
                time.sleep(0.0005)
        return task.result()

    def done(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.ended(self.ask(coroutine))


def _decode(answer: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer)
    return found
