"""An event that cannot be read is named by verify as the first wrong one, and by every command in one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lcb.errors import LCBError
from lcb.serve.audit.describe import describe_row
from lcb.serve.audit.export import export
from lcb.serve.audit.trail import read_trail
from lcb.serve.audit.verify import verify
from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store
from support.sessions import run_session

COMMANDS: dict[str, Callable[[Store, Path], object]] = {
    "export": lambda store, folder: export(store, folder / "out.parquet", missing=None),
    "show": lambda store, _: [describe_row(row) for row in store.events(0)],
    "audit": lambda store, _: read_trail(store),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = run_session(tmp_path / "lcb.db")
    made.close()
    return tmp_path / "lcb.db"


def run(place: Path, *statements: str, values: tuple[object, ...] = ()) -> Any:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        for statement in statements:
            found = connection.execute(statement, values).fetchall()
        return found


def list_texts(value: Any) -> list[str]:
    """Return the texts in a body, its names of fields left out."""
    if isinstance(value, str):
        return [value] if len(value) > 1 else []
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for one in inside for text in list_texts(one)]


def spoil(place: Path, kind: str) -> int:
    """Change one byte of a text in the body of an event of this kind, so that it is not UTF-8; returns its seq."""
    for seq, body in run(place, "select seq, body from event where kind = ? order by seq desc", values=(kind,)):
        for text in list_texts(msgspec.msgpack.decode(body)):
            at = body.find(text.encode())
            run(place, "update event set body = ? where seq = ?", values=(body[:at] + b"\xff" + body[at + 1 :], seq))
            return int(seq)
    raise AssertionError(f"no {kind} with a text")


def find_first(place: Path) -> int | None:
    with closing(open_store(str(place))) as store:
        return verify(store).first


def give_up(place: Path, folder: Path, command: str) -> str:
    """Return the sentence in which a command ends."""
    with closing(open_store(str(place))) as store, pytest.raises(LCBError) as caught:
        COMMANDS[command](store, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def loosen(place: Path) -> None:
    """Let the table of events take values of any type."""
    run(
        place,
        "pragma writable_schema = on",
        "update sqlite_schema set sql = replace(sql, ') strict', ')') where name = 'event'",
        "pragma writable_schema = reset",
    )


@pytest.mark.parametrize("kind", ["service", "items", "decision", "reward", "model", "activate"])
def test_a_text_that_is_no_utf8_is_named_by_verify(place: Path, kind: str) -> None:
    seq = spoil(place, kind)
    assert find_first(place) == seq


@pytest.mark.parametrize(
    ("kind", "command"), [("decision", "export"), ("items", "export"), ("decision", "show"), ("activate", "audit")]
)
def test_a_text_that_is_no_utf8_is_named_by_every_command(place: Path, tmp_path: Path, kind: str, command: str) -> None:
    seq = spoil(place, kind)
    assert f"event {seq} of the log cannot be read" in give_up(place, tmp_path, command)


def test_settings_in_an_event_that_cannot_be_read_are_named(place: Path, tmp_path: Path) -> None:
    """The settings of a recommender are JSON within the body."""
    (seq,) = run(place, "select max(seq) from event where kind = 'recommender'")[0]
    body = bytearray(run(place, f"select body from event where seq = {seq}")[0][0])
    body[body.index(b'"bandit"') + 2] = 0xFF
    run(place, "update event set body = ? where seq = ?", values=(bytes(body), seq))
    assert find_first(place) == seq
    assert f"event {seq} of the log cannot be read" in give_up(place, tmp_path, "export")


@pytest.mark.parametrize("column", ["kind", "id", "user", "body", "salt", "link"])
def test_a_value_of_another_type_is_named(place: Path, tmp_path: Path, column: str) -> None:
    (seq,) = run(place, "select seq from event where kind = 'decision' order by seq desc limit 1")[0]
    loosen(place)
    other = "text" if column == "body" else "blob"
    change = f'cast("{column}" as {other})' if column not in ("salt", "link") else "'text'"
    if column == "body":
        change = "'text'"
    run(place, f'update event set "{column}" = {change} where seq = {seq}')
    assert find_first(place) == seq
    if column in ("id", "user", "body"):
        assert f"event {seq} of the log cannot be read" in give_up(place, tmp_path, "export")


def test_a_second_event_of_an_id_that_is_a_blob_is_named(place: Path, tmp_path: Path) -> None:
    (seq,) = run(place, "select max(seq) from event")[0]
    loosen(place)
    run(
        place,
        f"insert into event select {seq + 1}, cast(id as blob), kind, user, model, body, salt, digest, link, common "
        "from event where seq = (select max(seq) from event where kind = 'decision')",
    )
    assert find_first(place) == seq + 1
    assert f"event {seq + 1} of the log cannot be read" in give_up(place, tmp_path, "export")


@pytest.mark.parametrize("column", ["id", "kind", "user", "body"])
def test_a_column_that_is_no_utf8_is_named(place: Path, tmp_path: Path, column: str) -> None:
    """SQLite takes any bytes for a text."""
    (seq,) = run(place, "select seq from event where kind = 'decision' order by seq desc limit 1")[0]
    if column == "body":
        loosen(place)
    run(place, f"update event set \"{column}\" = cast(x'41ff' as text) where seq = {seq}")
    assert find_first(place) == seq
    assert f"event {seq} of the log cannot be read" in give_up(place, tmp_path, "show")
    if column != "kind":  # an event of another kind is none that is exported
        give_up(place, tmp_path, "export")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e308])
@pytest.mark.parametrize(("kind", "at"), [("reward", 3), ("erase", 3)])
def test_a_reward_that_is_no_number_is_named_before_it_is_added_up(
    place: Path, tmp_path: Path, kind: str, at: int, number: float
) -> None:
    """The exact sum of such numbers has no end."""
    seq, body = run(place, "select seq, body from event where kind = ? order by seq limit 1", values=(kind,))[0]
    value = msgspec.msgpack.decode(body)
    value[at] = number if kind == "reward" else [[*one[:3], number, one[4]] for one in value[at]]
    run(place, "update event set body = ? where seq = ?", values=(msgspec.msgpack.encode(value), seq))
    with closing(open_store(str(place))) as store:
        report = verify(store)
    assert report.first == seq
    assert f"unreadable (the body of this {kind}: {number} is no reward)" in "\n".join(map(str, report.differences))
    if kind == "reward":
        assert f"event {seq} of the log cannot be read" in give_up(place, tmp_path, "export")
