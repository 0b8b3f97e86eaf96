"""Drill 44: decisions of a batch have the bits of single decisions, through every bandit over classes, own or common
arms, kills and repeated ids; the control shares what must not be shared.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.decide.arms import CommonArms
from lcb.serve.decide.together import Together
from lcb.serve.decide_many import decide_many
from lcb.serve.errors import Problem
from lcb.storage.models.folder import save_models
from support.harness import LONG
from support.inside import Inside, sqlite

N = 40 if LONG else 5  # batches
SIZE = 20
RNG = np.random.default_rng(0)
ARMS = [Arm(f"a{i}", x) for i, x in enumerate(RNG.normal(size=(8, 3)).round(3).tolist())]
BANDITS = ("thompson", "learned-classes", "posterior-mean", "lints")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    beta = np.random.default_rng(1).normal(size=(4, 3))
    save_models(LatentModels(np.full(4, 0.25), beta, np.full(4, 0.3)), tmp_path / "models")
    return tmp_path


@pytest.fixture
def services(folder: Path) -> Iterator[list[Inside]]:
    """Two services with the same seed and ids: one for batches, one for single decisions."""
    made = []
    recommenders = tuple(RecommenderSpec(name, name, uniform=0.1) for name in BANDITS)
    for name in ("together", "alone"):
        settings = Settings(models=str(folder / "models"), recommenders=recommenders, pages=False)
        made.append(Inside(sqlite(folder / f"{name}.db"), settings))
    yield made
    for one in made:
        one.close()


def requests(batch: int) -> list[DecisionRequest]:
    """A batch: common arms for most, own arms, lists, rules, user features that do not fit, the same id twice."""
    rng = np.random.default_rng(batch)
    made = []
    for i in range(SIZE):
        arms = ARMS if rng.random() < 0.7 else [ARMS[j] for j in rng.permutation(8)[:4]]
        more: dict[str, Any] = [{}, {}, {"k": 3}, {"exclude": ["a1"]}, {"x": [1.0]}][int(rng.integers(5))]
        made.append(DecisionRequest(f"u{rng.integers(30)}", arms, decision_id=f"b{batch}-{i}", **more))
    return [*made, made[0]]


def play(together: Inside, alone: Inside) -> None:
    """Send the same to both, batch by batch, with rewards in between; every answer and event must be the same."""
    for batch in range(N):
        asked = requests(batch)
        answers = together.done(decide_many(together.service, asked))
        waiting = [alone.ask(alone.service.decide(one)) for one in asked]
        for one, task in zip(answers, waiting, strict=True):
            if isinstance(one, Problem):
                assert one.field == "x"
                with pytest.raises(Problem, match=re.escape(one.detail)):
                    alone.ended(task)
            else:
                assert one == alone.ended(task)
        rng = np.random.default_rng(batch)
        for one in answers[:-1]:
            if isinstance(one, bytes) and rng.random() < 0.5:
                answer = msgspec.json.decode(one)
                id = answer["slots"][0]["reward_id"] if "slots" in answer else answer["decision_id"]
                value = float(rng.random() < 0.4)
                for service in (together, alone):
                    service.reward(id, value)
        if batch == 2:
            together.crash()
    bodies = [
        {row.id: row.body for row in service.store.events(0) if row.kind == "decision"} for service in (together, alone)
    ]
    assert [_without_seq(one) for one in bodies[0].values()] == [_without_seq(bodies[1][id]) for id in bodies[0]]
    assert verify(together.store).differences == []


def _without_seq(raw: bytes) -> events.DecisionBody:
    body = events.decode("decision", raw)
    body.seen, body.at = 0, 0.0
    return body


def test_a_batch_has_the_bits_of_single_decisions(services: list[Inside]) -> None:
    play(*services)
    used = {row.user for row in services[0].store.events(0) if row.kind == "decision"}
    assert len(used) > 10


@pytest.mark.parametrize("uniform", [0.0, 0.1])
def test_decisions_without_ids_have_the_bits_of_single_ones(
    folder: Path, uniform: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known users without ids are drawn and written at once; the other service decides the same ids alone."""
    taken, take = [], Together.take
    monkeypatch.setattr(Together, "take", lambda self, *given: taken.append(take(self, *given)) or taken[-1])
    recommenders = tuple(RecommenderSpec(name, name, uniform=uniform) for name in BANDITS)
    settings = Settings(models=str(folder / "models"), recommenders=recommenders, pages=False)
    rng = np.random.default_rng(3)
    with (
        Inside(sqlite(folder / "together.db"), settings) as together,
        Inside(sqlite(folder / "alone.db"), settings) as alone,
    ):
        for batch in range(N):
            users = [f"u{i}" for i in rng.permutation(30)[:SIZE]]
            asked = [DecisionRequest(user, ARMS if batch else MANY) for user in users]
            for user, one in zip(users, together.done(decide_many(together.service, asked)), strict=True):
                assert isinstance(one, bytes)
                id, value = msgspec.json.decode(one)["decision_id"], float(rng.random() < 0.4)
                assert one == alone.done(alone.service.decide(DecisionRequest(user, asked[0].arms, decision_id=id)))
                for service in (together, alone) if rng.random() < 0.5 else ():
                    service.reward(id, value)
        rows = [row for row in together.store.events(0) if row.kind == "decision"]
        assert taken.count(True) > len(taken) / 3  # not those of newcomers and of bandits that draw one by one
        for row in rows:
            single = alone.store.event(row.id)
            assert single is not None
            ours, theirs = _without_seq(row.body), _without_seq(single.body)
            theirs.digest = None
            assert ours == theirs
            assert events.encode(events.decode("decision", row.body)) == row.body
        assert verify(together.store).differences == []


