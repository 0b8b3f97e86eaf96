"""Drill 30: soon after a user is erased from a PostgreSQL store, no data file of the database contains them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import psycopg
import pytest

from lcb.serve.audit.verify import verify
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving

NAME = "Person-of-Interest"
ROUNDS = 400 if LONG else 10
WITHIN = 30.0 if LONG else 60.0  # seconds; about 2 on a machine that does nothing else


def send(server: Server, rounds: int) -> None:
    """Send decisions of the person to be erased and of others; ids and items contain the person's name too."""
    rng = np.random.default_rng(0)
    with server.client() as http:
        for i in range(rounds):
            for who in (NAME, f"user{i % 7}", f"user{i % 5}"):
                offered = [{**arm, "id": f"film-{j}-for-{who}"} for j, arm in enumerate(arms(rng, 4))]
                body = {"user": who, "arms": offered, "decision_id": f"{who}.{i}.{rng.integers(1e9)}"}
                answer = http.post("/v1/decisions", json=body)
                assert answer.status_code == 200, answer.text
                reward = {"decision_id": answer.json()["decision_id"], "reward": 1.0}
                assert http.post("/v1/rewards", json=reward).status_code == 200


def hits(url: str, text: str) -> dict[str, int]:
    """Count how often the data files contain the text, after a checkpoint."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")
        (data,) = connection.execute("show data_directory").fetchone()
        (oid,) = connection.execute("select oid from pg_database where datname = current_database()").fetchone()
    files = [file for file in (Path(data) / "base" / str(oid)).iterdir() if file.is_file()]
    found = {}
    for file in files:
        try:
            found[file.name] = file.read_bytes().count(text.encode())
        except FileNotFoundError:
            continue  # a rewritten table has a new file
    return {name: n for name, n in found.items() if n}


def load(server: Server, stop: threading.Event, refused: list[str]) -> None:
    rng = np.random.default_rng(1)
    with server.client() as http:
        while not stop.is_set():
            answer = http.post("/v1/decisions", json={"user": f"user{rng.integers(5)}", "arms": arms(rng, 4)})
            if answer.status_code != 200:
                refused.append(answer.text)
            time.sleep(0.02)


def drill(url: str, folder: Path, without: tuple[str, ...] = (), within: float = WITHIN) -> None:
    given = {"store": url, "models": models_folder(folder), "without": without}
    given["limits"] = {"cached_bytes": 1200}  # the others are in snapshots
    stop, refused = threading.Event(), []
    with serving(folder, **given) as server, server.client() as http:
        send(server, ROUNDS)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("analyze")  # the server keeps samples of the columns
            assert connection.execute("select from snapshot where name = %s", (f"user/{NAME}",)).fetchone() is not None
        assert hits(url, NAME), "the test sees nothing"
        thread = threading.Thread(target=load, args=(server, stop, refused))
        thread.start()
        try:
            assert http.delete(f"/v1/users/{NAME}").status_code == 200
            until = time.monotonic() + within
            while left := hits(url, NAME):
                assert time.monotonic() < until, f"{sum(left.values())} hits are left"
                time.sleep(0.1)
        finally:
            stop.set()
            thread.join()
        assert refused == []
        assert hits(url, "film-1-for-user3")
    store = open_store(url)
    try:
        assert verify(store).differences == []
    finally:
        store.close()


def test_who_is_erased_is_soon_in_no_data_file(new_postgres_database: str, tmp_path: Path) -> None:
    drill(new_postgres_database, tmp_path)


@pytest.mark.parametrize("protection", ["scrubbing", "rewriting"])
def test_without_a_rewrite_of_the_tables_the_person_is_left_in_free_space(
    new_postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str
) -> None:
    monkeypatch.setitem(globals(), "ROUNDS", 30)  # more than what is written meanwhile overwrites
    with pytest.raises(AssertionError, match="hits are left"):
        drill(new_postgres_database, tmp_path, (protection,), within=2.5)


def test_a_service_killed_right_after_an_erasure_finishes_it_when_it_is_started_again(
    new_postgres_database: str, tmp_path: Path
) -> None:
    url = new_postgres_database
    with serving(tmp_path, store=url, without=("scrubbing",)) as server, server.client() as http:
        send(server, 10)
        assert http.delete(f"/v1/users/{NAME}").status_code == 200
        server.kill()
    assert hits(url, NAME), "the test sees nothing"
    with serving(tmp_path, store=url):
        until = time.monotonic() + WITHIN
        while left := hits(url, NAME):
            assert time.monotonic() < until, f"{sum(left.values())} hits are left"
            time.sleep(0.1)
