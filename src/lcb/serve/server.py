"""Runs the service on a socket with uvicorn, in one process, until a signal.

    loading      the log is read; /healthz answers 200, everything else 503
    serving
    draining     after SIGTERM: /readyz answers 503, other requests are answered for `limits.drain` seconds more
    ending       the socket is closed; requests in flight are answered, queued events and then snapshots are written

The process ends at most `limits.drain` plus 9 s after the signal, even if the store hangs; acknowledged events are on
disk already, and snapshots that are not written in their 2 s are no failure.  A second signal skips the drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import scipy.linalg.lapack  # noqa: F401 (else the first decision of a warm-up waits for the import)
import structlog
import uvicorn

from lcb import messages
from lcb.errors import LCBError, StoreError
from lcb.serve.config.settings import Settings
from lcb.serve.errors import Problem
from lcb.serve.log.bootstrap import FirstItems, keep_recommenders, read_first_items
from lcb.serve.log.key_events import CheckedKeys, check_keys, describe_problems
from lcb.serve.observe import logging as logs
from lcb.serve.observe.redaction import redact
from lcb.serve.pages.routes import Pages
from lcb.serve.pages.study import Simulation
from lcb.serve.service import Service
from lcb.serve.threads import Threads
from lcb.serve.tracing import build_provider, trace
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Receive, Scope, Send, json_reply, problem_reply, respond
from lcb.serve.web.keys import Keyring, check_address, read_keys
from lcb.serve.web.proxies import CheckedAddresses
from lcb.serve.web.wire.listening import Acceptor, listen, provide_descriptors
from lcb.serve.web.wire.protocol import GuardedProtocol, protocol
from lcb.storage.store.base import Key, Store
from lcb.storage.store.open_store import open_store

_RELOAD_KEYS = 1.0  # seconds
_IN_FLIGHT = 5  # seconds for requests in flight after the socket is closed
_LAST_WRITES = 2.0  # seconds for queued events after that
_SNAPSHOTS = 1.5  # seconds for snapshots after that
_LAST_SNAPSHOT = 0.5  # seconds more for the commit that is under way then
_COLLECT = (20_000, 50, 20)  # thresholds of Python's cycle collector; requests create almost no cycles
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def build_app(service: Service, keyring: Keyring, simulation: Simulation | None = None) -> App:
    """Build the application: the API and, unless the settings switch them off, the web pages."""
    pages = partial(Pages, simulation=simulation) if service.settings.has_pages else None
    return App(service, keyring, pages)


def run(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    items: FirstItems | None = None,
    simulation: Simulation | None = None,
    keep: bool = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C; `ready` is called with the address once requests are answered.

    `items` fill an empty catalogue in place of the file that the settings name; `simulation` provides the study page
    with simulated visitors.  With `keep`, a log that has recommenders keeps them.
    """
    if items is None and settings.items is not None:
        items = read_first_items(settings.items)  # refuse a bad path before a store is created
    logs.configure(settings.log_level, settings.log_format)
    provider = None if settings.tracing is None else build_provider(settings.tracing)
    with contextlib.ExitStack() as undone:
        listening = listen(settings.host, settings.port)
        undone.callback(listening.close)
        store = open_store(settings.store, serve=True)
        undone.callback(store.close)
        checked = read_keys(store, time.time())
        keyring = Keyring(checked.keys, open=checked.open)
        check_address(settings, keyring)
        undone.pop_all()
    if keep:
        settings = keep_recommenders(settings, store)
    if store.discarded:
        structlog.get_logger("lcb.serve").warning("unfinished commit discarded", bytes=store.discarded)
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def build() -> App:
        made = build_app(Service(settings, store, items=items), keyring, simulation)
        if provider is not None:
            trace(made, provider)
        return made

    app = _ServiceApp(settings, store, keyring, address, build, ready)
    limits = settings.limits
    guarded = protocol(
        deadline=limits.deadline,
        max_body=limits.max_body,
        max_connections=provide_descriptors(limits.max_connections),
        max_per_address=limits.max_per_address,
        proxies=settings.proxies or (),
        on_refusal=app.count_refusal,
        on_abort=app.count_abort,
    )
    config = uvicorn.Config(
        CheckedAddresses(app) if settings.proxies else app,
        loop="uvloop",
        http=guarded,
        ws="none",
        interface="asgi3",
        access_log=False,
        log_config=None,
        lifespan="on",
        timeout_graceful_shutdown=_IN_FLIGHT,
        timeout_keep_alive=75,
        server_header=False,
        date_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies or ()),
    )
    app.server = _Server(config, guarded, app, limits.drain)
    try:
        app.server.run(sockets=[listening])
    finally:
        listening.close()
    if app.failure is not None:
        raise app.failure


