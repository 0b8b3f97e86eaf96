"""`lcb keys` as it is typed."""

from __future__ import annotations

import json
import time

import pytest

from lcb.serve.web.keys import sha256
from lcb.storage.store.open_store import open_store


def test_a_key_is_shown_once_and_kept_as_its_hash(lcb, tmp_path):
    made = lcb("keys", "create", "shop", "--scope", "writer")
    key = made.out.strip()
    assert key.startswith("lcb_")
    assert len(key) > 40
    store = open_store(str(tmp_path / "lcb.db"))
    (kept,) = store.list_keys()
    store.close()
    assert (kept.name, kept.scope, kept.sha256, kept.revoked) == ("shop", "writer", sha256(key), None)
    assert abs(kept.created - time.time()) < 60
    assert key.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_keys_are_listed_and_revoked_by_name(lcb):
    for name in ("shop", "ops"):
        lcb("keys", "create", name, "--scope", "admin")
    assert lcb("keys", "revoke", "shop").out == "key shop is revoked\n"
    listed = json.loads(lcb("keys", "list", "--json", "-").out)
    assert [(one["name"], one["scope"], one["revoked"] is None) for one in listed] == [
        ("ops", "admin", True), ("shop", "admin", False),
    ]  # fmt: skip
    assert "shop" in lcb("keys", "list").out
    assert lcb("keys", "create", "shop", "--scope", "reader").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "shop", "--scope", "king"], "scope is 'king'; it must be one of reader, writer, admin"),
        (["create", "shop"], "missing option '--scope'"),
        (["create", "", "--scope", "reader"], "give printable text"),
        (["create", "a\nb", "--scope", "reader"], "give printable text"),
        (["create", "ops", "--scope", "reader"], "there is already a key named 'ops'; revoke it first"),
        (["revoke", "nobody"], "no key named 'nobody'; the keys are: ops"),
        (["list", "--store", "gone.db"], "gone.db does not exist"),
        ([], "missing command"),
    ],
)
def test_a_mistake_with_keys_is_one_line(lcb, words, said):
    lcb("keys", "create", "ops", "--scope", "admin")
    outcome = lcb("keys", *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_keys_the_list_says_what_that_means(lcb, tmp_path):
    open_store(str(tmp_path / "lcb.db")).close()
    assert lcb("keys", "list").out.startswith("no keys: every program on this machine has full access")


def test_a_service_that_had_keys_is_opened_by_a_command(lcb):
    lcb("keys", "create", "ops", "--scope", "admin")
    refused = lcb("keys", "open")
    assert refused.code == 2
    assert "there are valid keys: ops; revoke them first" in refused.err
    lcb("keys", "revoke", "ops")
    assert lcb("keys", "open").out == "the service needs no key from its next start on\n"
    actions = [one["action"] for one in json.loads(lcb("log", "audit", "lcb.db", "--json", "-").out)]
    assert actions == ["created key ops (admin)", "revoked key ops", "let the service need no key"]
    shown = lcb("log", "show", "lcb.db").out
    assert "let the service need no key" in shown
