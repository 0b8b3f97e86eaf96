"""Drill 34: whoever changes, moves, adds or removes an event of the log is found, and the first wrong event is named.

Every case is tried on both stores; without the check of the chain, the same cases are not found.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lcb.errors import StoreError
from lcb.serve.audit.checks import order
from lcb.serve.audit.report import Report
from lcb.serve.audit.verify import verify
from lcb.storage.store.base import Head, NewRow, Row, Seal
from lcb.storage.store.chain import compute_digest, compute_link
from lcb.storage.store.open_store import open_store
from lcb.storage.store.postgres import store as postgres
from lcb.storage.store.sqlite import store as sqlite
from support.harness import LONG
from support.sessions import run_session
from support.tampering import Tampered, check_chain

ERASED = "u1"


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest, rows: list[Row], tmp_path: Path) -> Tampered:
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "lcb.db") if sqlite else request.getfixturevalue("postgres_database")
    return Tampered(url, rows, ERASED)


# Each case changes the log and returns the seq of the first event that is wrong


def change_time(log: Tampered) -> int:
    seq, body = log.find("decision")
    body.at += 60.0
    log.set_body(seq, body)
    return seq


def change_name_of_arm_not_taken(log: Tampered) -> int:
    seq, body = log.find("decision", lambda body: body.arms is not None and body.x is not None and not body.listed)
    other = next(i for i in range(body.n_arms) if i not in {one.arm for one in body.shown})
    body.arms[other] = "another"
    log.set_body(seq, body)
    return seq


def change_time_of_reward(log: Tampered) -> int:
    seq, body = log.find("reward")
    body.at -= 1.0
    log.set_body(seq, body)
    return seq


def change_title_of_item(log: Tampered) -> int:
    seq, body = log.find("items")
    body.items = [(id, x, categories, "another title", None) for id, x, categories, *_ in body.items]
    log.set_body(seq, body)
    return seq


def change_time_of_last_event(log: Tampered) -> int:
    seq, body = log.find("erase")
    body.at += 1.0
    log.set_body(seq, body)
    return seq


def change_what_was_left_of_an_erased_event(log: Tampered) -> int:
    """The propensity stays where a state is shared, but no state depends on it."""
    seq, body = log.find("erased decision", lambda body: body.taken)
    body.taken[0].propensity /= 2
    log.set_body(seq, body)
    return seq


def change_digest_of_an_erased_event(log: Tampered) -> int:
    seq, _ = log.find("erased decision")
    log.set(seq, digest=bytes(32))
    return seq


def give_an_erased_event_to_another_user(log: Tampered) -> int:
    """Whoever erased that user would meet an event that cannot be folded."""
    seq, _ = log.find("erased decision")
    log.set(seq, user="u0")
    log.run("delete from snapshot")
    return seq


def change_model_of_an_erased_event(log: Tampered) -> int:
    seq, _ = log.find("erased decision")
    log.set(seq, model=1)
    return seq


def take_the_user_from_a_decision(log: Tampered) -> int:
    seq, _ = log.find("decision")
    log.set(seq, user=None)
    return seq


def change_salt(log: Tampered) -> int:
    log.set(9, salt=bytes(16))
    return 9


def change_id(log: Tampered) -> int:
    seq, _ = log.find("items")
    log.set(seq, id="another")
    return seq


def remove_link(log: Tampered) -> int:
    if not log.inline:
        log.run("alter table event drop constraint event_has_link")
    log.set(12, link=None)
    return 12


def remove_chain(log: Tampered) -> int:
    """As if an earlier version, which had no chain, had written everything."""
    if not log.inline:
        log.run("alter table event drop constraint event_has_link")
    log.run("update event set salt = null, digest = null, link = null")
    log.move_head()
    return 1


def remove_items(log: Tampered) -> int:
    """Without a gap: the later events move up.  These items are replaced before they are decided about."""
    seq, _ = log.find("items", lambda body: len(body.items) == 1)
    log.run("delete from event where seq = ?", (seq,))
    log.shift(seq + 1, -1)
    return seq


def add_items(log: Tampered) -> int:
    """An event of somebody who computes its link; the next event does not follow from it."""
    seq, body = log.find("items")
    log.shift(seq + 1, 1)
    row, salt = Row(seq + 1, "items/forged", "items", None, None, b""), bytes(16)
    body.items = body.items[:1]
    row = row._replace(body=msgspec.msgpack.encode(body))
    before = log.kept_head(seq).link
    log.insert(row, Seal(salt, None, compute_link(before, row.seq, compute_digest(salt, row))))
    log.move_head()
    return seq + 2


def swap_rewards(log: Tampered) -> int:
    kinds = [row.kind for row, _ in log.rows()]
    first = next(i for i, kind in enumerate(kinds, start=1) if kind == "reward" and kinds[i] == "reward")
    for seq, to in ((first, 10**7), (first + 1, first), (10**7, first + 1)):
        log.run("update event set seq = ? where seq = ?", (to, seq))
    return first


def turn_into_an_erased_event(log: Tampered) -> int:
    seq, body = log.find("decision")
    row, seal = log.rows()[seq - 1]
    assert seal.salt is not None
    log.set(seq, digest=compute_digest(seal.salt, row), salt=None, kind="erased decision", user=None, model=None)
    log.set(seq, id=f"erased/{seq}", body=msgspec.msgpack.encode((body.recommender, False, [])))
    return seq


CASES: list[Callable[[Tampered], int]] = [
    change_time, change_name_of_arm_not_taken, change_time_of_reward, change_title_of_item, change_time_of_last_event,
    change_what_was_left_of_an_erased_event, change_digest_of_an_erased_event, change_salt, change_id, remove_link,
    remove_chain, remove_items, add_items, swap_rewards, turn_into_an_erased_event,
    give_an_erased_event_to_another_user, change_model_of_an_erased_event, take_the_user_from_a_decision,
]  # fmt: skip
UNSEEN = [
    change_time, change_name_of_arm_not_taken, change_time_of_reward, change_title_of_item, change_time_of_last_event,
    change_what_was_left_of_an_erased_event, change_id,
]  # fmt: skip  # found by nothing but the chain


def find(log: Tampered, *heads: Head) -> Report:
    store = log.open()
    try:
        return verify(store, heads=heads)
    finally:
        store.close()


def drill(log: Tampered, case: Callable[[Tampered], int]) -> None:
    assert find(log, log.head).differences == []
    wrong = case(log)
    report = find(log)
    assert report.n_differences, "nobody has noticed"
    assert report.first == wrong, report.differences


@pytest.mark.parametrize("case", CASES)
def test_whoever_changes_the_log_is_found_and_the_first_wrong_event_is_named(
    log: Tampered, case: Callable[[Tampered], int]
) -> None:
    drill(log, case)


@pytest.mark.parametrize("case", UNSEEN)
def test_without_the_chain_nobody_notices(
    log: Tampered, case: Callable[[Tampered], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order._Chain, "check", lambda self, row, seal: None)
    monkeypatch.setattr(order._Chain, "end", lambda self, last: None)
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill(log, case)


def test_another_link_in_the_table_of_the_head_is_found(log: Tampered) -> None:
    if not log.inline:  # SQLite has no such table
        log.run("update head set link = ?", (bytes(32),))
        assert "the head of the log has another link" in str(find(log).differences[0])


# What only a head that was kept elsewhere finds


def cut(log: Tampered) -> None:
    """Before the first event of the erased user: an erased event that no erasure lists would be found."""
    log.n = next(row.seq for row, _ in log.rows() if row.kind.startswith("erased")) - 1
    log.run("delete from event where seq > ?", (log.n,))
    log.run("delete from snapshot")
    log.move_head()


def drill_head(log: Tampered, change: Callable[[Tampered], Any], *heads: Head) -> Report:
    change(log)
    report = find(log, *heads)
    assert report.n_differences, "nobody has noticed"
    return report


def test_a_log_without_its_end_is_found_by_a_head(log: Tampered) -> None:
    report = drill_head(log, cut, log.head)
    assert report.first == log.n
    assert f"at least {log.head.seq}" in str(report.differences[0])


def test_without_a_head_a_log_that_ends_earlier_is_just_shorter(log: Tampered) -> None:
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill_head(log, cut)


def test_a_chain_computed_anew_is_found_by_heads_which_tell_between_which(log: Tampered) -> None:
    wrong = log.find("decision")[0]
    early, late = log.kept_head(wrong - 1), log.kept_head(log.n - 1)
    report = drill_head(log, lambda log: log.forge(change_time(log)), early, late, log.head)
    assert [one.seq for one in report.differences] == [late.seq, log.n]
    assert f"an event after {wrong - 1}" in str(report.differences[0])


def test_without_a_head_a_chain_computed_anew_verifies(log: Tampered) -> None:
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill_head(log, lambda log: log.forge(change_time(log)))


def test_an_earlier_copy_has_its_head_and_the_log_that_went_on_has_it_too(log: Tampered) -> None:
    store = log.open()
    try:
        before = log.kept_head(20)
        assert verify(store, heads=[before, log.head]).differences == []
        assert str(store.chain_head()) == verify(store).head == str(log.head)
    finally:
        store.close()


# A part of a log, such as an archive whose first events are elsewhere


def drill_part(log: Tampered, change: Callable[[Tampered], Any] = lambda log: None) -> Report:
    """Between the erased user's events and their erasure: the part erases events that it does not have."""
    before = log.kept_head(next(row.seq for row, _ in log.rows() if row.kind == "erased decision") + 1)
    change(log)
    log.run("delete from event where seq <= ?", (before.seq,))
    store = log.open()
    try:
        report = verify(store, after=before, heads=[log.head])
    finally:
        store.close()
    assert report.n_differences == 0, [str(one) for one in report.differences]
    assert report.n_events == log.n - before.seq
    return report