def _freeze_collector() -> None:
    """Exclude everything loaded so far from cycle collection: scanning all users would stall requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


async def _has_ended(work: Coroutine[Any, Any, None], seconds: float) -> bool:
    done, _ = await asyncio.wait([task := asyncio.ensure_future(work)], timeout=seconds)
    if done:
        task.result()
    return bool(done)


def _end_process(code: int) -> NoReturn:
    """End although a thread is waiting for the store: threads cannot be cancelled."""
    sys.stderr.flush()
    os._exit(code)


class _Server(uvicorn.Server):
    """The server of uvicorn; on SIGTERM it first drains (/readyz answers 503), then ends with exit code 0."""

    def __init__(self, config: uvicorn.Config, guarded: type[GuardedProtocol], app: _ServiceApp, drain: float) -> None:
        super().__init__(config)
        self.guarded, self.app, self.drain = guarded, app, drain
        self.asked = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        make = partial(self.guarded, self.config, self.server_state, self.lifespan.state)
        sweep = self.guarded.find_sweep(self.server_state, asyncio.get_running_loop())
        self.servers = [Acceptor(one, make, sweep) for one in sockets or ()]  # type: ignore[misc]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in _SIGNALS}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_exit)
        try:
            yield
        finally:
            for sig, handler in before.items():  # during shutdown further signals are ignored
                signal.signal(sig, signal.SIG_IGN if self.asked else handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: only set flags and schedule work in the event loop."""
        loop = self.app.loop
        if loop is None or self.app.app is None:  # nothing has been acknowledged yet
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            return
        again, self.asked = self.asked, True
        loop.call_soon_threadsafe(self.app.start_draining, signal.Signals(sig).name)
        if again or sig == signal.SIGINT or not self.drain:
            self.should_exit = True
        else:
            loop.call_soon_threadsafe(loop.call_later, self.drain, self.end)

    def end(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.app.app is not None:
            self.app.app.heavy.end()  # those who wait for a story get 503 now
        await super().shutdown(sockets)


class _ServiceApp:
    """The outer ASGI application: starts the service in the event loop, answers 503 meanwhile, stops it at the end."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        keyring: Keyring,
        address: str,
        build: Callable[[], App],
        ready: Callable[[str], None] | None,
    ) -> None:
        self.settings, self.store, self.keyring = settings, store, keyring
        self.address, self.build, self.ready = address, build, ready
        self.app: App | None = None  # None while the log is read
        self.failure: Exception | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.server: _Server | None = None
        self.log = structlog.get_logger("lcb.serve")
        self.keys = Threads("keys")
        self._table: list[Key] | None = None  # as last held against the log

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "lifespan":
            return self.run_lifespan(receive, send)
        if self.app is not None:
            return self.app(scope, receive, send)
        return self.answer_loading(scope, send)

    async def answer_loading(self, scope: Scope, send: Send) -> None:
        """Answer while the log is read."""
        if scope["path"] == "/healthz":
            await respond(send, json_reply(messages.Health("ok")))
        elif scope["path"] == "/readyz":
            await respond(send, json_reply(messages.Health("loading", "the log is being read"), 503))
        else:
            problem = Problem(503, "the service is reading its log; try again in a second", retry_after=1)
            await respond(send, problem_reply(problem))

    async def run_lifespan(self, receive: Receive, send: Send) -> None:
        """ASGI lifespan: start in the background at startup, stop at shutdown."""
        self.loop = asyncio.get_running_loop()
        await receive()
        await send({"type": "lifespan.startup.complete"})
        up = asyncio.create_task(self.start())
        await receive()
        reloading = await up
        if self.app is None or reloading is None:
            self.store.close()
        else:
            reloading.cancel()
            await self.stop(self.app)
        await send({"type": "lifespan.shutdown.complete"})

    async def stop(self, app: App) -> None:
        service = app.service

        async def write_events() -> None:
            await app.end_work()
            await service.journal.stop()

        if not await _has_ended(write_events(), _LAST_WRITES):
            self.log.error("the store does not answer; ended without waiting for it", seq=service.world.seq)
            _end_process(1)
        if not await _has_ended(service.save_snapshots(_SNAPSHOTS), _SNAPSHOTS + _LAST_SNAPSHOT):
            self.log.info("no time for all snapshots; the next start reads more of the log", seq=service.world.seq)
            _end_process(0)
        service.close()
        self.log.info("stopped", seq=service.world.seq)

    async def start(self) -> asyncio.Task[None] | None:
        """Read the log, then let requests through; returns the task that reloads keys."""
        try:
            app = await asyncio.to_thread(self.build)
            app.start()
        except Exception as error:  # noqa: BLE001 (raised again by `run`)
            self._fail(error)
            return None
        _freeze_collector()
        self.app, service = app, app.service
        self.log.info(
            "ready",
            address=self.address,
            store=redact(self.store.url),
            seq=service.world.seq,
            model=service.world.state.active,
            keys=len(self.keyring.keys),
            pages=self.settings.has_pages,
        )
        if self.ready is not None:
            self.ready(self.address)
        return asyncio.create_task(self._reload_keys())

    def _fail(self, error: Exception) -> None:
        """End the process with this error."""
        self.failure = error
        assert self.server is not None
        self.server.should_exit = True

    def start_draining(self, why: str) -> None:
        """Begin to drain, after a signal."""
        if self.app is not None and not self.app.draining:
            self.app.draining = True
            self.log.info("draining", why=why, seconds=self.settings.limits.drain)

    def count_refusal(self, status: int) -> None:
        """Count a connection that a limit closed; status 0: closed without an answer."""
        if self.app is not None:
            self.app.metrics.refused[status] = self.app.metrics.refused.get(status, 0) + 1

    def count_abort(self) -> None:
        """Count a client that disconnected before its answer was complete."""
        if self.app is not None:
            self.app.metrics.n_aborted += 1

    async def _reload_keys(self) -> None:
        """Reload the keys every second, so that new and revoked keys take effect; end a service that is broken."""
        while True:
            await asyncio.sleep(_RELOAD_KEYS)
            if self.app is not None and (why := self.app.service.journal.broken) is not None:
                self._fail(StoreError(f"{why}; ended, because the state in memory differs from the log: start again"))
                return
            try:
                checked = await self.keys.run(self._read_changed_keys)
                if checked is not None:
                    self.keyring.keys, self.keyring.open = checked.keys, self.keyring.open and checked.open
                if self.app is not None:
                    await self.app.note_keys()
            except LCBError as error:
                self.log.warning("keys could not be read", error=str(error))

    def _read_changed_keys(self) -> CheckedKeys | None:
        """Hold the table of keys against the log, in a thread; None if it is as it was the last time."""
        table = self.store.list_keys()
        if table == self._table:
            return None
        checked = check_keys(self.store)
        assert checked is not None
        if checked.problems:
            self.log.error("keys differ from the log", error=describe_problems(checked.problems.values()))
        self._table = table
        return checked
