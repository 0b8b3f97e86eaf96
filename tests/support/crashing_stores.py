"""Stores that end the process at a chosen statement, and a session to try them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.models.folder import pack_models
from support.harness import classes
from support.inside import Inside, Unsynced, fold_log

RECOMMENDERS = (
    RecommenderSpec("lcb", settings={"gamma": 0.1}),
    RecommenderSpec("epochs", "epoch-greedy"),
    RecommenderSpec("population", "linucb", scope="everyone"),
)
ARMS = [{"id": f"a{i}", "x": [1.0, i / 5, (i * 7 % 5) / 5]} for i in range(5)]
_WRITES = (
    "begin", "insert", "update", "delete", "commit", "create", "alter", "drop", "pragma user_version",
    "pragma application_id",
)  # fmt: skip


class Died(BaseException):
    """The process is gone."""


class Life:
    """Simulates a process that ends before its n-th writing statement; later statements raise `Died`."""

    def __init__(self, n: int | None = None) -> None:
        self.left, self.n_written = n, 0
        self.opened: list[Any] = []

    def bury(self) -> None:
        """Close every connection without committing, as the operating system does."""
        for connection in self.opened:
            connection.close()
        self.opened.clear()
        self.left = None

    def before(self, statement: str) -> None:
        if self.left is not None and self.left <= 0:
            raise Died
        if statement.lstrip().startswith(_WRITES):
            self.n_written += 1
            if self.left is not None:
                self.left -= 1
                if self.left <= 0:
                    raise Died


class Mortal:
    """A connection that checks `life` before each statement."""

    def __init__(self, connection: Any, life: Life) -> None:
        self._connection, self._life = connection, life

    def execute(self, statement: str, *values: Any) -> Any:
        self._life.before(statement)
        return self._connection.execute(statement, *values)

    def executemany(self, statement: str, values: Any) -> Any:
        for one in values:
            self.execute(statement, one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class MortalStore(Unsynced):
    """A store whose connections share one `life`."""

    def __init__(self, path: Path, life: Life) -> None:
        self.life = life
        super().__init__(path)

    def _connect(self) -> Any:
        connection = super()._connect()
        self.life.opened.append(connection)
        return Mortal(connection, self.life)


class WithoutTransactions(MortalStore):
    """A broken store: every statement is its own transaction."""

    def _connect(self) -> Any:
        connection = super()._connect()
        kept = connection.execute

        def execute(statement: str, *values: Any) -> Any:
            if statement in ("begin immediate", "commit", "rollback"):
                connection._life.before(statement)
                return None
            return kept(statement, *values)

        connection.execute = execute
        return connection


Opened = Callable[[Path, Life], Any]


class Session:
    """A client that sends one request of each kind, and repeats those without an answer; `chosen` are the decisions."""

    def __init__(self, path: Path, opened: Opened = MortalStore, *, die_at: int | None = None) -> None:
        self.path, self.opened = path, opened
        self.life = Life(die_at)
        self.n_deaths = 0
        self.chosen: dict[str, tuple[str, float]] = {}
        self.rewarded: set[str] = set()
        self.inside: Inside | None = None

    def run(self) -> None:
        try:
            self.come_up()
            for work in self.works():
                self.insist(work)
            assert self.inside is not None
            self.check(self.inside)
        finally:
            if self.inside is not None:
                self.inside.close()

    def come_up(self) -> None:
        given = Settings(recommenders=RECOMMENDERS, reward_range=(0.0, 1.0), pages=False)
        while True:
            try:
                self.inside = Inside(lambda: self.opened(self.path, self.life), given)
                return
            except Died:
                self.n_deaths += 1
                self.life.bury()

    def insist(self, work: Callable[[Inside], None]) -> None:
        while True:
            assert self.inside is not None
            try:
                work(self.inside)
                return
            except Died:
                self.n_deaths += 1
                self.life.bury()
                self.inside.close()
                self.come_up()
                self.check(self.inside)

    def works(self) -> list[Callable[[Inside], None]]:
        works: list[Callable[[Inside], None]] = [
            lambda inside: inside.items(*({"id": f"i{j}", "x": [1.0, j / 3, 0.5]} for j in range(3)))
        ]
        for i in range(12):
            if i in (3, 7):
                works.append(lambda inside, i=i: self.add(inside, i))
            works.append(lambda inside, i=i: self.decide(inside, [f"d{i}.{j}" for j in range(3)], i))
            works.append(lambda inside, i=i: self.reward(inside, [f"d{i}.{j}" for j in range(i % 3)]))
            if i == 9:
                works.append(self.erase)
        works.append(lambda inside: self.keep(inside))
        return works

    def decide(self, inside: Inside, ids: list[str], i: int) -> None:
        """Make a few decisions in one commit."""
        more: list[dict[str, Any]] = [{"arms": ARMS}, {}, {"arms": ARMS, "k": 2}]
        asked = [inside.begin_decide(f"u{(i + j) % 5}", decision_id=id, **more[j]) for j, id in enumerate(ids)]
        inside.write()
        for id, one in zip(ids, asked, strict=True):
            answer = one.result()
            found = records_of(answer)
            assert self.chosen.setdefault(id, found) == found, f"{id} was decided otherwise before"

    def reward(self, inside: Inside, ids: list[str]) -> None:
        asked = [(id, inside.begin_reward(id, 1.0)) for id in ids if not id.endswith("2")]
        inside.write()
        for id, one in asked:
            one.result()
            self.rewarded.add(id)

    def add(self, inside: Inside, i: int) -> None:
        manifest, tensors = pack_models(classes(i, 3, 3))
        if any(version.body.tensors == tensors for version in inside.service.world.state.versions.values()):
            return  # it was written, but the answer was lost
        inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))

    def erase(self, inside: Inside) -> None:
        if inside.store.events_of("u0"):  # else it was written, but the answer was lost
            inside.erase("u0")

    def keep(self, inside: Inside) -> None:
        inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())

    def check(self, inside: Inside) -> None:
        """Check that the log is complete and that the state in memory equals the state replayed from it."""
        assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
        report = verify(inside.store)
        assert not report.differences, "\n".join(map(str, report.differences))
        rows = {row.id: row for row in inside.store.events(0)}
        erased = any(row.kind == "erase" for row in rows.values())
        for id in self.chosen:
            assert id in rows or erased, f"decision {id} was acknowledged and is lost"
        for id in self.rewarded:
            assert f"r/{id}" in rows or erased, f"the reward of {id} was acknowledged and is lost"


def records_of(answer: bytes) -> tuple[str, float]:
    told = json.loads(answer)
    return told["arm"], told["propensity"]
