"""Erasures of users with archived events that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.errors import StoreUnavailable
from lcb.serve.audit.check_archive import verify_whole
from lcb.serve.errors import Problem
from support.inside import Unsynced
from support.old_log import DAY, OldLog


def test_an_erasure_that_the_store_refuses_forgets_no_archived_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("the store is busy")

    with OldLog(tmp_path / "log", 5, n_users=4) as log:
        log.decide("ann", decision_id="old")
        log.live(2)
        log.compact(DAY)
        with monkeypatch.context() as patch:
            patch.setattr(Unsynced, "erase", refuse)
            with pytest.raises(Problem, match="the store is busy"):
                log.erase_now("ann")
        assert log.status(log.begin_decide("ann", decision_id="old")) == 410
        assert verify_whole(log.store, log.archive).differences == []
        log.erase_now("ann")
        assert log.decide("ann", decision_id="old")["decision_id"] == "old"
        assert verify_whole(log.store, log.archive).differences == []
