"""Drill 24: the clock jumps by a day, backwards during a commit, over a leap second; events stay in the log's order."""

from __future__ import annotations

import asyncio
import random
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.state.world import World
from lcb.serve.web import endpoint as http
from lcb.serve.web.limits import rate_limits as rates
from lcb.storage.store.open_store import open_store
from support.harness import LONG, arms
from support.http_inside import inside
from support.inside import pack_cached_users

N = 1000 if LONG else 60
DAY = 86_400.0


class Clock:
    """A clock that jumps forwards and backwards at random."""

    def __init__(self, seed: int) -> None:
        self.at, self.chance = 1_483_228_799.0, random.Random(seed)  # the second before the leap of 2016

    def __call__(self) -> float:
        self.at += self.chance.choice((0.001, 0.001, 0.0, DAY, -DAY, 1.0, -1.0))
        return self.at


class Jumping:
    """A store; while it writes, the clock goes back by a day."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, *given: Any) -> Any:
        self._clock.at -= DAY
        try:
            return self._store.append(*given)
        finally:
            self._clock.at += DAY / 2


def drill(folder: Path, clock: Clock, by_the_wall: str = "") -> None:
    recommenders = (RecommenderSpec("lcb"), RecommenderSpec("all", "linucb", "everyone"))
    settings = Settings(store=str(folder / "lcb.db"), recommenders=recommenders, limits=Limits(patience=30, rate=1e6))

    async def day() -> None:
        rng, chance = np.random.default_rng(0), random.Random(0)
        waiting: list[str] = []
        async with inside(settings, now=clock, around=lambda store: Jumping(store, clock)) as (app, client):
            if by_the_wall == "journal":
                app.service.journal.monotonic = clock
            for i in range(N):
                body = {"user": f"u{i % 7}", "arms": arms(rng, 5)}
                answer = await client.post("/v1/decisions", json=body)
                assert answer.status_code == 200, f"a decision was refused: {answer.text}"
                waiting.append(answer.json()["decision_id"])
                if chance.random() < 0.8:
                    id = waiting.pop(chance.randrange(len(waiting)))
                    answer = await client.post("/v1/rewards", json={"decision_id": id, "reward": 1.0})
                    assert answer.status_code == 200, f"a reward was refused: {answer.text}"
            measured = (await client.get("/metrics")).text
            times = dict(re.findall(r'lcb_request_seconds_sum\{route="([^"]+)"\} (\S+)', measured))
            assert times, "nothing was measured"
            for route, seconds in times.items():
                assert 0 <= float(seconds) < 3600, f"{route} took {seconds} s"
            assert 0 <= float(re.search(r"(?m)^lcb_last_commit_seconds (\S+)", measured)[1]) < 3600, (
                "a commit took a day"
            )
            live = pack_cached_users(app.service.world)
            shared = {name: state.tobytes() for name, state in app.service.world.shared.states.items()}
        store = open_store(settings.store)
        try:
            rows = list(store.events(0))
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1)), "the log has a gap"
            at = [events.decode(row.kind, row.body).at for row in rows]
            assert any(later < earlier for earlier, later in pairwise(at)), "the clock never went back"
            store.forget_snapshots()
            world = World(store)
            world.load()
            assert {name: world.user(name).pack() for name in live} == live, "the fold is another"
            assert {name: state.tobytes() for name, state in world.shared.states.items()} == shared
        finally:
            store.close()

    asyncio.run(day())


def test_the_order_is_the_logs_and_no_time_is_negative_whatever_the_clock_does(tmp_path: Path) -> None:
    drill(tmp_path, Clock(0))


@pytest.mark.parametrize("of", ["http", "journal"])
def test_times_measured_by_the_clock_on_the_wall_fail(tmp_path: Path, monkeypatch, of) -> None:
    clock = Clock(0)
    if of == "http":
        monkeypatch.setattr(http, "time", SimpleNamespace(perf_counter=clock))
    with pytest.raises(AssertionError, match=r"took|refused"):
        drill(tmp_path, clock, of)


def test_a_rate_is_counted_by_a_clock_that_only_goes_forward() -> None:
    assert rates.RateLimits(1.0).clock is rates.time.monotonic


def test_ids_that_are_made_while_the_clock_goes_back_are_all_different() -> None:
    from lcb.serve.event_ids import make_time_ordered_ids

    new_id = make_time_ordered_ids(Clock(1))
    assert len({new_id() for _ in range(10_000)}) == 10_000
