"""Drill 40: the table of keys is held against the log: a forged, changed or deleted key is named, and opens nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lcb.errors import InputError, StoreError
from lcb.serve import events, service
from lcb.serve.audit.trail import read_trail
from lcb.serve.audit.verify import verify
from lcb.serve.config.settings import Settings
from lcb.serve.log import key_events
from lcb.serve.service import Service
from lcb.serve.web.keys import create, open_service, read_keys, revoke, sha256
from lcb.storage.store.base import Key, NewRow, Store
from lcb.storage.store.open_store import open_store
from support.harness import serving, start
from support.tampering import run_sql

FORGED = "lcb_forged"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_events, "_PAUSE", 0.01)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    return str(tmp_path / "lcb.db") if sqlite else str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A log with two valid keys and a revoked one."""
    made = open_store(url)
    create(made, "ops", "admin", 1.0)
    Service(Settings(store=url, pages=False), made)
    create(made, "shop", "writer", 2.0)
    create(made, "old", "reader", 3.0)
    revoke(made, "old", 4.0)
    yield made
    made.close()


# Each case changes the table behind the service's back, and returns the key to name and a word of what is wrong


def forge(url: str) -> tuple[str, str]:
    run_sql(url, "insert into key values(?, ?, ?, ?, null)", ("forged", "admin", sha256(FORGED), 5.0))
    return "forged", "no event created it"


def raise_scope(url: str) -> tuple[str, str]:
    run_sql(url, "update key set scope = 'admin' where name = 'shop'")
    return "shop", "has scope admin in the table of keys"


def replace_hash(url: str) -> tuple[str, str]:
    run_sql(url, "update key set sha256 = ? where name = 'ops'", (sha256(FORGED),))
    return "ops", "is not the key that event"


def delete_one(url: str) -> tuple[str, str]:
    run_sql(url, "delete from key where name = 'shop'")
    return "shop", "is missing"


def delete_all(url: str) -> tuple[str, str]:
    run_sql(url, "delete from key")
    return "ops", "is missing"


def bring_back(url: str) -> tuple[str, str]:
    run_sql(url, "update key set revoked = null where name = 'old'")
    return "old", "revoked it"


def disable(url: str) -> tuple[str, str]:
    run_sql(url, "update key set revoked = 9 where name = 'ops'")
    return "ops", "is revoked in the table of keys"


def predate(url: str) -> tuple[str, str]:
    run_sql(url, "update key set created = 1.5 where name = 'shop'")
    return "shop", "was created at 1.5 by the table of keys"


CASES = [forge, raise_scope, replace_hash, delete_one, delete_all, bring_back, disable, predate]


def drill(store: Store, url: str, case: Callable[[str], tuple[str, str]]) -> None:
    assert verify(store).differences == []
    assert verify(store).n_keys == 2
    assert sorted(key.name for key in read_keys(store, 5.0).keys) == ["old", "ops", "shop"]
    name, words = case(url)
    found = [str(one) for one in verify(store).differences]
    assert found, "nobody has noticed"
    assert [one for one in found if repr(name) in one and words in one], found
    with pytest.raises(StoreError, match=f"'{name}'.*lcb keys revoke"):
        read_keys(store, 6.0)
    for wrong in key_events.compare_keys(store.list_keys(), key_events.read_keys_of_log(store)):  # type: ignore[arg-type]
        revoke(store, wrong, 7.0)  # what the message says
    assert verify(store).differences == []
    assert not read_keys(store, 8.0).open


@pytest.mark.parametrize("case", CASES)
def test_whoever_changes_the_table_of_keys_is_found_and_the_key_is_named(store: Store, url: str, case) -> None:
    drill(store, url, case)


@pytest.mark.parametrize("case", CASES)
def test_a_table_that_is_not_held_against_the_log_can_be_changed(store: Store, url: str, case, monkeypatch) -> None:
    monkeypatch.setattr(key_events, "compare_keys", lambda keys, of_log: {})
    with pytest.raises(AssertionError, match="nobody has noticed"):
        drill(store, url, case)


