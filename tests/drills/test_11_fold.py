"""Drill 11: every user in memory equals, byte for byte, the user replayed from the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lcb import messages
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.service import Service
from support.harness import LONG, models_folder
from support.inside import Inside, fold_log, sqlite

USERS = 10_000 if LONG else 200
RECOMMENDERS = (
    RecommenderSpec("lcb", settings={"gamma": 0.1}),
    RecommenderSpec("exp4", "exp4"),
    RecommenderSpec("epochs", "epoch-greedy"),
    RecommenderSpec("population", "linucb", scope="everyone"),
    RecommenderSpec("own", "linucb"),
)


def drill(folder: Path, broken: Callable[[Service], None] | None = None) -> None:
    given = Settings(
        recommenders=RECOMMENDERS, models=models_folder(folder), reward_range=(0.0, 1.0), pages=False,
        limits=Limits(cached_bytes=500 * USERS // 2, max_waiting=10**6),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    with Inside(sqlite(folder / "lcb.db"), given, broken=broken) as inside:
        waiting: list[str] = []
        for round in range(6):
            users = rng.permutation(USERS)[: USERS // 2] if round % 2 else np.arange(USERS)
            for block in np.array_split(users, max(1, len(users) // 500)):
                decide(inside, block, rng, waiting)
            if round == 3:
                inside.stop()
                inside.start()
        again = fold_log(inside.store)
        assert compare_worlds(inside.service.world, again) == []
        live = {}
        for name in (f"u{i}" for i in range(USERS)):
            one, other = inside.service.world.user(name), again.user(name)
            assert one is not None
            assert other is not None
            assert one.pack() == other.pack(), f"{name} is not the fold of the log"
            live[name] = one.pack()
        inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())
        report = verify(inside.store, live=live)
        assert report.differences == []
        assert report.n_users == USERS


def decide(inside: Inside, users: np.ndarray, rng: np.random.Generator, waiting: list[str]) -> None:
    """Make one decision per user, and send rewards of some earlier decisions in random order."""
    contexts = rng.normal(size=(len(users), 4, 6)).tolist()
    service, store = inside.service, inside.store
    made = []
    for user, context in zip(users.tolist(), contexts, strict=True):
        arms = [messages.Arm(f"a{i}", x) for i, x in enumerate(context)]
        made.append(service.decisions.decide(messages.DecisionRequest(f"u{user}", arms)))
    for entries in (made, rewards(inside, rng, waiting)):
        rows = [entry.row for entry in entries if not isinstance(entry, bytes)]
        for row in store.append(rows, service.world.seq, service.world.cache.take_evicted()).rows:
            service.applier.apply(row)
    waiting += [entry.row.id for entry in made if not isinstance(entry, bytes)]


def rewards(inside: Inside, rng: np.random.Generator, waiting: list[str]) -> list:
    rng.shuffle(waiting)
    due = [waiting.pop() for _ in range(2 * len(waiting) // 3)]
    return [inside.service.rewards.reward(messages.RewardRequest(id, float(rng.random() < 0.4))) for id in due]


def test_every_user_is_the_fold_of_the_log(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_memory_that_drifts_by_the_last_bit_is_found(tmp_path: Path) -> None:
    def drifting(service: Service) -> None:
        kept = service.world.fold.step

        def step(user, row, body, reward) -> None:
            kept(user, row, body, reward)
            if row.kind == "reward" and user.state is not None and row.seq % 50 == 0:
                user.state = np.nextafter(user.state, np.inf)

        service.world.fold.step = step  # type: ignore[method-assign]

    with pytest.raises(AssertionError, match="fold of the log"):
        drill(tmp_path, drifting)
