"""A service on a socket: uvicorn, one process, until a signal; then what waits is finished and written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog
import uvicorn

from lcb.errors import LCBError, OutputError
from lcb.serve.app import App
from lcb.serve.http import Receive, Scope, Send
from lcb.serve.keys import Keyring, check_address
from lcb.serve.service import Service
from lcb.serve.settings import Settings
from lcb.storage.store import Store, open_store

_LOOK_AT_KEYS = 1.0  # seconds


def run(settings: Settings, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; `ready` is told the address once requests are answered."""
    store = open_store(settings.store, serve=True)
    try:
        keyring = Keyring(store.list_keys())
        check_address(settings.host, keyring)
        listening = _listen(settings.host, settings.port)
        service = Service(settings, store)
    except LCBError:
        store.close()
        raise
    app = App(service, keyring)
    config = uvicorn.Config(
        _Lifespan(app, service, store, keyring), loop="uvloop", http="httptools", access_log=False, log_config=None,
        lifespan="on", timeout_graceful_shutdown=8, timeout_keep_alive=75, server_header=False, date_header=False,
        proxy_headers=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    host, port = listening.getsockname()[:2]
    if ready is not None:
        app.ready_hooks.append(lambda: ready(f"http://{f'[{host}]' if ':' in host else host}:{port}"))
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port} ({error.strerror}); give another --port or --host") from None
    return listening


class _Lifespan:
    """Brings the service up inside the event loop, and down when the last request is answered."""

    def __init__(self, app: App, service: Service, store: Store, keyring: Keyring) -> None:
        self.app, self.service, self.store, self.keyring = app, service, store, keyring
        self.log = structlog.get_logger("lcb.serve")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()
        self.service.start()
        for number, version in self.service.world.versions.items():
            if not version.readable:
                self.log.error("a model version cannot be read", version=number, error=version.damaged)
        self.app.retraining.start()
        if self.app.pages is not None:
            self.app.pages.start()
        looking = asyncio.create_task(self._look_at_keys())
        await send({"type": "lifespan.startup.complete"})
        for hook in self.app.ready_hooks:
            hook()
        await receive()
        looking.cancel()
        await self.app.retraining.stop()
        if self.app.pages is not None:
            await self.app.pages.stop()
        await self.service.stop()
        self.log.info("stopped", seq=self.service.world.seq)
        await send({"type": "lifespan.shutdown.complete"})

    async def _look_at_keys(self) -> None:
        """Keys that were made or revoked while we serve."""
        while True:
            await asyncio.sleep(_LOOK_AT_KEYS)
            try:
                self.keyring.keys = await asyncio.to_thread(self.store.list_keys)
            except LCBError as error:
                self.log.warning("keys could not be read", error=str(error))
