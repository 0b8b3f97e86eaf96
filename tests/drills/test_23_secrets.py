"""Drill 23: at log level debug, with every route, every key and faults of all kinds, no secret is in any output."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import structlog

from lcb.serve.config.settings import Settings
from lcb.serve.observe import logging as logs
from lcb.serve.observe import redaction
from lcb.serve.web.keys import SCOPES, create
from lcb.serve.web.openapi import strip_converters
from lcb.storage.store.open_store import open_store
from support.harness import arms, serving
from support.http_inside import inside

PASSWORD = "hunter2-of-the-database"
WRONG = "lcb_d3JvbmcteyB3cm9uZyB3cm9uZyB3cm9uZyB3cm9uZy1"
COOKIE = "session-cookie-of-ann"


@pytest.fixture
def logging_as_before():
    root = logging.getLogger()
    kept = (root.handlers, root.level)
    yield
    root.handlers, root.level = kept
    logging.captureWarnings(False)
    structlog.reset_defaults()


def searched(outputs: dict[str, str], secrets: list[str]) -> None:
    """Check that no output contains any of the secrets."""
    for place, text in outputs.items():
        for secret in secrets:
            assert secret not in text, f"a secret is in {place}: ...{text[max(0, text.index(secret) - 60) :][:120]}"


def from_a_process(folder: Path, url: str | None = None) -> None:
    """Return the output of a service in its own process that got requests to all routes with all keys."""
    url = url or str(folder / "lcb.db")
    store = open_store(url)
    secrets = {scope: create(store, scope, scope, 0.0) for scope in SCOPES}
    store.close()
    answers = io.StringIO()
    with serving(folder, store=url, log_level="debug", log_format="json", limits={"drain": 0.0}) as server:
        body = {"user": "ann", "arms": arms(np.random.default_rng(0))}
        with server.client() as client:
            calls = [("GET", path) for path in ("/openapi.json", "/healthz", "/readyz", "/metrics", "/v1/items")]
            calls += [("POST", "/v1/decisions"), ("POST", "/v1/rewards"), ("PUT", "/v1/items"), ("GET", "/nowhere")]
            calls += [("GET", "/v1/users/ann"), ("PATCH", "/v1/users/ann"), ("DELETE", "/v1/users/ann")]
            for secret in (*secrets.values(), WRONG):
                headers = {"authorization": f"Bearer {secret}", "cookie": f"lcb_reader={COOKIE}"}
                for method, path in calls:
                    answer = client.request(method, path, headers=headers, json=body if method != "GET" else None)
                    answers.write(f"{answer.status_code} {answer.headers} {answer.text}\n")
            answer = client.get("/v1/items", headers={"authorization": f"Basic {WRONG}"})
            answers.write(answer.text)
        assert server.stop() == 0
        said = server.output.read_text()
    assert said.count('"answered"') > 40
    kept = b"".join(file.read_bytes() for file in folder.iterdir() if "output" not in file.name)
    everything = {"the log": said, "an answer": answers.getvalue(), "the store": kept.decode("latin-1")}
    searched(everything, [*secrets.values(), WRONG, COOKIE, *filter(None, [urlsplit(url).password])])


def from_inside(folder: Path) -> None:
    """Return the output after faults that contain secrets: exceptions, errors of the store, messages of libraries."""
    written, answers = io.StringIO(), io.StringIO()
    logs.configure("debug", "json", written)

    async def ask() -> None:
        async with inside(Settings(store=str(folder / "inside.db"), log_level="debug")) as (app, client):
            told = f"connection to postgresql://lcb:{PASSWORD}@db/lcb failed; password={PASSWORD}; Bearer {WRONG}"

            def fail(name: str) -> None:
                raise RuntimeError(told)

            app.service.world.user = fail
            app.service.journal._trouble.words = told
            answers.write(str(app.pages.operator.live.read_state(0.0)))
            app.draining = True  # so that the dashboard's stream ends
            for call in app.calls:
                path = strip_converters(call.path).replace("{user}", "ann").replace("{version}", "1")
                answer = await client.request(call.method, path, headers={"authorization": f"Bearer {WRONG}"})
                answers.write(f"{answer.status_code} {answer.text}\n")
            log = structlog.get_logger("lcb.serve")
            log.info("asked", scope={"headers": [(b"authorization", WRONG.encode()), (b"cookie", COOKIE.encode())]})
            logging.getLogger("psycopg").warning("told: %s", told)
            answers.write((await client.get("/metrics")).text)

    asyncio.run(ask())
    assert '"unforeseen"' in written.getvalue()
    searched({"the log": written.getvalue(), "an answer": answers.getvalue()}, [PASSWORD, WRONG, COOKIE])


def from_commands(folder: Path) -> None:
    """Return what commands print, successful or not, with secrets in their settings."""
    url = f"postgresql://lcb:{PASSWORD}@127.0.0.1:1/lcb?connect_timeout=2"
    (folder / "lcb.toml").write_text(f"store = {json.dumps(url)}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LCB_")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LCB_KEY": WRONG}
    code = "from lcb.cli.main import main; main()"
    said = ""
    for words, more in (
        (["config", "show"], {}),
        (["config", "show", "--json", "-"], {}),
        (["serve", "--port", "0"], {}),
        (["keys", "list"], {}),
        (["keys", "list"], {"LCB_PORT": url}),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=folder, env=environment | more, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        said += f"$ lcb {' '.join(words)}\n{done.stdout}{done.stderr}\n"
    assert "postgresql://lcb:***@127.0.0.1:1/lcb" in said
    searched({"what a command prints": said}, [PASSWORD, WRONG])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_secret_is_in_what_a_service_writes_or_answers(tmp_path: Path, request, kind) -> None:
    if kind == "sqlite":
        from_a_process(tmp_path)
    else:
        url = request.getfixturevalue("postgres_database")
        assert urlsplit(url).password
        from_a_process(tmp_path, url)


def test_no_secret_is_in_what_is_told_of_faults(tmp_path: Path, logging_as_before) -> None:
    from_inside(tmp_path)


def test_no_secret_is_in_what_the_commands_print(tmp_path: Path) -> None:
    from_commands(tmp_path)


@pytest.mark.parametrize("place", [logs, redaction])
def test_without_redaction_the_log_tells(tmp_path: Path, monkeypatch, logging_as_before, place) -> None:
    monkeypatch.setattr(logs, "redact_value", lambda value: value)
    monkeypatch.setattr(logs, "is_secret", lambda name: False)
    monkeypatch.setattr(logs, "redact", lambda text: text)
    if place is redaction:
        monkeypatch.setattr(redaction, "_PATTERNS", ())
    with pytest.raises(AssertionError, match="a secret is in the log"):
        from_inside(tmp_path)


def test_a_key_kept_as_it_is_would_be_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("lcb.serve.web.keys.sha256", lambda secret: secret.encode())
    with pytest.raises(AssertionError, match="a secret is in the store"):
        from_a_process(tmp_path)