def test_a_part_of_a_log_verifies_against_the_head_before_it(log: Tampered) -> None:
    drill_part(log)


def test_a_part_that_was_changed_is_found(log: Tampered) -> None:
    with pytest.raises(AssertionError, match=f"event {log.n}: this erase is not what was written"):
        drill_part(log, change_time_of_last_event)


def test_a_part_that_was_computed_anew_is_found_by_the_head_before_it(log: Tampered) -> None:
    """Its links agree with each other, but the first does not follow from the kept head."""
    with pytest.raises(AssertionError, match="is not what was written at this place"):
        drill_part(log, lambda log: log.forge(change_time(log)))


def test_events_before_a_part_are_not_passed_over_in_silence(log: Tampered) -> None:
    before, forged = log.kept_head(20), Head(20, bytes(32))
    store = log.open()
    try:
        report = verify(store, after=before)
        assert (report.n_differences, report.unchecked_from, report.n_events) == (0, 1, log.n - 20)
        report = verify(store, after=forged)
        assert report.first == 20
        assert "the head given by --after" in str(report.differences[0])
    finally:
        store.close()


# The schema


def add_trigger(log: Tampered) -> str:
    """It could rewrite or drop what the service has acknowledged."""
    if log.inline:
        log.run("create trigger quiet after insert on event when new.kind = 'x' begin delete from event; end")
    else:
        log.run("create rule quiet as on insert to snapshot do also delete from key")
    return "quiet was added on"


