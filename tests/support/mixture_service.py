"""A service with a mixture in this process: users come, get rewards of a generated world, leave; refits in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Limits, Settings
from lcb.serve.decide.entry import Entry
from lcb.serve.learn.departures import Departures
from lcb.serve.learn.job import Job
from lcb.serve.learn.refit import refit
from lcb.storage.store.base import NewRow
from support.inside import Inside, sqlite

IDLE = 600.0
BETA = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.3]])


def settings(cached_bytes: int = 10**8, **given: Any) -> Settings:
    more = {"n_samples": 2, "n_sweeps": 4, **given}
    spec = RecommenderSpec("mix", "mixture", settings=more, uniform=0.05)
    return Settings(
        recommenders=(spec,), pages=False, learning=Learning(idle=IDLE), limits=Limits(cached_bytes=cached_bytes),
        rewards="last", reward_range=(-10.0, 10.0),
    )  # fmt: skip


class MixtureInside(Inside):
    """Users named u0, u1, ... of two classes; user i is of class i % 2."""

    def __init__(self, folder: Path, given: Settings | None = None, seed: int = 0) -> None:
        self.beta = BETA
        self.rng = np.random.default_rng(seed)
        super().__init__(sqlite(folder / "lcb.db"), given or settings())

    @property
    def mixture(self) -> Any:
        return self.service.world.mixtures.mixtures["mix"]

    def decide_for(self, user: int | str) -> tuple[str, float]:
        """Make a decision; return its id and the reward it will get."""
        x = self.rng.normal(size=(4, 3))
        name = f"u{user}" if isinstance(user, int) else user
        made = self.decide(name, arms=[{"id": f"a{i}", "x": one.tolist()} for i, one in enumerate(x)])
        number = user if isinstance(user, int) else 0
        reward = x[int(made["arm"][1:])] @ self.beta[number % 2] + 0.1 * self.rng.normal()
        return made["decision_id"], float(reward)

    def visit(self, user: int | str, n_steps: int = 4) -> None:
        for _ in range(n_steps):
            self.reward(*self.decide_for(user))

    def leave_all(self) -> int:
        """Let the idle time pass, and write that everybody has left."""
        self.pass_time(IDLE + 1)
        return self.done(Departures(self.service, lambda: None).write_due())

    def append(self, id: str, kind: str, body: Any, user: str | None = None) -> None:
        self.done(self._append(Entry(NewRow(id, kind, user, None, events.encode(body)), body, b"", key=id)))

    async def _append(self, entry: Entry) -> None:
        await self.service.journal.append(entry)

    def refit(self, during: Callable[[], None] = lambda: None) -> int:
        """Do what the learning process does; `during` happens while it runs.  Return the seq at which it began."""
        mixtures = self.service.world.mixtures
        mixtures.keeps_starts = True
        self.append(f"refit/{self.service.world.seq}", "refit", events.RefitBody(self.wall, "mix"))
        seq, state = mixtures.starts.pop("mix")
        during()
        result = refit(Job(self.store.url, seq, 0, mixture=state), self.store)
        self.append(f"mixture/{seq}", "mixture", events.MixtureBody(self.wall, "mix", seq, result.tensors, "a refit"))
        return seq
