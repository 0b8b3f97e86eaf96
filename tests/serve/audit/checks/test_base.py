"""Rows that a compaction leaves are bound to the chain by what they say, not by the digest that is stored with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import StoreError
from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.base_bodies import ErasedBase
from lcb.serve.retain.compact import compact
from lcb.serve.service import Service
from lcb.serve.web.keys import create, revoke
from lcb.storage.store.base import SEALED, Row, Seal
from lcb.storage.store.chain import compute_digest
from support.inside import Unsynced
from support.old_log import DAY, OldLog, build_settings
from support.tampering import run_sql

NOBODY = events.Actor("nobody", "10.0.0.1")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compacted log with keys, a revoked one, and users who were erased before the compaction and after it."""
    folder = tmp_path_factory.mktemp("old") / "log"
    with OldLog(folder, 3, n_users=6) as log:
        for name, scope in (("ops", "admin"), ("shop", "writer")):
            create(log.store, name, scope, log.wall)
        revoke(log.store, "ops", log.wall)
        log.decide("early")
        log.decide("late")
        log.erase_now("early")
        log.live(3)
        log.compact(DAY)
        log.erase_now("late")
        log.live(1)
        log.stop()
        log.start()
    return folder


def find(folder: Path, kind: str, wanted: Callable[[Any], bool] = lambda body: True) -> tuple[Row, Seal, Any]:
    """Return the first event of a kind, and its body."""
    for one in run_sql(str(folder / "lcb.db"), f"select {SEALED} from event where kind = ? order by seq", (kind,)):
        body = events.decode(kind, one[5])
        if wanted(body):
            return Row(*one[:6]), Seal(*one[6:]), body
    raise AssertionError(f"no such {kind}")


def forge(folder: Path, row: Row, seal: Seal, body: Any, kind: str | None = None) -> None:
    """Change an event, and store the digest that it had in place of its salt."""
    digest = seal.digest if seal.salt is None else compute_digest(seal.salt, row)
    id, kind = (row.id, row.kind) if kind is None else (f"erased/{row.seq}", kind)
    statement = 'update event set id = ?, kind = ?, "user" = null, body = ?, salt = null, digest = ? where seq = ?'
    run_sql(str(folder / "lcb.db"), statement, (id, kind, events.encode(body), digest, row.seq))
    run_sql(str(folder / "lcb.db"), "delete from snapshot")


def raise_the_scope_of_a_key(folder: Path) -> None:
    row, seal, body = find(folder, "key", lambda body: body.name == "shop")
    body.scope = "admin"
    forge(folder, row, seal, body)
    run_sql(str(folder / "lcb.db"), "update key set scope = 'admin' where name = 'shop'")


def let_a_revocation_be_of_nobody(folder: Path) -> None:
    row, seal, body = find(folder, "key", lambda body: body.action == "revoked")
    body.name = "nobody"
    forge(folder, row, seal, body)
    run_sql(str(folder / "lcb.db"), "update key set revoked = null where name = 'ops'")


def let_a_revocation_look_like_an_erased_user(folder: Path) -> None:
    row, seal, _ = find(folder, "key", lambda body: body.action == "revoked")
    forge(folder, row, seal, ErasedBase(), "erased base")
    run_sql(str(folder / "lcb.db"), "update key set revoked = null where name = 'ops'")


def change_who_erased(folder: Path) -> None:
    row, seal, body = find(folder, "erase")
    body.by = NOBODY
    forge(folder, row, seal, body)


def change_the_range_of_rewards(folder: Path) -> None:
    row, seal, body = find(folder, "service")
    body.reward_range = (-1e9, 1e9)
    forge(folder, row, seal, body)


def hide_a_key_in_an_erased_user(folder: Path) -> None:
    """The row of an erased user becomes an event that creates a key; its digest was never one of its content."""
    row, seal, _ = find(folder, "erased base")
    _, _, body = find(folder, "key", lambda body: body.name == "shop")
    body.name = "forged"
    forge(folder, row, seal, body, "key")
    key = "insert into key select 'forged', scope, sha256, created, revoked from key where name = 'shop'"
    run_sql(str(folder / "lcb.db"), key)


