"""A service inside the test's own process, called over ASGI; the test provides clock, store and keys."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from lcb.demo.readers import CATEGORIES
from lcb.demo.visitors import HEADLINES, SimulatedReaders, read_headlines
from lcb.serve.config.settings import Settings
from lcb.serve.log.bootstrap import FirstItems
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.web.app import App
from lcb.serve.web.keys import Keyring
from lcb.storage.store.base import Key, Store
from lcb.storage.store.open_store import open_store


@asynccontextmanager
async def inside(
    settings: Settings, *, keys: Sequence[Key] = (), now: Callable[[], float] = time.time,
    around: Callable[[Store], Any] = lambda store: store,
) -> AsyncIterator[tuple[App, httpx.AsyncClient]]:  # fmt: skip
    """Yield the application and a client; `around` may wrap the store."""
    items = FirstItems(HEADLINES, read_headlines(), CATEGORIES) if settings.items == HEADLINES else None
    service = Service(settings, around(open_store(settings.store)), items=items, now=now)
    app = build_app(service, Keyring(keys), SimulatedReaders())
    app.start()
    try:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield app, client
    finally:
        await app.stop()
