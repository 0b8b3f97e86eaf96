"""Whatever somebody changes in a compacted store or its archive is found by a verification with the archive.

They may write to both, and compute digests and links anew: the events of the archive tell what the base must be.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lcb.errors import StoreError
from lcb.serve import events
from lcb.serve.audit.checks.base import check_digest
from lcb.serve.audit.checks.rows import check_rows
from lcb.serve.audit.report import Report
from lcb.serve.audit.verify import verify
from lcb.serve.audit.verify_archive import verify_whole
from lcb.serve.retain.archive import Archive
from lcb.serve.retain.whole_log import open_restored
from lcb.serve.state.canary import Verdict
from lcb.serve.web.keys import create, revoke
from lcb.storage.store.base import NewRow, Row, Seal
from lcb.storage.store.retention import GOING
from support.forging import ArchivedRows, change_value, forge_base, list_fields, read_compaction, read_rows
from support.inside import Unsynced
from support.old_log import DAY, OldLog
from support.tampering import run_sql

STAYING = sorted(set(events.KINDS) - set(GOING))  # kinds of rows that a base can have, and those of kept events
COLUMNS = [name for name in (*Row._fields, *Seal._fields) if name != "seq"]
FREE = {
    *(
        ("compact", name) for name in ("at", "keep", "address", "salt", "link")
    ),  # only a head of the log vouches for them
    ("compact", "body"),  # each field has its own test
    ("erased base", "digest"),  # of a row that is gone
}

VERDICT = msgspec.msgpack.encode(Verdict(99, False, 1, 0, 0, 0.0, 0.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was compacted twice, with every kind of row that stays."""
    folder = tmp_path_factory.mktemp("old") / "log"
    with OldLog(folder, 5, "sum", n_users=6) as log:
        create(log.store, "ops", "admin", log.wall)
        create(log.store, "shop", "writer", log.wall)
        revoke(log.store, "ops", log.wall)
        log.mark()
        log.decide("early")
        log.decide("late")
        log.erase_now("early")
        log.live(3)
        log.done(log.service.activate(0, "a drill", events.Actor(None, "here")))
        for kind, body in (
            ("teachers", events.TeachersBody(log.wall, [])),
            ("canary", events.CanaryBody(log.wall, 99, False, "void", VERDICT)),
        ):
            row = NewRow(f"{kind}/x", kind, None, None, events.encode(body))
            log.store.append([row], log.store.head())
        log.live(1)
        log.compact(1.5 * DAY)
        log.erase_now("late")
        log.live(3)
        log.compact(1.5 * DAY)
        log.live(1)
        log.stop()
        log.start()
    return folder


@pytest.fixture(scope="module")
def whole(old: Path) -> Any:
    """The log with its archived events, as they were before anybody changed the base."""
    store = Unsynced(old / "lcb.db")
    with open_restored(store, old / "lcb.db.archive") as restored:
        yield restored
    store.close()


@pytest.fixture
def copy(old: Path, tmp_path: Path) -> Any:
    shutil.copytree(old, folder := tmp_path / "log")
    store = Unsynced(folder / "lcb.db")
    yield store, folder / "lcb.db.archive"
    store.close()


def test_the_log_has_every_kind_and_is_right(copy: tuple[Any, Path]) -> None:
    store, archive = copy
    _, body = read_compaction(store.url)
    kinds = {row.kind for row, _ in read_rows(store.url, body.upto)}
    assert set(STAYING) <= kinds
    assert {"decision", "reward"} <= kinds
    assert verify(store).differences == []
    assert verify_whole(store, archive).differences == []
    forge_base(store)
    assert verify(store).differences == []


BASE_KINDS = [*STAYING, "decision", "reward"]
BODIES = [(kind, field) for kind in BASE_KINDS for field in list_fields(kind) if (kind, field) not in FREE]


def find_row(url: str, kind: str) -> tuple[Row, Seal]:
    """Return the last row of a kind up to the base."""
    compaction, body = read_compaction(url)
    upto = compaction.seq if kind == "compact" else body.upto
    return [(row, seal) for row, seal in read_rows(url, upto) if row.kind == kind][-1]


def is_found_in_base(store: Any, whole: Any, archive: Path) -> bool:
    """Whether the part of the verification that looks at the base names a difference."""
    check_rows(store, whole, Archive(archive, read_compaction(store.url)[1].upto), report := Report())
    check_digest(store, report)
    return bool(report.differences)


def is_found(store: Any, archive: Path) -> bool:
    """Whether the verification names a difference, or says what is wrong with the store or the archive as a whole."""
    try:
        return bool(verify_whole(store, archive).differences)
    except StoreError as error:
        return str(archive) in str(error) or str(store.url) in str(error)