def test_what_belongs_to_other_arms_is_noticed(services: list[Inside], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: once read, arms are taken for those of every other element."""
    whole = CommonArms.read

    def read(self: CommonArms, request: DecisionRequest) -> Any:
        return whole(self, request) if self._read is None else self._read

    monkeypatch.setattr(CommonArms, "read", read)
    with pytest.raises(AssertionError):
        play(*services)


MANY = [Arm(f"many{i}", x) for i, x in enumerate(np.random.default_rng(2).normal(size=(20, 3)).tolist())]


def decide_from_common_arms(service: Inside, users: list[str]) -> list[dict[str, Any]]:
    asked = [DecisionRequest(user, MANY, decision_id=f"c{i}") for i, user in enumerate(users)]
    return [msgspec.json.decode(one) for one in service.done(decide_many(service.service, asked))]


def run(service: Inside, statement: str) -> list[Any]:
    with closing(sqlite3.connect(service.store.path)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_common_arms_are_stored_once_and_erased_with_the_last_person(services: list[Inside]) -> None:
    together = services[0]
    service, users = together.service, [f"p{i % 2}" for i in range(100)]
    decide_from_common_arms(together, ["p0", "p1"])  # who is new waits for the first decision
    answers = together.done(decide_many(service, [DecisionRequest(user, MANY) for user in users]))
    assert all(isinstance(one, bytes) for one in answers)
    for one in answers[::3]:
        assert isinstance(one, bytes)
        together.reward(msgspec.json.decode(one)["decision_id"], 1.0)
    assert run(together, "select count(*) from common") == [(1,)]
    assert run(together, "select count(*) from event where common is not null") == [(100,)]
    assert verify(together.store).differences == []
    together.crash()
    assert [row.kind for row in together.store.events_of("p1")].count("decision") == 51
    together.done(together.service.erase("p0"))
    assert verify(together.store).differences == []
    assert all(
        events.decode("decision", row.body).arms for row in together.store.events_of("p1") if row.kind == "decision"
    )
    together.done(together.service.erase("p1"))
    assert verify(together.store).differences == []
    assert run(together, "select count(*) from common") == [(0,)]
    assert b"many7" not in Path(together.store.path).read_bytes()


def test_changed_common_arms_are_noticed(services: list[Inside]) -> None:
    """The control: who changes common bytes changes all events that have them."""
    together = services[0]
    decide_from_common_arms(together, [f"p{i}" for i in range(500)])
    assert run(together, "select count(*) from common") == [(4,)]  # of each recommender
    assert verify(together.store).differences == []
    run(together, "update common set body = zeroblob(length(body))")
    assert verify(together.store).n_differences >= 400
