"""The format of the operational log, and what it never contains."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from pathlib import Path

import pytest
import structlog

from lcb.serve.config.settings import Settings
from lcb.serve.observe import logging as logs
from lcb.serve.observe.redaction import redact, redact_value
from support.http_inside import inside

KEY = "lcb_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFy"


@pytest.fixture
def written():
    """What was logged; the loggers of the process are as before afterwards."""
    root = logging.getLogger()
    kept, stream = (root.handlers, root.level), io.StringIO()
    yield stream
    root.handlers, root.level = kept
    logging.captureWarnings(False)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def ours(written: io.StringIO) -> list[dict]:
    """The lines of the service itself; the client logs too."""
    return [line for line in map(json.loads, written.getvalue().splitlines()) if line["logger"] == "lcb.serve"]


def test_lines_are_json_with_a_time_a_level_and_the_name_of_the_logger(written):
    logs.configure("info", "json", written)
    structlog.get_logger("lcb.serve").info("ready", seq=3)
    line = json.loads(written.getvalue())
    assert (line["event"], line["seq"], line["level"], line["logger"]) == ("ready", 3, "info", "lcb.serve")
    assert line["at"].endswith("Z")


def test_on_a_terminal_lines_are_text(written):
    written.isatty = lambda: True
    logs.configure("info", "auto", written)
    structlog.get_logger("lcb.serve").info("ready", seq=3)
    assert "level='info' event='ready' seq=3" in written.getvalue()


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_secret_is_written_whoever_logs_it(written, style):
    logs.configure("debug", style, written)
    log, secret = structlog.get_logger("lcb.serve"), "hunter2"
    log.info("by name", authorization=secret, cookie=secret, password=secret, cookie_secret=secret, LCB_KEY=secret)
    log.info(f"in the words: postgresql://lcb:{secret}@db/lcb")
    log.info("inside", headers=[(b"authorization", secret.encode()), (b"cookie", f"a={secret}".encode())])
    log.info("deeper", config={"store": {"password": secret, "urls": [f"postgres://a:{secret}@h/d"]}})
    log.info("positional %s", f"password={secret} host=db")
    try:
        raise RuntimeError(f"connection to postgresql://lcb:{secret}@db failed for Bearer {secret * 3}")
    except RuntimeError as error:
        log.error("with a traceback", exc_info=error)
    logging.getLogger("uvicorn.error").warning("by uvicorn: %s", f"Authorization: Bearer {secret}{secret}")
    logging.getLogger("psycopg").warning("by a library", extra={"dsn": f"host=db password='{secret}'"})
    logging.getLogger("lcb.other").info(f"Cookie: session={secret}")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"password={secret}", stacklevel=1)
    log.info("a key", given=f"{KEY} and {KEY.encode()!r}")
    text = written.getvalue()
    assert secret not in text
    assert KEY not in text
    assert text.count("***") >= 14
    assert text.count("\n") == 11


def test_without_redaction_the_same_lines_would_tell(written, monkeypatch):
    monkeypatch.setattr(logs, "redact", lambda text: text)
    monkeypatch.setattr(logs, "redact_value", lambda value: value)
    logs.configure("debug", "json", written)
    structlog.get_logger("lcb.serve").info("a key", given=KEY)
    assert KEY in written.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1/users/ann@example.org",
        "/tmp/lcb.db is locked by another process; it is tried again",
        "lcb_requests_total, lcb_users",
        "the key of the catalogue",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text or "@" in text
    assert redact_value({"n": 1, "xs": [1.5, None, True]}) == {"n": 1, "xs": [1.5, None, True]}


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("info", 0)])
def test_requests_are_logged_at_level_debug_by_route_and_without_the_users_id(tmp_path: Path, written, level, lines):
    async def ask() -> None:
        async with inside(Settings(store=str(tmp_path / "lcb.db"), log_level=level)) as (_, client):
            await client.get("/v1/users/ann", headers={"x-request-id": "r-7"})
            await client.get("/nowhere/ann")

    logs.configure(level, "json", written)
    asyncio.run(ask())
    found = ours(written)
    assert len(found) == lines
    assert "ann" not in str(found)
    if lines:
        assert [line["route"] for line in found] == ["GET /v1/users/{user:path}", "none"]
        assert (found[0]["status"], found[0]["request"]) == (404, "r-7")


def test_an_unforeseen_error_names_the_request_and_not_the_reason(tmp_path: Path, written):
    async def ask():
        async with inside(Settings(store=str(tmp_path / "lcb.db"))) as (app, client):
            app.service.world.user = lambda name: 1 / 0
            return await client.get("/v1/users/ann", headers={"x-request-id": "r-8"}), app.metrics.n_unforeseen

    logs.configure("info", "json", written)
    answer, n = asyncio.run(ask())
    assert (answer.status_code, answer.headers["x-request-id"], n) == (500, "r-8", 1)
    assert "r-8" in answer.json()["detail"]
    assert "division" not in answer.text
    line = ours(written)[-1]
    assert (line["event"], line["request"], line["error"]) == (
        "unforeseen",
        "r-8",
        "ZeroDivisionError: division by zero",
    )


def test_an_answer_carries_the_id_of_its_request_and_no_other(tmp_path: Path):
    async def ask():
        async with inside(Settings(store=str(tmp_path / "lcb.db"))) as (_, client):
            sent = [{"x-request-id": "abc"}, {"x-request-id": "no good\t"}, {}]
            return [(await client.get("/healthz", headers=one)).headers.get("x-request-id") for one in sent]

    assert asyncio.run(ask()) == ["abc", None, None]
