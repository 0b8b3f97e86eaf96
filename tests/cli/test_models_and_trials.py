from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from lcb.serve.web import keys
from lcb.storage.store.open_store import open_store
from support.harness import Server, arms, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """A service with an admin's key, two recommenders and some rewards."""
    folder = tmp_path_factory.mktemp("service")
    store = open_store(str(folder / "lcb.db"))
    key = keys.create(store, "admin", "admin", 0.0)
    store.close()
    recommenders = [{"name": "population", "bandit": "linucb", "scope": "everyone"}, {"name": "lcb"}]
    learning = {"n_warmup_users": 10_000, "n_classes": 2}
    with serving(folder, recommenders=recommenders, learning=learning, pages=False) as running:
        with running.client(headers={"authorization": f"Bearer {key}"}) as http:
            rng = np.random.default_rng(0)
            for i in range(90):
                made = http.post("/v1/decisions", json={"user": f"u{i % 30}", "arms": arms(rng)}).json()
                http.post("/v1/rewards", json={"decision_id": made["decision_id"], "reward": float(rng.normal())})
        running.key = key  # type: ignore[attr-defined]
        yield running


@pytest.fixture
def asked(lcb, server, monkeypatch):
    monkeypatch.setenv("LCB_KEY", server.key)
    return lambda *words: lcb(*words, "--url", server.address)


def test_versions_are_learned_listed_and_activated(asked):
    assert "no classes yet" in asked("models", "list").out
    learned = asked("models", "retrain", "--wait")
    assert learned.out.startswith("version 1 is active: the first version: ")
    listed = asked("models", "list").out
    assert "active" in listed
    assert "users so far: 30; the next version is learned" in listed
    answer = json.loads(asked("models", "list", "--json", "-").out)
    assert [(one["version"], one["n_classes"]) for one in answer["versions"]] == [(1, 2)]
    assert (
        asked("models", "activate", 0, "--reason", "a look back").out
        == "version 0 is active: new users get it, and all users who are not pinned to a version\n"
    )
    assert json.loads(asked("models", "activate", 1, "--json", "-").out) == {"active": 1}
    assert "learning" in asked("models", "retrain").out


def test_recommenders_are_shown_side_by_side(asked, tmp_path):
    shown = asked("trials").out
    assert "population" in shown
    assert "lcb - population: " in shown
    assert "95 % interval" in shown
    assert asked("trials", "--json", tmp_path / "trial.json").code == 0
    answer = json.loads((tmp_path / "trial.json").read_text())
    assert sum(one["n_users"] for one in answer["recommenders"]) == 30


def test_what_the_service_refuses_is_said_in_its_words(asked, lcb, server, monkeypatch):
    refused = asked("models", "activate", 77)
    assert refused.code == 2
    assert "no model version 77; the versions are 0" in refused.err
    monkeypatch.delenv("LCB_KEY")
    refused = lcb("models", "list", "--url", server.address)
    assert refused.code == 2
    assert "this route needs a key" in refused.err
    refused = lcb("models", "list", "--url", server.address, "--key", "lcb_wrong")
    assert "this key is unknown or revoked" in refused.err
    assert "lcb_wrong" not in refused.err


@pytest.mark.parametrize("command", [("models", "list"), ("models", "retrain"), ("models", "activate", 1), ("trials",)])
def test_where_nobody_answers_the_next_step_is_named(lcb, command):
    outcome = lcb(*command, "--url", "http://127.0.0.1:9")
    assert outcome.code == 2
    assert "http://127.0.0.1:9 does not answer" in outcome.err
    assert "lcb serve" in outcome.err


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "/tmp"])
def test_an_address_that_is_none_is_refused(lcb, url):
    outcome = lcb("trials", "--url", url)
    assert outcome.code == 2
    assert f"url {url!r} is not an address of a service" in outcome.err


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (500, b"<html>"), (418, b"[]")])
def test_something_else_that_answers_is_told_from_a_service(lcb, status, body):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        outcome = lcb("trials", "--url", f"http://127.0.0.1:{other.server_port}")
    assert outcome.code == 2
    assert "check the url" in outcome.err


def test_a_service_on_this_machine_is_reached_without_the_proxy(asked, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert asked("trials").code == 0


@pytest.mark.parametrize("package", ["httpx", "msgspec"])
def test_without_the_client_extra_the_install_line_is_printed(package):
    code = (
        f"import sys; sys.modules['{package}'] = None; sys.argv[1:] = ['trials']; from lcb.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"lcb: {package} is not installed; in a checkout of lcb run: pip install '.[client]'\n"
