"""scripts/postgres: a PostgreSQL server for the tests alone, on this machine only, removed afterwards."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "postgres"


def scripts_postgres(*arguments: str, **settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, **settings)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("test", ["one", "another"])
def test_each_test_has_a_database_of_its_own(postgres_database, test):
    with psycopg.connect(postgres_database) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        connection.execute("create table leftover (test text)")
    assert tables == (0,)


@pytest.fixture
def closed_late():
    connections = []
    yield connections
    for connection in connections:
        connection.close()


def test_a_connection_left_open_does_not_keep_the_database(closed_late, postgres_database):
    closed_late.append(psycopg.connect(postgres_database))  # closed only after the database is dropped


def test_the_server_keeps_its_promises_and_listens_here_alone(postgres_database):
    with psycopg.connect(postgres_database) as connection:
        for setting, wanted in [("fsync", "on"), ("synchronous_commit", "on"), ("listen_addresses", "127.0.0.1")]:
            assert connection.execute(f"show {setting}").fetchone() == (wanted,), setting
        assert connection.execute("show server_encoding").fetchone() == ("UTF8",)


def test_a_wrong_password_is_refused(postgres_url):
    assert answers(postgres_url)
    assert not answers(postgres_url.replace("lcb:", "lcb:0"))


def test_start_and_stop_leave_nothing_behind():
    url = scripts_postgres("start", check=True).stdout.strip()
    with psycopg.connect(url) as connection:
        (data,) = connection.execute("show data_directory").fetchone()
    assert scripts_postgres("stop", url).returncode == 0
    assert not answers(url)
    assert not os.path.lexists(os.path.dirname(data))
    assert scripts_postgres("stop", url).returncode == 0  # twice is as good as once


def test_a_server_that_was_halted_resumes_as_it_was():
    url = scripts_postgres("start", check=True).stdout.strip()
    try:
        with psycopg.connect(url) as connection:
            connection.execute("create table kept (test text)")
        scripts_postgres("halt", url, check=True)
        assert not answers(url)
        scripts_postgres("resume", url, check=True)
        with psycopg.connect(url) as connection:
            assert connection.execute("select count(*) from kept").fetchone() == (0,)
    finally:
        scripts_postgres("stop", url, check=True)


def test_the_server_stops_when_the_process_it_serves_is_killed():
    owner = subprocess.Popen(["sleep", "600"])
    url = scripts_postgres("start", "--while", str(owner.pid), check=True).stdout.strip()
    assert answers(url)
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 30
    while answers(url):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_where_postgresql_is_missing_the_line_to_run_is_printed(tmp_path):
    setup = (SCRIPT.parent / "setup.sh").read_text().replace("/usr/lib/postgresql", "/nowhere")
    (tmp_path / "setup.sh").write_text(setup)
    (tmp_path / "postgres").write_bytes(SCRIPT.read_bytes())
    (tmp_path / "bin").mkdir()
    for tool in ["bash", "dirname", "readlink", "sort", "id"]:
        (tmp_path / "bin" / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/usr/bin/bash", tmp_path / "postgres", "start"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "run: sudo apt-get install --no-install-recommends postgresql" in done.stderr
