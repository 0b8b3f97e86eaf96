"""Drill 48: a log is compacted while it is served, and nobody can tell: the same requests get the same answers.

Kills and losses of power at any moment leave the old log or the new one; erasure reaches the archive; every decision
recomputes, before and after, with the archive and without it.  Controls: a compaction that removes events before they
are archived, or renames files before its event is on disk, a base without what users were shown, and changed files must
be found.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from lcb.errors import StoreUnavailable
from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.export import export
from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.errors import Problem
from lcb.serve.learn.training_data import read_item_rows, read_training_data
from lcb.serve.retain import archive as archives
from lcb.serve.retain import base as bases
from lcb.serve.retain import compact as compaction
from lcb.serve.retain.archive import Archive
from lcb.serve.retain.settle import settle_archive
from lcb.serve.retain.whole_log import open_restored, open_whole
from lcb.serve.state.world import World
from lcb.serve.state.world_snapshot import read_base
from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store
from lcb.storage.store.sqlite.store import SQLite
from lcb.storage.tables.statistics import read_log
from support.harness import LONG, serving
from support.inside import Unsynced, fold_log
from support.old_log import DAY, OldLog

DAYS = 40 if LONG else 2
KILLS = 40 if LONG else 1
SEEDS = range(5) if LONG else range(1)
RULES = ("once", "sum", "last") if LONG else ("last",)


class Killed(BaseException):
    """The compacting process is gone."""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a short log take several transactions and files."""
    take_small_steps(monkeypatch)


def take_small_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "_USERS", 4)
    patch.setattr(compaction, "_EVENTS", 40)
    patch.setattr(archives, "PART", 90)


def check(log: OldLog) -> None:
    """Everything recomputes: from the base, and with the archive from the first event on."""
    report = verify(log.store)
    assert report.differences == [], "the log does not recompute from its base"
    report = verify_whole(log.store, log.archive)
    assert report.differences == [], "the whole log does not recompute"


def compare(one: OldLog, other: OldLog) -> None:
    """Two services that got the same requests have the same answers, states and users."""
    assert one.answers == other.answers, "a request was answered differently"
    assert compare_worlds(one.service.world, other.service.world) == []
    folded = fold_log(one.store), fold_log(other.store)
    assert compare_worlds(*folded) == [], "the state is not that of the whole log"
    for i in range(one.n_users):
        users = [world.user(f"u{i}") for world in folded]
        packed = [None if user is None else user.pack() for user in users]
        assert packed[0] == packed[1], "a user is not the one of the whole log"


def live_twice(folder: Path, seed: int, rule: str, open_other: Callable[[], Store] | None = None) -> None:
    """Let two services live; one is compacted twice, and users are erased before, between and after."""
    more: dict[str, Any] = {} if open_other is None else {"at_once": 1}
    with (
        OldLog(folder / "whole", seed, rule, **more) as whole,
        OldLog(folder / "cut", seed, rule, store=open_other, **more) as cut,
    ):
        for turn in range(2):
            for log in (whole, cut):
                log.live(DAYS)
                log.erase_now(f"u{turn}")
                log.live(DAYS)
                log.oldest = log.wall - DAYS * DAY
            whole.mark()
            done = cut.compact(DAYS * DAY)
            assert done.n_archived > 15, "nothing was compacted"
            for log in (whole, cut):
                log.erase_now(f"u{10 + turn}")
                log.live(DAYS / 3)
                if turn:
                    log.crash()
            compare(whole, cut)
        check(cut)
        assert cut.store.count_events(cut.store.head()) < whole.store.head() / 2 + 60
        learned = [
            read_training_data(store, whole.store.head(), rule, ())
            for store in (whole.store, open_whole(cut.store, cut.archive))
        ]
        assert learned[0].stats.packed.tobytes() == learned[1].stats.packed.tobytes(), "relearning is not exact"
        assert learned[0].stats.users == learned[1].stats.users


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_can_tell_that_a_log_was_compacted(rule: str, seed: int, tmp_path: Path) -> None:
    live_twice(tmp_path, seed, rule)


def test_a_base_without_what_users_were_shown_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "fold_seen", lambda rows: see_nothing())
    with pytest.raises(AssertionError, match=r"answered differently|recompute"):
        live_twice(tmp_path, 0, "last")


