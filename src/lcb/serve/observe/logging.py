"""The operational log of a running service: one line per message, JSON or text, without secrets.

    {"event": "ready", "address": "http://127.0.0.1:8000", "level": "info", "logger": "lcb.serve", "at": "2026-..."}

Messages of the service, of uvicorn and of any library that uses Python's `logging` are treated alike: values of secret
names are hidden, keys and passwords in text are masked, and the line is written to standard error.  There is one line
per request at level debug; it has the route, not the path, so no user id is written.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from lcb.serve.observe.redaction import HIDDEN, is_secret, redact, redact_value

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_QUIET = ("asyncio", "uvicorn.access", "httptools", "psycopg.pool")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
_Event = MutableMapping[str, Any]


def configure(level: str = "info", style: str = "auto", stream: TextIO | None = None) -> None:
    """Send every logger of this process through the same processors to `stream` (default: standard error)."""
    out = stream or sys.stderr
    style = ("text" if out.isatty() else "json") if style == "auto" else style
    before: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
    ]
    rendered: structlog.types.Processor = (
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
        if style == "json"
        else structlog.processors.KeyValueRenderer(key_order=["at", "level", "event"], drop_missing=True)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _hide_secrets,
                rendered,
                _mask_line,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[level])
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):
        found = logging.getLogger(name)
        found.handlers, found.propagate = [], True
        found.setLevel(
            _LEVELS[level] if level in ("debug", "error") else logging.WARNING
        )  # the service logs start and stop itself
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _hide_secrets(_: Any, __: str, event: _Event) -> _Event:
    """Hide secrets by name and inside text, at any depth."""
    event.pop("color_message", None)
    return {name: HIDDEN if is_secret(name) else redact_value(value) for name, value in event.items()}


def _mask_line(_: Any, __: str, line: Any) -> str:
    """Mask the whole line once more."""
    return redact(str(line))


def read_request_id(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Return the X-Request-ID header of a request, if it is at most 64 letters, digits and _ . : -

    >>> read_request_id([(b"host", b"a"), (b"x-request-id", b"7f3a")]), read_request_id([(b"x-request-id", b"a b")])
    ('7f3a', None)
    """
    for name, value in headers:
        if name == b"x-request-id":
            return value.decode() if _REQUEST_ID.fullmatch(value) else None
    return None