def drill_schema(log: Tampered, change: Callable[[Tampered], str]) -> None:
    assert find(log, log.head).differences == []
    open_store(log.url, serve=True).close()
    words = change(log)
    report = find(log)
    assert report.n_differences, "nobody has noticed"
    assert words in str(report.differences[0])
    with pytest.raises(StoreError, match=words):
        open_store(log.url, serve=True)


def test_a_trigger_or_rule_that_lcb_did_not_make_is_found_and_not_served(log: Tampered) -> None:
    drill_schema(log, add_trigger)


def test_without_the_check_of_the_schema_nobody_notices(log: Tampered, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (sqlite.SQLite, postgres.Postgres):
        monkeypatch.setattr(one, "find_changes_of_schema", lambda self: [])
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill_schema(log, add_trigger)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("create view v as select 1", "view v was added on"),
        ("create unique index i on event(kind, user) where kind = 'x'", "index i was added on event"),
        ("drop index event_of_user", "index event_of_user is missing"),
        ("alter table event add column more text", "table event was changed"),
    ],
)
def test_other_changes_of_the_schema_of_a_file(tmp_path: Path, rows: list[Row], statement: str, words: str) -> None:
    def change(log: Tampered) -> str:
        log.run(statement)
        return words

    drill_schema(Tampered(str(tmp_path / "lcb.db"), rows, ERASED), change)


