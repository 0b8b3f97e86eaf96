"""Drill 17: one command rolls back; new users get the older version, the log records it, and it survives a crash."""

from __future__ import annotations

import io
import sqlite3
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from lcb.cli.app import run
from lcb.serve import events
from support.harness import Server, arms, models_folder, start


def model_of(server: Server, user: str) -> int:
    with server.client() as http:
        answer = http.post("/v1/decisions", json={"user": user, "arms": arms(np.random.default_rng(0))})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["model"])


def drill(folder: Path, without: tuple[str, ...] = ()) -> None:
    start(folder, models=models_folder(folder, 0), pages=False).stop()
    server = start(folder, models=models_folder(folder, 1), without=without, pages=False)
    try:
        assert model_of(server, "ann") == 2
        said = io.StringIO()
        with redirect_stdout(said):
            assert run(["models", "activate", "1", "--reason", "too much sport", "--url", server.address]) == 0
        assert said.getvalue() == "new users get version 1\n"
        assert model_of(server, "bob") == 1
        assert model_of(server, "ann") == 2
        server.kill()
        server = start(folder, pages=False)
        assert model_of(server, "cem") == 1, "a restart undid it"
        assert (model_of(server, "bob"), model_of(server, "ann")) == (1, 2)
    finally:
        server.kill()
    connection = sqlite3.connect(folder / "lcb.db")
    rows = connection.execute("select body from event where kind = 'activate'").fetchall()
    connection.close()
    (body,) = (events.decode("activate", body) for (body,) in rows)
    assert (body.version, body.reason) == (1, "too much sport")


def test_one_command_rolls_back_for_good(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_service_that_does_not_log_it_forgets(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a restart undid it"):
        drill(tmp_path, without=("logged activations",))
