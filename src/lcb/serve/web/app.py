"""The ASGI application: finds the endpoint of a request, checks its key and rate, counts it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol
from urllib.parse import unquote_to_bytes

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcb import messages
from lcb.errors import StoreError
from lcb.serve.errors import Problem
from lcb.serve.learn.canaries import Canaries
from lcb.serve.learn.departures import Departures
from lcb.serve.learn.refits import Refits
from lcb.serve.learn.supervisor import Retraining
from lcb.serve.observe.logging import read_request_id
from lcb.serve.observe.metrics import Metrics
from lcb.serve.service import Service
from lcb.serve.threads import Threads
from lcb.serve.web.api import Api
from lcb.serve.web.endpoint import (
    SENT_BY_PAGES,
    Ask,
    Call,
    Endpoint,
    Receive,
    Reply,
    Scope,
    Send,
    address_of,
    build_headers,
    build_problem,
    counted_address,
    is_of_api,
    json_reply,
    problem_reply,
    refuse_other_sites,
    respond,
)
from lcb.serve.web.gauges import read_counts, read_gauges
from lcb.serve.web.hosts import Hosts
from lcb.serve.web.keys import SCOPES, Keyring
from lcb.serve.web.limits.body_turns import BodyTurns
from lcb.serve.web.limits.caller_turns import CallerTurns
from lcb.serve.web.limits.rate_limits import RateLimits
from lcb.serve.web.openapi import PROBES, build_document
from lcb.serve.web.refusals import REFUSED, Refusals

_SMALL_BODY = 16_384  # bytes; most routes take a key, an id or a few numbers


class Extension(Protocol):
    """Routes beside the API, such as the web pages; started and stopped with the application."""

    def routes(self) -> Iterable[Call]: ...

    def start(self) -> None:
        """Called inside the event loop, after the service has started."""

    async def stop(self) -> None: ...

    def check_session(self, scope: Scope, needed: str) -> str | None:
        """Return the name of the key behind the request's session cookie; None without a valid session.

        Raises Problem 403 if that key lacks the scope `needed`.
        """


class App:
    """The ASGI application: the routes of the API and, if `pages` is given, those that `pages(app)` adds."""

    def __init__(self, service: Service, keyring: Keyring, pages: Callable[[App], Extension] | None = None) -> None:
        self.service, self.keyring = service, keyring
        self.metrics = Metrics(partial(read_gauges, service), partial(read_counts, service))
        self.retraining = Retraining(service, self.metrics, has_keys=lambda: not keyring.open)
        self.refits = Refits(service, self.metrics)
        self.canaries = Canaries(service)
        self.departures = Departures(service, self.refits.begin_if_due)
        self._declared_open = keyring.open
        service.declare_teachers(self.retraining.list_closed())
        self.max_body = service.settings.limits.max_body
        self.rates = RateLimits(service.settings.limits.rate)
        what, setting = "requests that answer 401 or 404 without a valid key", "limits.failures"
        self.failures = RateLimits(service.settings.limits.failures, seconds=10, what=what, setting=setting)
        self.body_turns = BodyTurns()
        self.caller_turns = CallerTurns()
        self.heavy = Threads("heavy")  # reading and recomputing the log
        self.hosts = Hosts(service.settings)
        self.refusals = Refusals(service)
        self.draining = False  # after SIGTERM: requests are still answered, /readyz says 503
        self.log = structlog.get_logger("lcb.serve")
        self.debug = service.settings.log_level == "debug"
        self.pages = None if pages is None else pages(self)
        calls = self.calls = [
            *Api(service, self.retraining, self.count_elements, self.caller_turns).routes(),
            *self.routes(),
        ]
        if self.pages is not None:
            calls.extend(self.pages.routes())
        self._openapi = {open: msgspec.json.encode(build_document(calls, open=open)) for open in (False, True)}
        routes = []
        self.endpoints: list[Endpoint] = []
        self._exact = {}  # method and path -> endpoint, for routes without parameters: one lookup, no patterns
        for call in calls:
            max_body = self.max_body if call.large_body else min(_SMALL_BODY, self.max_body)
            route, takes_query = f"{call.method} {call.path}", bool(call.query) or not is_of_api(call)
            endpoint = Endpoint(self, route, call.handler, call.scope, max_body, takes_query=takes_query)
            self.endpoints.append(endpoint)
            routes.append(_build_route(call.path, endpoint, call.method))
            if "{" not in call.path:
                for method in routes[-1].methods or ():
                    self._exact[method, call.path] = endpoint
        self._router = Starlette(routes=routes, exception_handlers={HTTPException: self.refuse_route})
        self._router.router.redirect_slashes = False

    def start(self) -> None:
        """Start the service and background work; called inside the event loop."""
        self.service.start()
        for number, version in self.service.world.state.versions.items():
            if not version.readable:
                self.log.error("a model version cannot be read", version=number, error=version.damaged)
        self.retraining.start()
        self.refits.start()
        self.departures.start()
        self.canaries.start()
        self.refusals.start()
        if self.pages is not None:
            self.pages.start()

    async def note_keys(self) -> None:
        """After the keys were read again: if the first key was created, visitors may no longer teach."""
        if self._declared_open != self.keyring.open:
            await self.service.change_teachers(self.retraining.list_closed())
            self._declared_open = self.keyring.open

    async def stop(self) -> None:
        """End background work, then write what is queued, and the snapshots."""
        await self.end_work()
        await self.service.stop()

    async def end_work(self) -> None:
        self.heavy.end()
        await self.retraining.stop()
        await self.canaries.stop()
        await self.departures.stop()
        await self.refits.stop()
        await self.refusals.stop()
        if self.pages is not None:
            await self.pages.stop()

    def routes(self) -> Iterable[Call]:
        """The routes for operators: health, readiness, metrics, OpenAPI."""
        return [
            Call("GET", "/healthz", self.health, "", None, messages.Health),
            Call("GET", "/readyz", self.ready, "", None, messages.Health),
            Call("GET", "/metrics", self.measurements, "reader", None, "text/plain; version=0.0.4"),
            Call("GET", "/openapi.json", self.openapi, "", None, "application/json"),
        ]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._router(scope, receive, send)
        endpoint = self._exact.get((scope["method"], scope["path"]))
        if endpoint is not None:
            return endpoint(scope, receive, send)
        if not _is_utf8(scope):
            detail = "the path is not UTF-8; encode it as UTF-8, then percent-encode it"
            return respond(send, problem_reply(Problem(400, detail, field="path")))
        return self._router(scope, receive, send)

    # Around every endpoint

    def admit(self, scope: Scope, needed: str) -> str | None:
        """Return the name of a request's key after checks of host, key and rate; Problem 400, 401, 403, 421 or 429.

        Problem 503 from the API while the store no longer has what was answered: a repeated request would be told
        from memory that it is stored.
        """
        who = authorization = None
        probe, from_page = scope["path"] in PROBES, False
        for name, value in scope["headers"]:
            if name == b"host":
                if value not in self.hosts.known and not probe:
                    self.hosts.check(value)
            elif name == b"authorization":
                if authorization is not None:
                    raise Problem(400, "the request has two headers Authorization; send one")
                authorization = value
            elif name in SENT_BY_PAGES:
                from_page = True
        if needed and not self.keyring.open:
            if authorization is None and self.pages is not None:
                who = self.pages.check_session(scope, needed)
                if who is not None:
                    refuse_other_sites(scope)
            who = who or self.keyring.check(authorization, needed)
        elif needed and from_page:
            refuse_other_sites(scope)
        if not probe and self.rates.rate:
            self.rates.take(who or counted_address(scope))
        if needed and (lost := self.service.journal.lost) is not None and scope["path"].startswith("/v1/"):
            raise Problem(503, lost, retry_after=10)
        return who

    def count_elements(self, ask: Ask, n: int) -> None:
        """Count `n` further elements of a batch against the rate of its caller."""
        self.rates.add(ask.who or counted_address(ask.scope), n)

    def limit_failure(self, scope: Scope, who: str | None) -> Problem | None:
        """Count an answer 401 or 404 to this address; a Problem 429 to send instead if there were too many.

        Answers to requests with a valid key, which is named `who`, are neither counted nor replaced: nobody can lock
        out others at the same address, and a caller with a key may ask for as many unknown users as it likes.
        """
        if who is not None:
            return None
        try:
            self.failures.take(counted_address(scope))
        except Problem as problem:
            return problem
        return None

    def observe(self, route: str, status: int, seconds: float, request: str | None = None) -> None:
        self.metrics.observe(route, status, seconds)
        if self.debug:
            self.log.debug("answered", route=route, status=status, ms=round(seconds * 1000, 3), request=request)

    def build_refusal(self, route: str, scope: Scope, error: Problem | StoreError) -> Problem:
        problem = build_problem(error, self.service.places)
        if problem.status in REFUSED:
            self.refusals.note(address_of(scope), problem.status, route, problem.key)
        return problem

    def unforeseen(self, route: str, error: Exception, request: str) -> None:
        self.metrics.n_unforeseen += 1
        text = f"{type(error).__name__}: {error}"
        self.log.error("unforeseen", route=route, request=request, error=text, exc_info=error)

    # Routes

    async def health(self, ask: Ask) -> Reply:
        """Whether the process answers."""
        return json_reply(messages.Health("ok"))

    async def ready(self, ask: Ask) -> Reply:
        """Whether the service accepts requests; 503 with the reason if not."""
        journal = self.service.journal
        trouble = journal.broken or journal.trouble
        if self.draining:
            reason = "the service is shutting down; requests are still answered"
            return json_reply(messages.Health("draining", reason), 503)
        if trouble is not None:
            return json_reply(messages.Health("trouble", self.service.places.hide(trouble)), 503)
        return json_reply(messages.Health("ok"))

    async def openapi(self, ask: Ask) -> Reply:
        """This document."""
        return Reply(self._openapi[self.keyring.open])

    async def measurements(self, ask: Ask) -> Reply:
        """Metrics for Prometheus."""
        return Reply(self.metrics.render(), type=b"text/plain; version=0.0.4; charset=utf-8")

    async def refuse_route(self, request: Request, error: Exception) -> Response:
        """Answer 404 for an unknown path and 405 for an unknown method, as problem+json."""
        assert isinstance(error, HTTPException)
        path, method = request.scope["path"], request.method[:20]
        problem, headers = _no_route(path), {}
        if error.status_code == 404:
            problem = self.limit_failure(request.scope, self._find_key_name(request)) or problem
        else:
            routes = [one for one in request.app.routes if isinstance(one, Route) and one.path_regex.match(path)]
            allowed = ", ".join(sorted({name for route in routes for name in route.methods or ()}))
            problem = Problem(error.status_code, f"{path[:200]!r} does not allow {method!r}; it allows {allowed}")
            headers = {"allow": allowed}
        reply = problem_reply(problem)
        if (id := read_request_id(request.scope["headers"])) is not None:
            headers["x-request-id"] = id
        self.observe("none", reply.status, 0.0, id)
        shown = {name.decode(): value.decode() for name, value in build_headers(reply)}
        return Response(reply.body, reply.status, shown | headers)

    def _find_key_name(self, request: Request) -> str | None:
        """Return the name of the valid key that a request carries, whatever its scope."""
        try:
            return self.keyring.check(request.headers.get("authorization", "").encode("latin-1"), SCOPES[0])
        except Problem:
            return None


def _build_route(path: str, endpoint: Endpoint, method: str) -> Route:
    """Return a route whose pattern takes a line feed like any character: in a user's id, and not after a path."""
    route = Route(path, endpoint, methods=[method])
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    return route


def _is_utf8(scope: Scope) -> bool:
    """Whether the path is valid UTF-8; invalid bytes would be replaced, so that the path could name another user."""
    try:
        unquote_to_bytes(scope.get("raw_path") or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _no_route(path: str) -> Problem:
    return Problem(404, f"no route {path[:200]!r}; /openapi.json lists the routes")