def test_tables_of_other_programs_may_be_in_the_file(tmp_path: Path, rows: list[Row]) -> None:
    log = Tampered(str(tmp_path / "lcb.db"), rows, ERASED)
    log.run("create table _backup_position(id integer primary key, seq integer)")
    log.run("analyze")
    open_store(log.url, serve=True).close()
    assert find(log).differences == []


# Erasure


def test_the_salts_of_an_erased_user_are_in_no_byte_of_the_file(tmp_path: Path) -> None:
    with run_session(tmp_path / "lcb.db", n=30, erase=False) as inside:
        user = inside.store.users()[0]
        seqs = [row.seq for row in inside.store.events_of(user)]
        seals = dict(zip(range(1, 10**6), (seal for _, seal in inside.store.sealed_events(0, 10**6)), strict=False))
        salts = [seals[seq].salt for seq in seqs]
        digests = [compute_digest(seals[row.seq].salt, row) for row in inside.store.events_of(user)]  # type: ignore[arg-type]
        inside.erase(user)
        found = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("lcb.db"))
        assert len(salts) > 2
        assert not [salt for salt in salts if salt is not None and salt in found]
        assert all(digest in found for digest in digests)
        assert all(seals[seq].link in found for seq in seqs)  # type: ignore[operator]
        assert verify(inside.store).differences == []


# Several replicas


def append_from_many(url: str, n_replicas: int = 3, n_each: int = 150 if LONG else 40) -> None:
    """Replicas that append at the same time, one and several rows; each tries again until its rows are in."""
    failed: list[BaseException] = []

    def work(name: int) -> None:
        store, seen = open_store(url), 0
        try:
            for i in range(n_each):
                body = bytes(900 * (i % 4))
                new = [NewRow(f"{name}.{i}.{j}", "decision", f"u{i % 5}", 1, body) for j in range(1 + i % 3)]
                seen = store.append(new, seen).rows[-1].seq
        except BaseException as error:  # noqa: BLE001 (raised below)
            failed.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(n_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    assert check_chain(url).n_events == sum(1 + i % 3 for i in range(n_each)) * n_replicas


def test_replicas_that_write_at_the_same_time_write_one_chain(postgres_database: str) -> None:
    append_from_many(postgres_database)


def test_without_the_link_of_the_locked_head_replicas_break_the_chain(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each goes on from the last link of its own."""
    kept, mine = postgres.seal_rows, threading.local()

    def seal(rows: Any, head: Head, salts: Any) -> list[Seal]:
        seals = kept(rows, Head(head.seq, getattr(mine, "link", None)), salts)
        mine.link = seals[-1].link
        return seals

    monkeypatch.setattr(postgres, "seal_rows", seal)
    monkeypatch.setattr(
        postgres, "_INSERT_AT", postgres._INSERT_AT.replace("link is not distinct from %b", "%b is null or true")
    )
    with pytest.raises(AssertionError, match="the chain is broken"):
        append_from_many(postgres_database)
