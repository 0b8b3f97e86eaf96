"""Serves the news page of the documentation on a socket, and reads the log of the service behind it."""

from __future__ import annotations

import importlib.util
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import uvicorn

from support.harness import Server

DOCS = Path(__file__).parents[2] / "docs"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("news_page", DOCS / "examples" / "news_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


NEWS = loaded()


@contextmanager
def published(url: str, patience: float) -> Iterator[str]:
    """Serve the page on a socket and yield its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(NEWS.news_page(url, patience=patience), log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def events(server: Server, until: int, kinds: tuple[str, ...] = ("decision", "reward")) -> list[Any]:
    """Wait until the log has `until` events of these kinds, and return them."""
    for _ in range(1200):
        with sqlite3.connect(server.output.parent / "lcb.db") as connection:
            rows = connection.execute("select kind, id, user from event order by seq").fetchall()
        connection.close()
        found = [row for row in rows if row[0] in kinds]
        if len(found) >= until:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(found)} events after a minute, {until} were wanted")
