"""Drill 17: one command rolls back; new users get the older version, the log records it, and it survives a crash.

Users who are pinned keep their version, all others go back with the new users.
"""

from __future__ import annotations

import io
import sqlite3
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

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


def drill(folder: Path, without: tuple[str, ...] = (), *, pin: bool = False) -> None:
    settings: dict[str, Any] = {"pages": False, "learning": {"pin": pin}}
    start(folder, models=models_folder(folder, 0), **settings).stop()
    server = start(folder, models=models_folder(folder, 1), without=without, **settings)
    kept = 2 if pin else 1  # the version of a user who was served by version 2 before
    try:
        assert model_of(server, "ann") == 2
        said = io.StringIO()
        with redirect_stdout(said):
            assert run(["models", "activate", "1", "--reason", "too much sport", "--url", server.address]) == 0
        assert (
            said.getvalue() == "version 1 is active: new users get it, and all users who are not pinned to a version\n"
        )
        assert model_of(server, "bob") == 1
        assert model_of(server, "ann") == kept
        server.kill()
        server = start(folder, **settings)
        assert model_of(server, "cem") == 1, "a restart undid it"
        assert (model_of(server, "bob"), model_of(server, "ann")) == (1, kept)
    finally:
        server.kill()
    connection = sqlite3.connect(folder / "lcb.db")
    rows = connection.execute("select body from event where kind = 'activate'").fetchall()
    connection.close()
    (body,) = (events.decode("activate", body) for (body,) in rows)
    assert (body.version, body.reason) == (1, "too much sport")


@pytest.mark.parametrize("pin", [True, False])
def test_one_command_rolls_back_for_good(tmp_path: Path, pin: bool) -> None:
    drill(tmp_path, pin=pin)


def test_a_service_that_does_not_log_it_forgets(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a restart undid it"):
        drill(tmp_path, without=("logged activations",))
