"""`lcb log compact`, and what the other commands do with a compacted log."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lcb.serve.retain.archive import SCHEMA
from support.old_log import OldLog


@pytest.fixture
def store(tmp_path):
    """Two days of a log, long ago."""
    with OldLog(tmp_path / "shop", 2, n_users=8) as log:
        log.live(2)
        return log.folder / "lcb.db"


def test_a_log_is_compacted_verified_exported_and_learned(lcb, store):
    before = json.loads(lcb("log", "verify", store, "--json", "-").out)
    found = lcb("log", "compact", store, "--keep", "1d", "--idle")
    assert found.code == 0, found
    assert "archived" in found.out
    assert "nothing to archive" in lcb("log", "compact", store, "--keep", "1d", "--idle").out
    archive = f"{store}.archive"
    found = lcb("log", "verify", store)
    assert found.code == 0, found
    assert "the log begins after event" in found.out
    whole = json.loads(lcb("log", "verify", store, "--archive", archive, "--json", "-").out)
    assert whole["n_differences"] == 0
    assert whole["n_decisions"] == before["n_decisions"]
    assert "the base and the events after it" in lcb("log", "rebuild", store).out
    assert lcb("log", "export", store, "all.parquet", "--archive", archive).code == 0
    assert pq.read_table("all.parquet").num_rows > 5
    assert "compact" in lcb("log", "show", store, "--last", 1).out
    assert "archived the events up to" in lcb("log", "audit", store).out
    shown = lcb("log", "show", store, "--user", "u1").out
    assert "the state after" in shown
    found = lcb("learn", f"{archive}/rewards", "--learner", "em", "--classes", 1, "--out", "models")
    assert found.code == 0, found


def test_a_log_that_is_old_as_a_whole_is_archived_only_if_that_is_said(lcb, store):
    before = store.read_bytes()
    found = lcb("log", "compact", store, "--keep", "1d")
    assert found.code == 2
    assert "if the clock is right and nobody has asked since, give --idle" in found.err
    assert store.read_bytes() == before
    assert not Path(f"{store}.archive").exists()
    assert lcb("log", "compact", store, "--keep", "10000d").code == 0  # 27 years: nothing is older


def test_an_event_of_a_command_does_not_hide_that_the_clock_is_ahead(lcb, store):
    assert lcb("keys", "create", "new", "--scope", "reader", "--store", store).code == 0  # by the same clock
    found = lcb("log", "compact", store, "--keep", "1d")
    assert (found.code, "give --idle" in found.err) == (2, True)


def test_events_with_a_time_in_the_future_are_archived_with_those_around_them(lcb, tmp_path):
    with OldLog(tmp_path / "shop", 3, n_users=8) as log:
        log.live(1)
        wall, log.wall = log.wall, log.wall + 1e10  # three centuries
        for i in range(3):
            log.decide("ann", decision_id=f"ahead{i}")
        log.wall = wall
        log.live(1)
        head = log.store.head()
    store = log.folder / "lcb.db"
    found = lcb("log", "compact", store, "--keep", "1s", "--idle")
    assert "3 events with a time in the future" in found.out
    assert f"the log begins after event {head}" in found.out
    assert lcb("log", "verify", store, "--archive", f"{store}.archive").code == 0


def test_mistakes_are_told(lcb, store):
    assert "give a number and a unit" in lcb("log", "compact", store, "--keep", "90").err
    lcb("log", "compact", store, "--keep", "1d", "--idle")
    missing = lcb("log", "verify", store, "--archive", "elsewhere")
    assert missing.code == 2
    assert "give the folder that lcb log compact has written" in missing.err


def change_digit(head: str) -> str:
    return head[:-1] + ("0" if head[-1] != "0" else "1")


def test_heads_from_before_the_cut_are_checked_in_the_archive(lcb, tmp_path):
    store = tmp_path / "shop" / "lcb.db"
    with OldLog(tmp_path / "shop", 2, n_users=8) as log:
        log.live(1)
        head = str(log.store.chain_head())
        log.live(1)
        last = str(log.store.chain_head())
        log.compact(0.0)
    found = lcb("log", "verify", store, "--head", head)
    assert found.code == 0, found
    wrong = lcb("log", "verify", store, "--head", change_digit(head))
    assert wrong.code == 1
    assert "the given head: stored" in wrong.out
    Path("heads.txt").write_text(f"{change_digit(head)}\n{head}\n{last}\n")
    both = lcb("log", "verify", store, "--head", "heads.txt")
    assert both.code == 1
    assert "1 differences" in both.out
    Path(f"{store}.archive").rename("elsewhere")
    missing = lcb("log", "verify", store, "--head", "heads.txt")
    assert missing.code == 1
    assert f"not checked: head {head}" in missing.out
    assert f"there is no archive {store}.archive; give --archive FOLDER" in missing.out
    assert "2 given heads could not be checked" in missing.out
    assert lcb("log", "verify", store, "--head", head, "--archive", "elsewhere").code == 0


def test_a_log_that_was_written_anew_does_not_pass_with_an_old_head(lcb, store, tmp_path):
    head = lcb("log", "head", store).out.strip()
    with OldLog(tmp_path / "forged", 3, n_users=8) as forged:
        forged.live(3)
        forged.compact(0.0)
    other = tmp_path / "forged" / "lcb.db"
    found = lcb("log", "verify", other, "--head", head)
    assert found.code == 1, found
    assert f"event {head.partition(':')[0]}: in the archive" in found.out
    events = sorted(Path(f"{other}.archive").glob("events/*.parquet"))
    rows = pq.read_table(events[0]).to_pylist()
    seq, _, link = head.partition(":")
    rows[int(seq) - 1]["link"] = bytes.fromhex(link)  # a forged archive that has the head
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), events[0])
    found = lcb("log", "verify", other, "--head", head)
    assert found.code == 1
    assert "is not what was written at this place" in found.out


def test_a_head_at_the_cut_is_right_without_the_archive(lcb, store):
    head = lcb("log", "head", store).out.strip()
    assert lcb("log", "compact", store, "--keep", "0s", "--idle").code == 0
    Path(f"{store}.archive").rename("elsewhere")
    found = lcb("log", "verify", store, "--head", head)
    assert found.code == 0, found
    assert "the events up to it are archived" in found.out
    assert "earlier version" not in found.out
    assert "the given head: stored" in lcb("log", "verify", store, "--head", change_digit(head)).out


def test_ids_of_archived_decisions_are_compared_with_the_archive(lcb, store):
    lcb("log", "compact", store, "--keep", "0s", "--idle")
    with closing(sqlite3.connect(store)) as connection, connection:
        gone = connection.execute("delete from archived where id = (select min(id) from archived) returning id")
        assert gone.fetchall()
        connection.execute("insert into archived values (5)")
    found = lcb("log", "verify", store, "--archive", f"{store}.archive")
    assert found.code == 1
    assert "is not in the table of archived ids" in found.out
    assert "has 1 that no archived decision has" in found.out
    assert "3 differences" in found.out


@pytest.mark.parametrize("change", ["delete from archived", "insert into archived values (5)"])
def test_ids_of_archived_decisions_cannot_be_changed_unnoticed(lcb, store, tmp_path, change):
    lcb("log", "compact", store, "--keep", "1d", "--idle")
    assert lcb("log", "verify", store).code == 0
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(change)
    found = lcb("log", "verify", store)
    assert found.code == 1
    assert "ids of archived decisions were removed" in found.out
    with capture_logs() as lines, OldLog(tmp_path / "shop", 2, n_users=8):
        pass
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["archived ids"]


def test_an_archived_decision_that_is_decided_again_is_named(lcb, store, tmp_path):
    lcb("log", "compact", store, "--keep", "0s", "--idle")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("delete from archived")
    with OldLog(tmp_path / "shop", 2, n_users=8) as log:
        log.decide("u1", decision_id="d1")
    found = lcb("log", "verify", store, "--archive", f"{store}.archive")
    assert found.code == 1, found
    assert "the id 'd1': stored also the id of event" in found.out


def test_files_of_rewards_are_compared_with_the_archived_events(lcb, store):
    lcb("log", "compact", store, "--keep", "1d", "--idle")
    archive = Path(f"{store}.archive")
    path = next(archive.glob("rewards/*.parquet"))
    whole, table = path.read_bytes(), pq.read_table(path)

    def check(*words: str) -> None:
        found = lcb("log", "verify", store, "--archive", archive)
        assert found.code == bool(words), found
        assert all(one in found.out for one in words), found

    check()
    pq.write_table(table.set_column(2, "reward", pa.array([1 - one for one in table["reward"].to_pylist()])), path)
    check(path.name, "does not have the rewards that its events give")
    pq.write_table(table.slice(1), path)
    check(path.name, "does not have the rewards that its events give")
    path.unlink()
    check(path.name, "is missing")
    path.write_bytes(whole[:200])
    check(path.name, "is damaged")
    path.write_bytes(whole)
    (path.parent / "1-5.parquet").write_bytes(whole)
    check("1-5.parquet", "does not belong")
    (path.parent / "more.parquet").write_bytes(whole)
    found = lcb("log", "verify", store, "--archive", archive)
    assert found.code == 2
    assert "more.parquet is not a file of an archive" in found.err


def test_files_beside_those_of_the_archived_events_are_named(lcb, store):
    lcb("log", "compact", store, "--keep", "1d", "--idle")
    archive = Path(f"{store}.archive")
    path = next(archive.glob("events/*.parquet"))
    for name in (f"{path.name}.new", f"{path.name}.0123abcd.erased"):  # of an ended compaction, and of an erasure
        (path.parent / name).write_bytes(path.read_bytes())
    assert lcb("log", "verify", store, "--archive", archive).code == 0
    last = int(path.stem.split("-")[1])
    copies = [f"{last + 1}-{last}.parquet", f"{last + 9}-5.parquet", f"{path.name}.bak"]
    for name in copies:
        (path.parent / name).write_bytes(path.read_bytes())
        found = lcb("log", "verify", store, "--archive", archive)
        assert found.code == 1, name
        assert f"{path.parent / name} does not belong to the archive; remove it" in found.out
        assert "1 differences" in found.out
        (path.parent / name).unlink()
    for name in ("1-5.parquet", "2-5.parquet", f"1-{last}.parquet", "0-5.parquet"):
        (path.parent / name).write_bytes(path.read_bytes())
        found = lcb("log", "verify", store, "--archive", archive)
        assert found.code == 2, name
        assert str(path.parent / name) in found.err
        assert "remove" in found.err
        (path.parent / name).unlink()
    assert lcb("log", "verify", store, "--archive", archive).code == 0


def test_damaged_snapshots_are_told_with_the_archive_as_without_it(lcb, tmp_path):
    with OldLog(tmp_path / "shop", 2, n_users=8) as log:
        log.live(2)
        log.compact(0.0)
        log.live(1)
        log.stop()
    store = tmp_path / "shop" / "lcb.db"
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("update snapshot set body = x'00' where name = 'user/u1'")
    for more in ([], ["--archive", f"{store}.archive"]):
        found = lcb("log", "verify", store, *more)
        assert found.code == 0, found
        assert "1 damaged snapshot: not used by the service, and made again" in found.out
        assert " 0 snapshots" not in found.out
