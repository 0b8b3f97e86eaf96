"""Drill 29: the file of the store is removed or replaced while it is served; nothing acknowledged is lost.

Nor is anything confirmed that the store no longer has, in a file or on a server that lost commits.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from lcb.errors import StoreError
from lcb.serve.audit.verify import verify
from lcb.storage.store.sqlite.file import ServerLock
from lcb.storage.store.sqlite.store import SQLite
from support.harness import LONG, Server, arms, models_folder, serving, start
from support.tampering import run_sql

N = 400 if LONG else 40
NOTICED = 1.0  # seconds
SLACK = 2.0 if LONG else 59.0  # seconds, for a busy machine


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """Replace the file as a restore from backup does, without stopping the service first."""
    shutil.copyfile(path, path.with_name("other.db"))
    os.replace(path.with_name("other.db"), path)


def remove_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def move_away(path: Path) -> None:
    for part in ("", "-wal", "-shm"):
        os.rename(f"{path}{part}", f"{path.with_name('away.db')}{part}")


def move_back(path: Path) -> None:
    for part in ("", "-wal", "-shm"):
        os.rename(f"{path.with_name('away.db')}{part}", f"{path}{part}")


def decide(http: httpx.Client, i: int) -> httpx.Response:
    return http.post("/v1/decisions", json={"user": f"u{i % 7}", "arms": arms(np.random.default_rng(i), 5)})


def drill(folder: Path, act: Callable[[Path], None], *, without: tuple[str, ...] = (), idle: bool = False) -> None:
    path = folder / "lcb.db"
    with serving(folder, without=without, models=models_folder(folder)) as server, server.client() as http:
        known = [decide(http, i).json()["decision_id"] for i in range(5)]
        rewards = [{"decision_id": id, "reward": 1} for id in known]
        assert all(http.post("/v1/rewards", json=one).status_code == 200 for one in rewards)
        os.utime(folder, (1e9, 1e9))  # the folder has not changed for long
        assert decide(http, 5).status_code == 200
        act(path)
        if idle:
            wait_until_noticed(http)
        answers = [decide(http, i) for i in range(N)]
        kept = [one for one in answers if one.status_code == 200]
        assert not kept, f"{len(kept)} of {N} decisions are acknowledged and lost"
        for answer in answers:
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert "was removed or replaced" in answer.json()["detail"]
            assert "restore a backup" in answer.json()["detail"]
        assert http.get("/readyz").status_code == 503
        confirmed = [one for one in rewards if http.post("/v1/rewards", json=one).status_code != 503]
        assert not confirmed, f"{len(confirmed)} of 5 rewards are confirmed from memory and lost"
        assert http.get("/v1/users/u1").status_code == 503
        assert http.get("/healthz").status_code == 200
        check_operational_log(server)
        if act is move_away:
            move_back(path)
            resume(http)
            assert all(http.post("/v1/rewards", json=one).status_code == 200 for one in rewards)
            assert server.stop() == 0
            check_log(path)


def wait_until_noticed(http: httpx.Client) -> None:
    began = time.monotonic()
    while http.get("/readyz").status_code == 200:
        assert time.monotonic() - began < NOTICED + SLACK, "nobody notices while there are no requests"
        time.sleep(0.05)
    assert http.get("/healthz").status_code == 200


def check_operational_log(server: Server) -> None:
    lines = [json.loads(line) for line in server.output.read_text().splitlines() if line.startswith("{")]
    told = [line for line in lines if line["event"] == "store" and "was removed or replaced" in line["error"]]
    assert [line["level"] for line in told] == ["error"], "the operational log has one line about it"


def resume(http: httpx.Client) -> None:
    until = time.monotonic() + NOTICED + SLACK
    while http.get("/readyz").status_code != 200:
        assert time.monotonic() < until, "the service does not resume when the file is back"
        time.sleep(0.05)
    assert decide(http, 99).status_code == 200


def check_log(path: Path) -> None:
    with closing(SQLite(path)) as store:
        assert verify(store).differences == []


@pytest.mark.parametrize("act", [remove, replace, remove_wal])
def test_a_file_that_is_gone_costs_refusals_and_no_decision(tmp_path: Path, act: Callable[[Path], None]) -> None:
    drill(tmp_path, act)


def lose_a_reward(url: str, folder: Path, without: tuple[str, ...] = ()) -> int:
    """Let the server come back without the last reward; return the status of that reward when it is sent again."""
    with serving(folder, without=without, models=models_folder(folder), store=url) as server, server.client() as http:
        reward = {"decision_id": decide(http, 0).json()["decision_id"], "reward": 1}
        before = run_sql(url, "select seq, link from head")[0]
        assert http.post("/v1/rewards", json=reward).status_code == 200
        with psycopg.connect(url) as connection:
            connection.execute("delete from event where seq > %s", [before[0]])
            connection.execute("update head set seq = %s, link = %s", before)
        wait_until_noticed(http)
        assert "is not the one that this service has applied" in http.get("/readyz").json()["detail"]
        assert http.get("/v1/models").status_code == (200 if without else 503)
        return http.post("/v1/rewards", json=reward).status_code


def test_a_reward_that_the_server_has_lost_is_not_confirmed(new_postgres_database: str, tmp_path: Path) -> None:
    assert lose_a_reward(new_postgres_database, tmp_path) == 503


def test_a_service_that_answers_from_memory_confirms_what_the_server_has_lost(
    new_postgres_database: str, tmp_path: Path
) -> None:
    assert lose_a_reward(new_postgres_database, tmp_path, ("known log",)) == 200


@pytest.mark.parametrize("removes", ["truncate event", "delete from event where seq > (select seq - 2 from head)"])
def test_events_that_the_owner_of_the_database_has_removed_are_missed_at_once(
    new_postgres_database: str, tmp_path: Path, removes: str
) -> None:
    """Nothing is acknowledged after them, though the table of the head is as it was."""
    url, models = new_postgres_database, models_folder(tmp_path)
    with serving(tmp_path, models=models, store=url) as server, server.client() as http:
        reward = {"decision_id": [decide(http, i).json()["decision_id"] for i in range(20)][-1], "reward": 1}
        assert http.post("/v1/rewards", json=reward).status_code == 200
        run_sql(url, removes)
        assert {decide(http, i).status_code for i in range(N)} == {503}
        assert "somebody removed events" in http.get("/readyz").json()["detail"]
        assert http.post("/v1/rewards", json=reward).status_code == 503
        assert http.get("/v1/models").status_code == 503


def test_a_service_that_answers_from_memory_confirms_what_is_gone(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="5 of 5 rewards are confirmed from memory and lost"):
        drill(tmp_path, remove, without=("known log",))


def test_a_file_that_is_moved_away_is_noticed_without_requests_and_resumed_when_it_is_back(tmp_path: Path) -> None:
    drill(tmp_path, move_away, idle=True)


def test_the_file_alone_is_moved_away_and_back_and_its_write_ahead_log_survives_a_crash(tmp_path: Path) -> None:
    """A connection opened meanwhile must not create the file: SQLite would delete the write-ahead log beside it."""
    path, away = tmp_path / "lcb.db", tmp_path / "away"
    with serving(tmp_path, models=models_folder(tmp_path)) as server, server.client() as http:
        assert all(decide(http, i).status_code == 200 for i in range(5))
        os.rename(path, away)
        wait_until_noticed(http)
        time.sleep(2.5)  # keys are read every second
        assert not path.exists()
        os.rename(away, path)
        resume(http)
        server.kill()
    check_log(path)
    with closing(SQLite(path)) as store:
        assert sum(row.kind == "decision" for row in store.events(0)) == 6


def copy_over(backup: Path, path: Path) -> None:
    """As `cp` does: name and inode stay."""
    path.write_bytes(backup.read_bytes())


def restore_into(backup: Path, path: Path) -> None:
    """As `.restore` of the sqlite3 shell does, by a transaction."""
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


def cut(backup: Path, path: Path) -> None:
    os.truncate(path, 0)


def cut_wal(backup: Path, path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def cut_end(backup: Path, path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3 * 4096)


def drill_overwritten(folder: Path, act: Callable[[Path, Path], None], *, without: tuple[str, ...] = ()) -> None:
    """Nobody is answered from a store that somebody has overwritten a second ago, and the backup can be restored."""
    path, backup = folder / "lcb.db", folder / "backup.db"
    with serving(folder, without=without, models=models_folder(folder)) as server, server.client() as http:
        first = [decide(http, i).json()["decision_id"] for i in range(20)]
        with closing(SQLite(path)) as store:
            store.backup(str(backup))
        second = [decide(http, i).json()["decision_id"] for i in range(20)]
        if act is not cut_wal:
            assert http.delete("/v1/users/u6").status_code == 200  # empties the write-ahead log
        if act is cut_end:
            assert all(
                decide(http, i).status_code == 200 for i in range(5)
            )  # all known events are in it, or far from the end
        time.sleep(NOTICED)
        act(backup, path)
        time.sleep(NOTICED + 0.2)
        until = time.monotonic() + (0 if without else SLACK)
        while decide(http, 0).status_code == 200:
            assert time.monotonic() < until, "decisions are acknowledged and lost"
            time.sleep(0.05)
        answers = [decide(http, i) for i in range(N)]
        assert {one.status_code for one in answers} == {503}
        assert all("was overwritten while it was in use" in one.json()["detail"] for one in answers)
        assert http.get("/readyz").status_code == 503
        assert http.post("/v1/rewards", json={"decision_id": second[0], "reward": 1}).status_code == 503
        assert server.stop() == 0
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    shutil.copyfile(backup, path)
    with serving(folder, models=models_folder(folder)) as server, server.client() as http:
        assert http.post("/v1/rewards", json={"decision_id": first[0], "reward": 1}).status_code == 200
        assert server.stop() == 0
    check_log(path)


@pytest.mark.parametrize("act", [copy_over, restore_into, cut, cut_end, cut_wal])
def test_a_file_that_is_overwritten_is_noticed(tmp_path: Path, act: Callable[[Path, Path], None]) -> None:
    drill_overwritten(tmp_path, act)


def test_a_service_that_does_not_look_for_events_it_knows_loses_decisions(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="decisions are acknowledged and lost"):
        drill_overwritten(tmp_path, copy_over, without=("known events",))


def test_a_service_that_does_not_look_at_its_file_loses_decisions(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"{N} of {N} decisions are acknowledged and lost"):
        drill(tmp_path, remove, without=("file check",))


# The lock


def drill_lock(folder: Path, without: tuple[str, ...] = ()) -> None:
    """Remove the file of the lock: a second service is refused, and the first goes on."""
    models = models_folder(folder)
    with serving(folder, without=without, models=models) as server, server.client() as http:
        assert decide(http, 0).status_code == 200
        (folder / "lcb.db.lock").unlink()
        assert decide(http, 1).status_code == 200
        words = start_second(folder, models)
        assert "is being served by another process" in words, "two services write one file"
        assert decide(http, 2).status_code == 200
        assert "is locked anew" in server.output.read_text()


def start_second(folder: Path, models: str) -> str:
    """Start another service on the same file; return in words why it did not start."""
    try:
        start(folder, models=models).kill()
    except RuntimeError as refused:
        return str(refused)
    return ""


def test_the_file_of_the_lock_is_removed_and_no_second_service_starts(tmp_path: Path) -> None:
    drill_lock(tmp_path)


def test_a_service_that_does_not_keep_its_lock_has_a_second_beside_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="two services write one file"):
        drill_lock(tmp_path, ("kept lock",))


def test_a_service_whose_lock_another_one_took_stores_nothing_until_that_one_ends(tmp_path: Path) -> None:
    models = models_folder(tmp_path)
    with serving(tmp_path, models=models) as server, server.client() as http:
        assert decide(http, 0).status_code == 200
        with closing(SQLite(tmp_path / "lcb.db")) as store:
            wal = Path(f"{store.path}-wal").stat().st_ino
            (tmp_path / "lcb.db.lock").unlink()
            other = ServerLock(store.path)
            wait_until_noticed(http)
            assert "served by another process" in decide(http, 1).json()["detail"]
            other.release()
            resume(http)
            assert Path(f"{store.path}-wal").stat().st_ino == wal
        assert server.stop() == 0
    check_log(tmp_path / "lcb.db")


# Who may read the files


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.glob("*.db*")}


def drill_modes(folder: Path, without: tuple[str, ...] = ()) -> str:
    """Check that only the owner may read the files, for any umask and any mode before; return the output."""
    before = os.umask(0)
    try:
        if (folder / "lcb.db").exists():
            os.chmod(folder / "lcb.db", 0o644)
        with serving(folder, without=without) as server, server.client() as http:
            body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
            assert http.post("/v1/decisions", json=body).status_code == 200
            found = modes(folder)
            output = server.output.read_text()
    finally:
        os.umask(before)
    assert set(found) >= {"lcb.db", "lcb.db-wal", "lcb.db-shm", "lcb.db.lock"}
    assert set(found.values()) == {0o600}, f"others may read {found}"
    return output


def test_only_the_owner_may_read_the_files_of_a_store(tmp_path: Path) -> None:
    drill_modes(tmp_path)
    assert "readable by others" in drill_modes(tmp_path)


def test_a_store_that_leaves_the_modes_to_the_umask_is_open_to_others(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="others may read"):
        drill_modes(tmp_path, ("private files",))


def test_a_file_that_is_no_store_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("user,item,reward\nann,a,1\n")
    os.chmod(file, 0o664)
    with pytest.raises(StoreError, match="not a store"):
        SQLite(str(file), create=False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