@pytest.mark.parametrize("seq", [0, -7])
def test_an_event_before_the_first_makes_no_key_and_is_found(store: Store, url: str, seq: int) -> None:
    """Such an event is in no chain; a service that reads it accepts the forged key of `forge`."""
    (made,) = [row for row in store.events(0) if row.kind == "key" and b"shop" in row.body]
    body = events.decode("key", made.body)
    body.name, body.sha256 = "forged", sha256(FORGED)
    columns = "insert into event(seq, id, kind, model, body) values(?, 'key/x', 'key', ?, ?)"
    run_sql(url, columns, (seq, made.model, events.encode(body)))
    name, words = forge(url)
    found = [str(one) for one in verify(store).differences]
    assert [one for one in found if f"an event with the number {seq}" in one], found
    assert [one for one in found if repr(name) in one and words in one], found
    with pytest.raises(StoreError, match="'forged'"):
        read_keys(store, 6.0)
    assert store.event("key/x") is None


def forge_event(store: Store, url: str) -> None:
    """The event that revoked a key is of nobody now, and the row of the key says so too."""
    (made,) = [row for row in store.events(0) if row.kind == "key" and b"revoked" in row.body]
    body = events.decode("key", made.body)
    body.name = "nobody"
    run_sql(url, "update event set body = ? where seq = ?", (events.encode(body), made.seq))
    bring_back(url)


def drill_event(store: Store, url: str) -> None:
    for i in range(3):
        create(store, f"later{i}", "reader", 5.0)
    forge_event(store, url)
    assert "old" in [key.name for key in read_keys(store, 6.0).keys]  # so a service that starts accepts the key
    try:
        Service(Settings(store=url, pages=False), store)
    except StoreError as error:
        assert "(key)" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a service starts on a forged event of a key")


def test_no_service_starts_on_an_event_of_a_key_that_was_changed(store: Store, url: str) -> None:
    drill_event(store, url)


def test_control_a_start_that_does_not_look_at_events_of_keys(store: Store, url: str, monkeypatch) -> None:
    monkeypatch.setattr(service, "check_start", lambda store: None)
    with pytest.raises(AssertionError, match="forged event"):
        drill_event(store, url)


# A running service, and its next start


def drill_running(folder: Path, without: tuple[str, ...] = ()) -> None:
    url = str(folder / "lcb.db")
    store = open_store(url)
    bearer = {"authorization": f"Bearer {create(store, 'ops', 'admin', 0.0)}"}
    store.close()
    with serving(folder, pages=False, limits={"drain": 0.0}, without=without) as server, server.client() as http:
        forge(url)
        until = time.monotonic() + 60
        while "keys differ from the log" not in server.output.read_text() and time.monotonic() < until:
            status = http.get("/v1/items", headers={"authorization": f"Bearer {FORGED}"}).status_code
            assert status == 401, "a forged key is accepted"
            time.sleep(0.05)
        assert "no event created it" in server.output.read_text()
        assert http.get("/v1/items", headers=bearer).status_code == 200
        assert server.stop() == 0
    run_sql(url, "delete from key")
    with pytest.raises(RuntimeError, match="key 'ops' is missing"):
        start(folder, pages=False, without=without)


def test_a_forged_key_is_refused_and_a_service_whose_keys_were_deleted_does_not_start(tmp_path: Path) -> None:
    drill_running(tmp_path)


