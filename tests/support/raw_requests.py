"""A service in this process that takes raw requests without a socket; its log and state can be compared."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.serve.web.keys import Keyring
from lcb.storage.store.base import Row
from lcb.storage.store.open_store import open_store
from support.server import settings as settings_of


class Answered(NamedTuple):
    status: int
    type: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class LogAndState(NamedTuple):
    """The log and the state, byte for byte."""

    rows: list[Row]
    users: dict[str, bytes]
    world: bytes
    items: list[Any]


class Local:
    """A service whose store is at `url`; `down` and `up` are a restart."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.settings = settings_of({"store": url, "pages": False, **settings})
        self.loop = asyncio.new_event_loop()
        self.up()

    def up(self) -> None:
        store = open_store(self.settings.store, serve=True)
        self.service = Service(self.settings, store)
        self.app = build_app(self.service, Keyring())
        self.run(self._start())

    async def _start(self) -> None:
        self.app.start()

    def down(self) -> None:
        self.run(self.app.stop())

    def close(self) -> None:
        self.down()
        self.loop.close()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def transport(self) -> httpx.ASGITransport:
        return httpx.ASGITransport(self.app, raise_app_exceptions=True)  # type: ignore[arg-type]

    def ask(self, method: str, path: str, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answered:
        """Send one request as a server passes it on: the path percent-decoded, the body unchanged."""
        return self.run(asyncio.wait_for(self._ask(method, path, body, headers), 60))

    def send(self, method: str, path: str, value: Any) -> Answered:
        return self.ask(method, path, json.dumps(value).encode())

    async def _ask(self, method: str, path: str, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> Answered:
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-length", b"%d" % len(body)), *headers],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        await self.app(scope, receive, send)
        kept = dict(said[0]["headers"])
        whole = b"".join(one.get("body", b"") for one in said[1:])
        return Answered(said[0]["status"], kept.get(b"content-type", b"").decode(), whole)

    def read_log_and_state(self) -> LogAndState:
        store, world = self.service.store, self.service.world
        rows = list(store.events(0))
        names = sorted({row.user for row in rows if row.user is not None})
        users = {}
        for name in names:
            user = world.user(name)
            assert user is not None
            users[name] = user.pack()
        return LogAndState(rows, users, world.snapshot().body, list(world.state.catalogue.list_items()))

    def verify(self) -> None:
        """Check that all decisions and states recomputed from the log equal those of the service."""
        report = verify(self.service.store, live=self.read_log_and_state().users)
        assert not report.differences, report.differences
        again = World(self.service.store)
        again.load(upto=self.service.world.seq)
        different = compare_worlds(self.service.world, again)
        assert not different, different