def add_an_event(folder: Path, kind: str, user: str | None) -> None:
    """Add an event where a compaction has removed the first one."""
    upto = find(folder, "compact")[2].upto
    there = {seq for (seq,) in run_sql(str(folder / "lcb.db"), "select seq from event")}
    seq = next(seq for seq in range(1, upto) if seq not in there)
    row, seal, _ = find(folder, kind)
    statement = f"insert into event({SEALED}) values({', '.join('?' * 9)})"
    run_sql(str(folder / "lcb.db"), statement, (*row._replace(seq=seq, id="forged", user=user), *seal))
    run_sql(str(folder / "lcb.db"), "delete from snapshot")


def add_a_reward_of_nobody(folder: Path) -> None:
    add_an_event(folder, "reward", None)


def add_a_refusal(folder: Path) -> None:
    """Of an address that was never refused anything."""
    body = events.RefusedBody(1.5e9, "10.0.0.9", 3, 401, "GET /v1/items")
    add_an_event(folder, "decision", None)
    change = "update event set kind = 'refused', model = null, body = ? where id = 'forged'"
    run_sql(str(folder / "lcb.db"), change, (events.encode(body),))


FORGERIES = [
    add_a_reward_of_nobody, add_a_refusal,
    raise_the_scope_of_a_key, let_a_revocation_be_of_nobody, let_a_revocation_look_like_an_erased_user,
    change_who_erased, change_the_range_of_rewards, hide_a_key_in_an_erased_user,
]  # fmt: skip


@pytest.mark.parametrize("change", FORGERIES)
def test_a_row_that_stays_is_found_if_it_was_changed_and_its_digest_kept(
    change: Callable[[Path], None], old: Path, tmp_path: Path
) -> None:
    shutil.copytree(old, folder := tmp_path / "log")
    store = Unsynced(folder / "lcb.db")
    try:
        assert verify(store).differences == []
        change(folder)
        assert "the base" in str(verify(store).differences[0])
        found = [str(one) for one in verify_whole(store, folder / "lcb.db.archive").differences]
        assert [one for one in found if "the base" in one], found
    finally:
        store.close()


@pytest.mark.parametrize("change", FORGERIES)
def test_no_service_starts_on_a_base_that_was_changed(
    change: Callable[[Path], None], old: Path, tmp_path: Path
) -> None:
    shutil.copytree(old, folder := tmp_path / "log")
    store = Unsynced(folder / "lcb.db")
    try:
        settings = build_settings("once", 6, folder / "lcb.db.archive")
        Service(settings, store)
        change(folder)
        with pytest.raises(StoreError, match=r"not what was written.*lcb log verify"):
            Service(settings, store)
    finally:
        store.close()


def change_and_keep_the_salt(folder: Path) -> None:
    row, _, body = find(folder, "service")
    body.reward_range = (-1e9, 1e9)
    run_sql(str(folder / "lcb.db"), "update event set body = ? where seq = ?", (events.encode(body), row.seq))


def change_an_event_after_the_base(folder: Path) -> None:
    row, _, body = find(folder, "decision")
    body.at += 1.0
    run_sql(str(folder / "lcb.db"), "update event set body = ? where seq = ?", (events.encode(body), row.seq))


@pytest.mark.parametrize("change", [change_who_erased, change_and_keep_the_salt, change_an_event_after_the_base])
def test_a_changed_log_is_not_compacted(change: Callable[[Path], None], old: Path, tmp_path: Path) -> None:
    """The new base would be made of what is there, and the change could not be found any more."""
    shutil.copytree(old, folder := tmp_path / "log")
    change(folder)
    store = Unsynced(folder / "lcb.db")
    try:
        now = max(events.decode(row.kind, row.body).at for row in store.events(0) if row.kind == "decision")
        with pytest.raises(StoreError, match="lcb log verify"):
            compact(store, folder / "lcb.db.archive", 0.5 * DAY, now=lambda: now, sleep=lambda seconds: None)
    finally:
        store.close()


@pytest.mark.parametrize("seq", [0, -5])
def test_an_event_with_a_number_below_one_is_found_in_a_compacted_log_too(seq: int, old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, folder := tmp_path / "log")
    row, seal, _ = find(folder, "decision")
    statement = f"insert into event({SEALED}) values({', '.join('?' * 9)})"
    run_sql(str(folder / "lcb.db"), statement, (*row._replace(seq=seq, id="forged"), *seal))
    store = Unsynced(folder / "lcb.db")
    try:
        assert f"added: an event with the number {seq}" in str(verify(store).differences[0])
    finally:
        store.close()
