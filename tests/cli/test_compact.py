"""`lcb log compact`, and what the other commands do with a compacted log."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from support.old_log import OldLog


@pytest.fixture
def store(tmp_path):
    """Two days of a log, long ago."""
    with OldLog(tmp_path / "shop", 2, n_users=8) as log:
        log.live(2)
        return log.folder / "lcb.db"


def test_a_log_is_compacted_verified_exported_and_learned(lcb, store):
    before = json.loads(lcb("log", "verify", store, "--json", "-").out)
    found = lcb("log", "compact", store, "--keep", "1d")
    assert found.code == 0, found
    assert "archived" in found.out
    assert "nothing to archive" in lcb("log", "compact", store, "--keep", "1d").out
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
    found = lcb("log", "compact", store, "--keep", "1s")
    assert "3 events with a time in the future" in found.out
    assert f"the log begins after event {head}" in found.out
    assert lcb("log", "verify", store, "--archive", f"{store}.archive").code == 0


def test_mistakes_are_told(lcb, store):
    assert "give a number and a unit" in lcb("log", "compact", store, "--keep", "90").err
    lcb("log", "compact", store, "--keep", "1d")
    missing = lcb("log", "verify", store, "--archive", "elsewhere")
    assert missing.code == 2
    assert "give the folder that lcb log compact has written" in missing.err