def see_nothing() -> Any:
    from lcb.serve.state.seen_items import Seen

    return Seen({})


def test_the_same_on_postgres(tmp_path: Path, postgres_database: str) -> None:
    live_twice(tmp_path, 1, "last", lambda: open_store(postgres_database))


# Kills


@contextmanager
def killed_at(n: int) -> Iterator[list[str]]:
    """Kill the compaction at the n-th thing it does to the disk, before or after it; yields what was done."""
    done: list[str] = []

    def fused(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            for moment in ("before", "after"):
                if moment == "after":
                    result = work(*given, **more)
                done.append(f"{moment} {name}")
                if len(done) > n:
                    raise Killed
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "_write_table", fused("a file", archives._write_table))
        patch.setattr(archives.os, "replace", fused("a rename", os.replace))
        patch.setattr(archives.Writer, "discard", lambda self: None)  # a killed process removes nothing
        for name in ("append", "write_base", "remove_events"):
            patch.setattr(Unsynced, name, fused(name, getattr(Unsynced, name)))
        yield done


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log that was compacted once, and has lived on since."""
    folder = tmp_path_factory.mktemp("old") / "log"
    with OldLog(folder, 3, "last", n_users=8) as log:
        log.live(4)
        log.compact(2 * DAY)
        log.live(3)
        log.stop()
        log.start()
    return folder


def compact_copy(old: Path, folder: Path, n: int = 10**9) -> list[str]:
    """Compact a copy of a log, and kill that at its n-th step; returns what was done."""
    shutil.copytree(old, folder)
    store = Unsynced(folder / "lcb.db")
    now = next(events.decode(row.kind, row.body).at for row in store.events(store.head() - 1))
    with killed_at(n) as done:
        try:
            compaction.compact(store, folder / "lcb.db.archive", DAY, now=lambda: now, sleep=lambda seconds: None)
        except Killed:
            pass
        finally:
            store.close()
    return done


def list_ids(store: Store, folder: Path) -> list[str]:
    """The ids of all events, archived or not, but those of compactions."""
    return [row.id for row in open_whole(store, folder).events(0) if row.kind != "compact"]


def test_a_kill_at_any_moment_leaves_the_old_log_or_the_new_one(old: Path, tmp_path: Path) -> None:
    steps = compact_copy(old, tmp_path / "all")
    assert {"after append", "after write_base", "after remove_events", "after a file", "after a rename"} <= set(steps)
    first = Unsynced(old / "lcb.db")
    truth, users = list_ids(first, old / "lcb.db.archive"), fold_log(first)
    first.close()
    every = 1 if LONG else max(1, len(steps) // 9)
    for n in range(0, len(steps), every):
        folder = tmp_path / f"killed{n}"
        compact_copy(old, folder, n)
        check_recovery(folder, truth, users, f"killed {steps[n]}")


def check_recovery(folder: Path, truth: list[str], users: World, when: str) -> None:
    """A log whose compaction was broken off has all events, recomputes, and can be compacted to the end."""
    store, archive = SQLite(folder / "lcb.db"), folder / "lcb.db.archive"
    try:
        settle_archive(store, archive, read_base(store).upto)  # type: ignore[union-attr]
        assert list_ids(store, archive) == truth, f"{when}: an event is lost"
        assert verify(store).differences == [], f"{when}: the log does not recompute"
        for name in store.users():
            assert fold_log(store).user(name).pack() == users.user(name).pack()  # type: ignore[union-attr]
        compaction.compact(store, archive, 3650 * DAY, sleep=lambda seconds: None)
        assert verify(store).n_unfinished == 0, f"{when}: the compaction is not finished"
        assert verify_whole(store, archive).differences == []
        assert not list(archive.rglob("*.new")), "a file of an ended compaction is left"
    finally:
        store.close()


class Recorded(SQLite):
    """A store that copies the archive and measures its write-ahead log when the event `compact` is on disk."""

    flushed = 0

    def append(self, rows: Any, *given: Any, **more: Any) -> Any:
        appended = super().append(rows, *given, **more)
        if any(row.kind == "compact" for row in rows):
            Recorded.flushed = Path(f"{self.path}-wal").stat().st_size
            shutil.copytree(f"{self.path}.archive", self.path.with_name("at the event"))
        return appended


def lose_power(old: Path, folder: Path) -> list[tuple[int, bytes, bytes, Path]]:
    """Compact a copy of a log; returns what a loss of power may leave: file, write-ahead log and archive."""
    shutil.copytree(old, folder)
    database = (folder / "lcb.db").read_bytes()
    store = Recorded(folder / "lcb.db")
    now = next(events.decode(row.kind, row.body).at for row in store.events(store.head() - 1))
    compaction.compact(store, folder / "lcb.db.archive", DAY, now=lambda: now, sleep=lambda seconds: None)
    wal = (folder / "lcb.db-wal").read_bytes()
    assert (folder / "lcb.db").read_bytes() == database, "the write-ahead log does not hold the whole compaction"
    store.close()
    whole = list(range(32, len(wal) + 1, 4096 + 24))
    cuts = [0, *whole, *(one + 1000 for one in whole[:-1])] if LONG else [0, *whole[2 :: len(whole) // 6], whole[-1]]
    early = folder / "at the event"
    left = [(cut, database, wal[:cut], early) for cut in cuts]
    # files are renamed, and events removed, once the event is on disk
    return left + [(*one[:3], folder / "lcb.db.archive") for one in left if one[0] >= Recorded.flushed]


@pytest.fixture(scope="module")
def lost(old: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, bytes, bytes, Path]]:
    with pytest.MonkeyPatch.context() as patch:
        take_small_steps(patch)
        return lose_power(old, tmp_path_factory.mktemp("power") / "log")


def recover(old: Path, folder: Path, cut: int, database: bytes, wal: bytes, archive: Path) -> None:
    first = Unsynced(old / "lcb.db")
    truth, users = list_ids(first, old / "lcb.db.archive"), fold_log(first)
    first.close()
    folder.mkdir()
    (folder / "lcb.db").write_bytes(database)
    (folder / "lcb.db-wal").write_bytes(wal)
    shutil.copytree(archive, folder / "lcb.db.archive")
    check_recovery(folder, truth, users, f"with {cut} bytes of the write-ahead log, {Recorded.flushed} for the event")


def test_a_loss_of_power_leaves_the_old_log_or_the_new_one(
    old: Path, lost: list[tuple[int, bytes, bytes, Path]], tmp_path: Path
) -> None:
    assert 0 < Recorded.flushed < max(cut for cut, *_ in lost)
    for i, one in enumerate(lost):
        recover(old, tmp_path / f"lost{i}", *one)


def test_files_that_are_renamed_before_the_event_is_on_disk_are_found_out(
    old: Path, lost: list[tuple[int, bytes, bytes, Path]], tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable, match="the archive is of a later state of the log"):
        recover(old, tmp_path / "early", *lost[0][:3], lost[-1][3])


def test_nothing_is_removed_that_is_not_in_the_archive(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives.Writer, "flush", lambda self: None)
    with pytest.raises(StoreUnavailable, match=r"the archive .* has events up to"):
        compact_copy(old, tmp_path / "lost")
    assert count_events(tmp_path / "lost") == count_events(old), "an event is lost"


def test_a_compaction_that_does_not_look_at_its_archive_is_found_out(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archive, "list_parts", lambda self: [])
    monkeypatch.setattr(archives.Writer, "flush", lambda self: None)
    compact_copy(old, tmp_path / "lost")
    assert count_events(tmp_path / "lost") < count_events(old)


def test_kill_9_of_compactions_and_of_the_service_loses_nothing(tmp_path: Path) -> None:
    """The command runs beside a service that is asked all the time; both are killed."""
    chance, acknowledged = random.Random(0), list[str]()
    command = [
        sys.executable,
        "-c",
        "from lcb.cli.main import main; main()",
        "log",
        "compact",
        "lcb.db",
        "--keep",
        "0s",
    ]
    for n in range(KILLS):
        with serving(tmp_path, pages=False, recommenders=[{"name": "own", "bandit": "lints"}]) as server:
            with server.client() as http:
                ask(http, acknowledged, 40, chance)
                compacting = subprocess.Popen(
                    command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                while compacting.poll() is None and not list(tmp_path.rglob("*.new")):
                    ask(http, acknowledged, 1, chance)
                time.sleep(chance.random() * 0.2 * (n > 0))
                compacting.kill()
                compacting.wait()
                ask(http, acknowledged, 10, chance)
            server.kill()
        store, archive = open_store(str(tmp_path / "lcb.db"), create=False), tmp_path / "lcb.db.archive"
        try:
            base = read_base(store)
            settle_archive(store, archive, 0 if base is None else base.upto)
            assert verify(store).differences == []
            assert set(acknowledged) <= set(list_ids(store, archive)), "an acknowledged event is lost"
            compaction.compact(store, archive, 0.0, sleep=lambda seconds: None)
            assert verify_whole(store, archive).differences == []
            assert set(acknowledged) <= set(list_ids(store, archive))
        finally:
            store.close()


def ask(http: httpx.Client, acknowledged: list[str], n: int, chance: random.Random) -> None:
    """Make decisions, and reward them; what was answered must never be lost."""
    for _ in range(n):
        arms = [{"id": f"a{i}", "x": [chance.gauss(0, 1) for _ in range(3)]} for i in range(3)]
        made = (
            http.post("/v1/decisions", json={"user": f"u{chance.randrange(9)}", "arms": arms}).raise_for_status().json()
        )
        acknowledged.append(made["decision_id"])
        rewarded = http.post("/v1/rewards", json={"decision_id": made["decision_id"], "reward": 1.0})
        if rewarded.status_code != 410:  # archived already
            rewarded.raise_for_status()
            acknowledged.append(f"r/{made['decision_id']}")


# Erasure


def read_archive(folder: Path) -> bytes:
    """All values of all files, decompressed."""
    tables = [pq.read_table(path) for path in sorted(folder.rglob("*.parquet*"))]
    return b"".join(repr(table.to_pylist()).encode() for table in tables)


def test_erasure_reaches_the_archive_also_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OldLog(tmp_path / "log", 5, "once", n_users=6) as log:
        log.decide("person-to-erase", decision_id="personal-id")
        log.reward("personal-id", 3.0)
        log.live(3)
        log.compact(DAY)
        assert b"person-to-erase" in read_archive(log.archive)
        assert b"personal-id" in read_archive(log.archive)
        n_rows = sum(len(pq.read_table(path)) for path in (log.archive / "rewards").glob("*"))
        with monkeypatch.context() as patch:  # the process ends after the event is stored
            patch.setattr(Archive, "finish", lambda self, prepared: None)
            assert log.erase_now("person-to-erase") == 2
        log.crash()
        left = read_archive(log.archive)
        assert b"person-to-erase" not in left
        assert b"personal-id" not in left, "erasure does not reach the archive"
        assert sum(len(pq.read_table(path)) for path in (log.archive / "rewards").glob("*")) == n_rows - 1
        assert log.service.world.user("person-to-erase") is None
        with pytest.raises(Problem, match="no user"):
            log.erase_now("person-to-erase")
        check(log)
        assert log.decide("person-to-erase", decision_id="personal-id")["decision_id"] == "personal-id"


def test_nobody_is_erased_while_the_archive_is_away(tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 5, "once", n_users=6) as log:
        log.live(3)
        log.compact(DAY)
        (log.archive / "events").rename(log.archive / "away")
        before = log.store.chain_head()
        with pytest.raises(StoreUnavailable, match="has events up to 0"):
            log.erase_now("u1")
        assert log.store.chain_head() == before
        with pytest.raises(StoreUnavailable, match="give the folder"):
            read_training_data(open_whole(log.store, log.archive), before.seq, "once", ())
        (log.archive / "away").rename(log.archive / "events")
        assert log.erase_now("u1") > 0
        check(log)
        away = log.archive.rename(log.folder / "away")
        with pytest.raises(StoreUnavailable, match="has events up to 0"):
            log.erase_now("u2")
        with pytest.raises(StoreUnavailable, match="has events up to 0"):
            log.compact(0.0)
        log.crash()
        assert not log.archive.exists(), "a folder in the archive's place keeps it from being moved back"
        away.rename(log.archive)
        assert log.erase_now("u2") > 0
        check(log)


def test_only_the_service_reads_its_archive(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with OldLog(tmp_path / "log", 5, "once", n_users=6) as log:
            log.live(3)
            log.compact(DAY)
            log.erase_now("u1")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (log.archive, *log.archive.rglob("*"))}
    assert len(modes) > 5
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


# What an archived decision still gets, and what is learned


def test_an_archived_decision_takes_no_reward_and_its_id_is_taken(tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 6, "once") as log:
        log.decide("ann", decision_id="old")
        log.decide("ben", decision_id="rewarded")
        log.reward("rewarded", 1.0)
        log.live(3)
        log.compact(DAY)
        for again in range(2):  # with what is in memory, and without it
            assert log.status(log.begin_reward("old", 1.0)) == 410
            assert log.status(log.begin_reward("rewarded", 1.0)) == 410
            assert log.status(log.begin_decide("ann", decision_id="old")) == 410
            assert log.status(log.begin_reward("never", 1.0)) == 404
            if not again:
                log.crash()
        answer = log.decide("ann", decision_id="new")
        assert log.reward("new", 1.0)["decision_id"] == answer["decision_id"]
        check(log)


def test_what_is_learned_from_the_archive_is_exact(tmp_path: Path) -> None:
    """The files of rewards are a table for `lcb learn`; with the log after them, the service learns as before."""
    with OldLog(tmp_path / "log", 7, "last") as log:
        log.live(4)
        head = log.store.head()
        before = read_training_data(log.store, head, "last", ()), read_item_rows(log.store, head, "last", ())
        done = log.compact(2 * DAY)
        archived = read_log(log.archive / "rewards")
        whole = open_whole(log.store, log.archive)
        after = read_training_data(whole, head, "last", ()), read_item_rows(whole, head, "last", ())
        assert before[0].stats.packed.tobytes() == after[0].stats.packed.tobytes()
        for name in ("x", "user", "item", "reward"):
            assert getattr(before[1][0], name).tobytes() == getattr(after[1][0], name).tobytes()
        rewards = [row for row in whole.events(0, done.upto) if row.kind == "reward" and "#" not in row.id]
        assert archived.stats.n_events == len(rewards) > 10
        assert set(archived.stats.users) == {row.user for row in rewards}
        n = export(log.store, tmp_path / "new.parquet").n_rows
        with open_restored(log.store, log.archive) as restored:
            assert export(restored, tmp_path / "all.parquet").n_rows > n


# Changes behind the service's back


def change_user(folder: Path) -> None:
    run(
        folder,
        "update event set body = replace(body, x'a36c6362', x'a36c6363') where kind = 'base' and body like '%lcb%'",
    )
    run(folder, "update event set body = cast(body || x'00' as blob) where kind = 'base'")


def remove_user(folder: Path) -> None:
    run(folder, "delete from event where seq = (select max(seq) from event where kind = 'base')")


def change_setting(folder: Path) -> None:
    run(folder, "update event set model = 7 where seq = (select min(seq) from event where kind = 'recommender')")


def add_event(folder: Path) -> None:
    run(folder, "update event set seq = -5 where seq = (select min(seq) from event where kind = 'items')")


def run(folder: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(folder / "lcb.db")
    with connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


def count_events(folder: Path) -> int:
    return int(run(folder, "select count(*) from event where kind != 'compact'")[0][0])


@pytest.mark.parametrize("change", [change_user, remove_user, change_setting, add_event])
def test_a_changed_base_is_found(change: Callable[[Path], None], old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "log")
    change(tmp_path / "log")
    store = Unsynced(tmp_path / "log" / "lcb.db")
    try:
        assert any("the base" in str(one) for one in verify(store).differences)
    finally:
        store.close()


def test_a_changed_archive_is_found(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "log")
    folder = tmp_path / "log" / "lcb.db.archive"
    path = sorted((folder / "events").glob("*.parquet"))[0]
    rows = pq.read_table(path).to_pylist()
    i = next(i for i, row in enumerate(rows) if row["kind"] == "reward")
    body = events.decode("reward", rows[i]["body"])
    body.reward = 9.0
    rows[i]["body"] = events.encode(body)
    archives._write_table(path, archives.pa.Table.from_pylist(rows, schema=archives.SCHEMA))
    store = Unsynced(tmp_path / "log" / "lcb.db")
    try:
        assert verify(store).differences == []  # the log itself is as it was
        report = verify_whole(store, folder)
        assert report.first == rows[i]["seq"]
        assert "is not what was written at this place" in str(report.differences[0])
    finally:
        store.close()
