"""Routes and what is common to all of them: reading the body, checking the key and rate, errors, metrics.

A `Call` describes one route: the scope it needs, its handler (`Ask` -> `Reply`) and the types of request and response,
from which the OpenAPI document is built.  Every call goes through an `Endpoint`.  A Problem becomes an
application/problem+json response; any other exception is logged and becomes a 500 that names only the request id.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_plus

import msgspec

from lcb.errors import StoreError
from lcb.serve.errors import Problem, forget_frames
from lcb.serve.events import Actor
from lcb.serve.observe.logging import read_request_id
from lcb.serve.observe.places import Places
from lcb.serve.threads import CALLER
from lcb.serve.web.limits.body_turns import LARGE, BodyTurns
from lcb.serve.web.limits.caller_turns import CallerTurns
from lcb.serve.web.wire.cycle import Cycle, encode_headers
from lcb.serve.web.wire.headers import NO_STORE, NOSNIFF
from lcb.serve.web.wire.places import group_address

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")
_OTHER_SITE = "this request comes from a page of another site; create a key (lcb keys create) and send it"
_FAILURES = (401, 404)  # answers that are counted by address
_JSON = msgspec.json.Encoder()


class Ask(msgspec.Struct):
    """A request: its body, its ASGI scope and the parameters of its path."""

    body: bytes
    scope: Scope
    path: Mapping[str, Any]
    who: str | None = None  # name of the caller's key
    cycle: Cycle | None = None  # None: something is between the server and this

    def check_there(self) -> None:
        """Raise Disconnected if nobody waits for the answer; for work that has not begun."""
        if self.cycle is not None and self.cycle.disconnected:
            raise Disconnected

    @property
    def actor(self) -> Actor:
        return Actor(self.who, address_of(self.scope))

    @property
    def by_tls(self) -> bool:
        return self.scope.get("scheme") == "https"

    def header(self, name: bytes) -> bytes | None:
        return find_header(self.scope, name)


def find_header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def address_of(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def counted_address(scope: Scope) -> str:
    """Return the address under which a caller is counted: of an IPv6 address the first 64 bits."""
    client = scope.get("client")
    address: str = client[0] if client else ""
    return group_address(address) if ":" in address else address


class Reply(msgspec.Struct):
    body: bytes
    status: int = 200
    type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = []
    stream: AsyncGenerator[bytes] | None = None  # sent after `body` until it ends or the client disconnects
    cache: bytes = NO_STORE  # the header Cache-Control
    release: Callable[[], None] | None = None  # called when the answer is sent, or its client gone


Handler = Callable[[Ask], Awaitable[Reply]]


class Call(NamedTuple):
    """One route.  `scope` is the scope of key it needs, "" for none.

    `request` and `response` are types of `messages`; `response` may be a media type instead.  `failures` are statuses
    of this route alone, beside those that any route may answer.  `query` maps query parameters to types.  `links` map
    operation ids to parameters and body fields taken from this call, as OpenAPI runtime expressions.  `status` is that
    of a successful answer.
    """

    method: str
    path: str
    handler: Handler
    scope: str
    request: Any = None
    response: Any = None
    failures: tuple[int, ...] = ()
    query: Mapping[str, Any] = {}
    links: Mapping[str, Mapping[str, str]] = {}
    status: int = 200
    body_optional: bool = False
    is_page: bool = False  # of the web pages
    large_body: bool = False  # takes bodies up to `limits.max_body`; others are small


def is_of_api(call: Call) -> bool:
    """Whether a call is of the API; its routes refuse a query, while probes, scrapes and pages may have any."""
    return call.path.startswith("/v1/")


class Around(Protocol):
    """What an endpoint needs of the application."""

    body_turns: BodyTurns
    caller_turns: CallerTurns

    def admit(self, scope: Scope, needed: str) -> str | None:
        """Return the name of a request's key after all checks; Problem 401, 403, 421 or 429."""

    def limit_failure(self, scope: Scope, who: str | None) -> Problem | None:
        """Count an answer 401 or 404 to a caller without a valid key; a Problem to send instead after too many."""

    def observe(self, route: str, status: int, seconds: float, request: str | None = None) -> None: ...

    def build_refusal(self, route: str, scope: Scope, error: Problem | StoreError) -> Problem:
        """Note a refusal, and return what the caller is told of it."""

    def unforeseen(self, route: str, error: Exception, request: str) -> None: ...


