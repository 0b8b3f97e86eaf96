"""A part that is told of events and fails does not stop the service, and does not stay wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lcb.errors import StoreUnavailable
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.learn.supervisor import Retraining
from lcb.serve.log.watchers import Watchers
from lcb.serve.observe.metrics import Metrics
from lcb.serve.pages import study
from lcb.serve.pages.sessions import DAY, SIGNED_IN, SIGNED_OUT, Sessions, digest_of
from lcb.serve.pages.study import Study
from lcb.serve.web.gauges import read_counts
from lcb.storage.store.base import Key, Row
from support.inside import Inside, fold_log, sqlite

ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]
ROWS = [Row(seq, f"e{seq}", kind, None, None, b"") for seq, kind in enumerate(("audit", "reward", "audit"))]
ANN = events.Actor("ann", "127.0.0.1")


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    one = Inside(sqlite(tmp_path / "lcb.db"), Settings(recommenders=(RecommenderSpec("own", "linucb"),), pages=False))
    yield one
    one.close()


class Failing:
    """A watcher that fails at first; `missed` fails `n_missed` times."""

    def __init__(self, n: int = 1, n_missed: int = 0) -> None:
        self.n, self.n_missed = n, n_missed
        self.told: list[int] = []
        self.n_made_up = 0

    def watch(self, row: Row, body: Any) -> None:
        if self.n:
            self.n -= 1
            raise MemoryError("no room")
        self.told.append(row.seq)

    def missed(self) -> None:
        if self.n_missed:
            self.n_missed -= 1
            raise MemoryError("still no room")
        self.n_made_up += 1


def test_a_watcher_that_fails_leaves_the_service_as_it_is(inside: Inside) -> None:
    failing, other = Failing(), Failing(n=0)
    inside.service.watchers.watch(failing.watch, ("decision",), failing.missed)
    inside.service.watchers.watch(other.watch, ("decision",), other.missed)
    with capture_logs() as logged:
        inside.decide("ann", arms=ARMS, decision_id="d1")
    assert inside.service.journal.broken is None
    inside.decide("ann", arms=ARMS, decision_id="d2")
    inside.reward("d1", 1.0)
    assert inside.service.world.snapshot().body == fold_log(inside.store).snapshot().body
    assert (len(other.told), other.n_made_up) == (2, 0)
    assert (len(failing.told), failing.n_made_up) == (1, 1)
    assert [(one["event"], one["watcher"]) for one in logged] == [("a watcher failed", "Failing.watch")]
    metrics = Metrics(counts=lambda: read_counts(inside.service)).render().decode()
    assert 'lcb_watcher_errors_total{watcher="Failing.watch"} 1.0' in metrics


def test_a_watcher_makes_up_for_what_it_missed_before_it_is_told_more() -> None:
    watchers, failing = Watchers(), Failing(n_missed=3)
    watchers.watch(failing.watch, ("audit",), failing.missed)
    with capture_logs() as logged:
        watchers.notify(ROWS, [None] * 3)  # fails, and so does making up
        watchers.notify(ROWS[1:2], [None])  # events of any kind
        watchers.notify(ROWS, [None] * 3)
        assert (failing.told, failing.n_made_up) == ([], 0)
        watchers.notify(ROWS[:1], [None])  # made up, with this one
    assert (failing.told, failing.n_made_up) == ([], 1)
    watchers.notify(ROWS, [None] * 3)
    assert failing.told == [0, 2]
    assert watchers.n_failed == {"Failing.watch": 4}
    assert [one["n"] for one in logged] == [1, 2, 4]


def test_an_event_that_cannot_be_applied_stops_the_service(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.decide("ann", arms=ARMS, decision_id="d1")

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(inside.service.world, "_apply_reward", fail)
    assert inside.status(inside.begin_reward("d1", 1.0)) == 503
    assert inside.service.journal.broken is not None


class Keys:
    def find(self, digest: bytes) -> Key | None:
        return Key("ann", "admin", b"key", 0.0, None) if digest == b"key" else None


def sign(inside: Inside, action: str, session: str) -> None:
    until = inside.wall + DAY
    inside.done(inside.service.record(action, ANN, session=digest_of(session), key=b"key", until=until))


def fail_once(monkeypatch: pytest.MonkeyPatch, sessions: Sessions) -> None:
    """Let the next event of a session meet a lack of memory."""
    forget, n = sessions._forget, 0

    def fail(digest: bytes) -> None:
        nonlocal n
        n += 1
        if n == 1:
            raise MemoryError
        forget(digest)

    monkeypatch.setattr(sessions, "_forget", fail)


def test_a_sign_out_that_could_not_be_noted_counts_all_the_same(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(inside.service, Keys())  # type: ignore[arg-type]
    sign(inside, SIGNED_IN, "one")
    sign(inside, SIGNED_IN, "two")
    assert sessions.find("one") is not None
    fail_once(monkeypatch, sessions)
    sign(inside, SIGNED_OUT, "one")
    assert inside.service.watchers.n_failed == {"Sessions._watch": 1}
    assert sessions.find("one") is None
    assert sessions.find("two") is not None


def test_no_session_is_valid_while_the_log_cannot_be_read_again(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(inside.service, Keys())  # type: ignore[arg-type]
    sign(inside, SIGNED_IN, "one")
    sign(inside, SIGNED_IN, "two")
    fail_once(monkeypatch, sessions)
    sign(inside, SIGNED_OUT, "one")

    def refuse(*_: Any) -> None:
        raise StoreUnavailable("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(inside.store, "newest_of_service", refuse)
        assert (sessions.find("one"), sessions.find("two")) == (None, None)
        inside.done(sessions.end("two", ANN))  # a sign-out is written, also if nothing is known of the session
    assert (sessions.find("one"), sessions.find("two")) == (None, None)
    sign(inside, SIGNED_IN, "three")
    assert sessions.find("three") is not None


def test_learning_that_could_not_begin_begins_with_the_next_event(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, n_begun, n_failures = Retraining(inside.service, Metrics()), 0, 2

    def begin() -> None:
        nonlocal n_begun, n_failures
        if n_failures:
            n_failures -= 1
            raise MemoryError
        n_begun += 1

    monkeypatch.setattr(supervisor, "_is_due", lambda: True)
    monkeypatch.setattr(supervisor, "_begin", begin)
    kinds = ("decision", "reward")
    inside.service.watchers.watch_batches(supervisor._watch, kinds, supervisor._begin_if_free)
    inside.decide("ann", arms=ARMS)
    assert (n_begun, n_failures, inside.service.journal.broken) == (0, 0, None)
    inside.items({"id": "new", "x": [1.0, 0.0]})
    assert n_begun == 1


def test_a_study_that_missed_a_visitor_reads_the_log_again(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Study(SimpleNamespace(service=inside.service))  # type: ignore[arg-type]
    results.finished = {}
    visitor = "study-" + "0123456789abcdef" * 2
    inside.decide(visitor, arms=ARMS, decision_id="d1")

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(study, "_add_if_finished", fail)
    inside.reward("d1", 1.0)
    assert inside.service.watchers.n_failed == {"Study._watch": 1}
    assert (results.finished, inside.service.journal.broken) == (None, None)