def test_a_service_that_believes_the_table_accepts_a_forged_key(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a forged key is accepted"):
        drill_running(tmp_path, ("key events",))


def drill_deleted(folder: Path, without: tuple[str, ...] = ()) -> None:
    """All keys were revoked by the operator, and somebody deletes the rows before a start."""
    url = str(folder / "lcb.db")
    store = open_store(url)
    create(store, "ops", "admin", 0.0)
    revoke(store, "ops", 1.0)
    store.close()
    run_sql(url, "delete from key")
    with serving(folder, pages=False, limits={"drain": 0.0}, without=without) as server, server.client() as http:
        assert http.get("/v1/items").status_code == 401, "a service without its keys is open"


def test_a_log_that_had_keys_does_not_open_because_the_table_is_empty(tmp_path: Path) -> None:
    drill_deleted(tmp_path)


def test_a_service_that_believes_the_table_opens(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is open"):
        drill_deleted(tmp_path, ("key events",))


# What the operator may do


def test_the_operator_opens_a_service_by_a_command_that_the_log_records(store: Store) -> None:
    with pytest.raises(InputError, match="there are valid keys: ops, shop; revoke them first"):
        open_service(store, 5.0)
    revoke(store, "ops", 5.0)
    revoke(store, "shop", 5.0)
    assert not read_keys(store, 6.0).open
    open_service(store, 6.0, "command line of ann")
    assert read_keys(store, 7.0).open
    assert read_trail(store)[-1]["action"] == "let the service need no key"
    assert read_trail(store)[-1]["address"] == "command line of ann"
    create(store, "new", "reader", 8.0)
    assert not read_keys(store, 9.0).open
    assert verify(store).differences == []


def test_a_key_that_is_created_again_under_its_name_is_another(store: Store) -> None:
    create(store, "old", "admin", 5.0)
    assert read_keys(store, 6.0).problems == {}
    with pytest.raises(InputError, match="already a key named 'old'"):
        create(store, "old", "reader", 7.0)
    assert [row["action"] for row in read_trail(store)] == [
        "created key ops (admin)", "created key shop (writer)", "created key old (reader)", "revoked key old",
        "created key old (admin)",
    ]  # fmt: skip


# Logs of earlier versions


def make_old(url: str, *, audited: bool) -> Store:
    """A store whose keys have no events of their own: at most a text in the audit, as there was once."""
    store = open_store(url)
    rows = [NewRow("service", "service", None, None, events.encode(events.ServiceBody(0.0, b"0" * 16, "once", None, None, None)))]  # noqa: E501 # fmt: skip
    if audited:
        body = events.AuditBody(1.0, "created key ops (admin)", events.Actor(None, "command line"))
        rows.append(NewRow("audit/1", "audit", None, None, events.encode(body)))
    store.append(rows, 0)
    store.save_key(Key("ops", "admin", sha256("lcb_ops"), 1.0, None))
    store.save_key(Key("gone", "reader", sha256("lcb_gone"), 1.0, 2.0))
    return store


@pytest.mark.parametrize("audited", [False, True])
def test_the_keys_of_an_earlier_version_are_recorded_at_the_first_start(tmp_path: Path, audited: bool) -> None:
    store = make_old(url := str(tmp_path / "lcb.db"), audited=audited)
    try:
        assert verify(store).n_keys is None
        assert verify(store).differences == []
        assert not read_keys(store, 5.0).open
        actions = [row["action"] for row in read_trail(store)][audited:]
        recorded = "recorded the keys that were created before keys were events"
        assert actions == ["revoked key gone", "adopted key ops (admin)", recorded]
        head = store.head()
        read_keys(store, 6.0)
        assert store.head() == head, "they are recorded once"
        assert verify(store).n_keys == 1
        forge(url)
        with pytest.raises(StoreError, match="'forged'"):
            read_keys(store, 7.0)
    finally:
        store.close()


def test_a_command_that_changes_keys_records_those_of_an_earlier_version_first(tmp_path: Path) -> None:
    store = make_old(str(tmp_path / "lcb.db"), audited=False)
    try:
        revoke(store, "ops", 5.0)
        create(store, "new", "writer", 6.0)
        assert verify(store).differences == []
        assert verify(store).n_keys == 1
    finally:
        store.close()


def test_an_old_store_without_keys_takes_none_unseen_after_its_first_start(tmp_path: Path) -> None:
    store = open_store(url := str(tmp_path / "lcb.db"))
    body = events.encode(events.ServiceBody(0.0, b"0" * 16, "once", None, None, None))
    store.append([NewRow("service", "service", None, None, body)], 0)
    try:
        assert read_keys(store, 5.0).open
        forge(url)
        with pytest.raises(StoreError, match="'forged'"):
            read_keys(store, 7.0)
    finally:
        store.close()