class Endpoint:
    """The ASGI endpoint of one route; `needed` is the scope of key it needs, "" for none.

    With `takes_query`, the query of a request may have anything.
    """

    def __init__(
        self, around: Around, route: str, handler: Handler, needed: str, max_body: int, *, takes_query: bool
    ) -> None:
        self.around, self.route, self.handler, self.needed = around, route, handler, needed
        self.max_body, self.takes_query = max_body, takes_query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request, who = read_request_id(scope["headers"]), None
        cycle = getattr(send, "__self__", None)
        if not isinstance(cycle, Cycle):  # something is between the server and this
            cycle = None
        try:
            who = self.around.admit(scope, self.needed)
            CALLER.set(who or counted_address(scope))
            if scope["query_string"] and not self.takes_query:
                raise _build_query_error(scope["query_string"])
            body = None if cycle is None else cycle.take_body()
            if body is None:
                body = await _read_body(receive, scope, self.max_body)
            elif len(body) > self.max_body:
                raise _too_large(self.max_body)
            if len(body) > LARGE:
                await self.around.body_turns.take(CALLER.get(), len(body))
            ask = Ask(body, scope, scope.get("path_params", {}), who, cycle)
            if not self.around.caller_turns.may_begin():
                await self.around.caller_turns.wait(CALLER.get())
                ask.check_there()
            reply = await self.handler(ask)
        except Disconnected:
            return
        except (Problem, StoreError) as error:
            reply = problem_reply(self.around.build_refusal(self.route, scope, error))
            forget_frames(error)
        except Exception as error:  # noqa: BLE001 (logged, and not shown to the caller)
            request = request or os.urandom(8).hex()
            self.around.unforeseen(self.route, error, request)
            detail = f"internal error; the service has logged it under request {request}"
            reply = problem_reply(Problem(500, detail))
            forget_frames(error)
        release = reply.release
        if reply.status in _FAILURES and (too_many := self.around.limit_failure(scope, who)) is not None:
            reply = problem_reply(too_many)
        if request is not None:
            reply.headers = [*reply.headers, (b"x-request-id", request.encode())]
        stream = None if scope["method"] == "HEAD" else reply.stream
        try:
            if stream is None and (cycle is None or not answer_whole(cycle, reply)):
                await respond(send, reply)
        finally:
            if release is not None:
                release()
        self.around.observe(self.route, reply.status, time.perf_counter() - began, request)
        if stream is not None:
            await _stream(receive, send, reply, stream)


class Disconnected(Exception):
    """The client disconnected before its request was complete, or before its work began."""


async def _read_body(receive: Receive, scope: Scope, most: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > most:
            raise _too_large(most)
    message = await _receive_part(receive)
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > most:
            raise _too_large(most)
        return body
    parts, size = [body], len(body)
    while message.get("more_body") and size <= most:
        message = await _receive_part(receive)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > most:
        raise _too_large(most)
    return b"".join(parts)


async def _receive_part(receive: Receive) -> MutableMapping[str, Any]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body is larger than the {most:,} bytes that this route takes; send less at a time")


def _build_query_error(query: bytes) -> Problem:
    """Return why a query is refused; a caller who sends one thinks that it has an effect."""
    name = unquote_plus(query.decode("latin-1").partition("&")[0].partition("=")[0])[:100]
    words = f"the query has {name!r}, and this route takes none; leave it out, and send fields in the body"
    return Problem(422, words, field="query")


SENT_BY_PAGES = frozenset({b"origin", b"sec-fetch-site"})  # headers that `refuse_other_sites` looks at


def refuse_other_sites(scope: Scope) -> None:
    """Refuse a request that a browser sends for a page of another site (cross-site request forgery)."""
    host = origin = b""
    for name, value in scope["headers"]:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
            raise Problem(403, _OTHER_SITE)
    if origin and origin.rpartition(b"/")[2] != host:
        raise Problem(403, _OTHER_SITE)


def list_common_headers(reply: Reply) -> tuple[tuple[bytes, bytes], ...]:
    return (b"content-type", reply.type), NOSNIFF, (b"cache-control", reply.cache)


def build_headers(reply: Reply) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, those that every answer has among them."""
    headers = [*list_common_headers(reply), *reply.headers]
    if reply.stream is None:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    return headers


def answer_whole(cycle: Cycle, reply: Reply) -> bool:
    """Send an answer in one piece; False if that is not possible now, or the answer is a stream."""
    if reply.stream is not None:  # HEAD of it
        return False
    return cycle.answer(reply.status, encode_headers(*list_common_headers(reply)), reply.headers, reply.body)


async def respond(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": build_headers(reply)})
    await send({"type": "http.response.body", "body": reply.body})


async def _stream(receive: Receive, send: Send, reply: Reply, parts: AsyncGenerator[bytes]) -> None:
    """Send part by part until the stream ends or the client disconnects."""
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await send({"type": "http.response.start", "status": reply.status, "headers": build_headers(reply)})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        async for part in parts:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await parts.aclose()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def build_problem(error: Problem | StoreError, places: Places) -> Problem:
    """Return what a caller is told; why the store refuses is told without saying where it is."""
    problem = places.build_problem(error) if isinstance(error, StoreError) else error
    if problem.status == 503:
        problem = Problem(503, places.hide(problem.detail), field=problem.field, retry_after=problem.retry_after)
    return problem


def problem_reply(problem: Problem) -> Reply:
    headers = [] if problem.retry_after is None else [(b"retry-after", b"%d" % problem.retry_after)]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return Reply(problem.to_json(), problem.status, b"application/problem+json", headers)


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(_JSON.encode(value), status)
