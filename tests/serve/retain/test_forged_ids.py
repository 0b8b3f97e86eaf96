"""Ids that somebody adds to the table of archived decisions, so that nobody can use them, are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.errors import StoreError
from lcb.serve.audit.verify import verify
from lcb.storage.store.retention import hash_id
from support.old_log import DAY, OldLog
from support.tampering import run_sql


@pytest.mark.parametrize("compacted", [False, True])
def test_an_added_id_is_found_and_the_log_not_compacted(compacted: bool, tmp_path: Path) -> None:
    with OldLog(tmp_path / "log", 3, n_users=6) as log:
        log.live(2)
        if compacted:
            log.compact(DAY)
            log.live(1)
        assert verify(log.store).differences == []
        run_sql(log.store.url, "insert into archived(id) values(?)", (hash_id("never used"),))
        [found] = verify(log.store).differences
        assert "archived" in str(found)
        with pytest.raises(StoreError, match="table archived"):
            log.compact(DAY)
