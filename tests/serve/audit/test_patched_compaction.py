"""A changed program may leave a base that is no fold of the events; a head from before the compaction cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lcb.cli.commands.service.verify import _describe_report
from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.retain import compact as compaction
from lcb.serve.retain.base import digest_row
from lcb.serve.web.keys import create, read_keys, revoke
from lcb.storage.store.base import Head
from support.old_log import DAY, OldLog
from support.tampering import run_sql


class Patched(compaction._Plan):
    """Archives the events as they are, and leaves another event in place of the one that revoked a key."""

    def append(self, body: Any) -> Any:
        url = str(self.store.url)
        (row,) = [one for one in self.store.events(0) if one.kind == "key" and b"revoked" in one.body]
        forged = events.decode("key", row.body)
        forged.name = "nobody"
        run_sql(url, "update event set body = ? where seq = ?", (events.encode(forged), row.seq))
        run_sql(url, "update key set revoked = null")
        ((again, seal),) = self.store.sealed_events(row.seq - 1, row.seq)
        self.digests[row.seq] = digest_row(again, seal)
        return super().append(body)


def build(folder: Path) -> tuple[OldLog, Head]:
    """A log with a revoked key, compacted; and its head before that."""
    log = OldLog(folder, 3, n_users=6)
    create(log.store, "ops", "admin", log.wall)
    create(log.store, "shop", "writer", log.wall)
    revoke(log.store, "ops", log.wall)
    log.live(2)
    head = log.store.chain_head()
    log.live(1)
    log.compact(0.5 * DAY)
    return log, head


def test_a_head_from_before_a_compaction_does_not_vouch_for_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_Plan", Patched)
    log, head = build(tmp_path / "log")
    with log:
        assert "ops" in [key.name for key in read_keys(log.store, log.wall).keys]  # the revoked key is valid
        found = verify(log.store, heads=[head, log.store.chain_head()], archive=log.archive)
        assert found.is_clean  # the chain of the archive is right, and the base has its digest
        assert found.n_older_heads == 1
        (warning,) = [line for line in _describe_report(found) if line.startswith("warning: ")]
        assert warning.startswith("warning: 1 given head is from before the compaction; ")
        assert "its base was not checked: give --archive FOLDER" in warning
        whole = verify_whole(log.store, log.archive, heads=[head])
        assert "key 'ops' is valid in the table of keys, but event" in str(whole.differences[0])
        assert whole.n_older_heads == 0


def test_later_heads_and_no_heads_need_no_warning(tmp_path: Path) -> None:
    log, _ = build(tmp_path / "log")
    with log:
        for heads in ([], [log.store.chain_head()]):
            found = verify(log.store, heads=heads, archive=log.archive)
            assert found.is_clean
            assert "warning" not in " ".join(_describe_report(found))