@pytest.mark.parametrize(("kind", "field"), BODIES)
def test_a_changed_field_of_a_base_is_found(kind: str, field: str, copy: tuple[Any, Path], whole: Any) -> None:
    store, archive = copy
    row, _ = find_row(store.url, kind)
    body = events.decode(kind, row.body)
    other = change_value(getattr(body, field))
    if kind == "compact":
        forge_base(store, **{field: other})
        assert is_found(store, archive)
    else:
        setattr(body, field, other)
        run_sql(store.url, "update event set body = ? where seq = ?", (events.encode(body), row.seq))
        forge_base(store)
        assert is_found_in_base(store, whole, archive)


@pytest.mark.parametrize(
    ("kind", "column"), [(kind, name) for kind in BASE_KINDS for name in COLUMNS if (kind, name) not in FREE]
)
def test_a_changed_column_of_a_base_is_found(kind: str, column: str, copy: tuple[Any, Path], whole: Any) -> None:
    store, archive = copy
    row, seal = find_row(store.url, kind)
    value = {**row._asdict(), **seal._asdict()}[column]
    other = {"kind": "teachers" if kind == "audit" else "audit"}.get(column) or (
        b"x" * 32 if value is None and column in Seal._fields else change_value(value)
    )
    run_sql(store.url, f'update event set "{column}" = ? where seq = ?', (other, row.seq))
    forge_base(store)
    assert is_found(store, archive) if kind == "compact" else is_found_in_base(store, whole, archive)


@pytest.mark.parametrize("kind", [kind for kind in BASE_KINDS if kind != "compact"])
def test_a_row_that_was_removed_from_a_base_is_found(kind: str, copy: tuple[Any, Path], whole: Any) -> None:
    store, archive = copy
    run_sql(store.url, "delete from event where seq = ?", (find_row(store.url, kind)[0].seq,))
    forge_base(store)
    assert is_found_in_base(store, whole, archive)


@pytest.mark.parametrize("user", [None, "u1", "nobody"])
@pytest.mark.parametrize("kind", [kind for kind in events.KINDS if kind != "compact"])
def test_a_row_that_was_added_to_a_base_is_found(
    kind: str, user: str | None, copy: tuple[Any, Path], whole: Any
) -> None:
    store, archive = copy
    _, body = read_compaction(store.url)
    there = {row.seq for row, _ in read_rows(store.url)}
    seq = next(seq for seq in range(body.upto, 0, -1) if seq not in there)
    rows = [row for row, _ in read_rows(store.url) if row.kind == kind] or [
        Row(**{name: one[name] for name in Row._fields}) for one in ArchivedRows(archive).rows() if one["kind"] == kind
    ]
    content = rows[0].body if rows else b"\x90"
    salt, link = bytes(16), bytes(32)
    statement = (
        'insert into event(seq, id, kind, "user", model, body, salt, digest, link) values(?, ?, ?, ?, ?, ?, ?, ?, ?)'
    )
    run_sql(store.url, statement, (seq, "forged", kind, user, 0 if user else None, content, salt, None, link))
    forge_base(store)
    assert is_found_in_base(store, whole, archive)


def test_a_forged_base_row_is_found_by_the_whole_verification_and_by_no_other(copy: tuple[Any, Path]) -> None:
    store, archive = copy
    row, _ = find_row(store.url, "base")
    body = events.decode("base", row.body)
    body.n_events += 1
    run_sql(store.url, "update event set body = ? where seq = ?", (events.encode(body), row.seq))
    forge_base(store)
    assert verify(store).differences == []
    (found,) = verify_whole(store, archive).differences
    assert found.seq == row.seq
    assert f"the base row of {row.user!r} is not a fold of the archived events: n_events" in str(found)


@pytest.mark.parametrize("column", ["seq", *COLUMNS])
@pytest.mark.parametrize("kind", ["decision", "reward", "erased decision", "service", "erase", "key", "items"])
def test_a_changed_column_of_the_archive_is_found(kind: str, column: str, copy: tuple[Any, Path]) -> None:
    store, archive = copy
    archived = ArchivedRows(archive)
    row = next(row for row in archived.rows() if row["kind"] == kind)
    for value in (
        {"kind": "audit"}.get(column) or change_value(row[column] or b"" if column in Seal._fields else row[column]),
        None,
    ):
        if value == row[column]:
            continue
        value = str(value) if column == "user" and value is not None else value
        archived.change(row["seq"], {column: value})
        assert is_found(store, archive), (column, value)
        if column == "seq":
            return
        archived.change(row["seq"], {column: row[column]})
