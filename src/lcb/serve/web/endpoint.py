"""From a request on the wire to a function and back: body, key, rate, errors, measurements.

A `Call` is one line of the table of routes: who may call it, a function from `Ask` to `Reply`, and the types of both
sides, which the page of OpenAPI is made of.  Every call goes through one `Endpoint`.  Problems become
application/problem+json; anything unforeseen is logged and becomes a 500 that tells nothing but where to look.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.errors import Problem
from lcb.serve.observe.logging import request_id

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")
_ELSEWHERE = "this comes from a page of another site; make keys (lcb keys create), and send one"
_JSON = msgspec.json.Encoder()


class Ask(msgspec.Struct):
    """A request: its body, what its path named, its headers, who asks."""

    body: bytes
    scope: Scope
    path: Mapping[str, Any]

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.scope["headers"] if key == name), None)


class Reply(msgspec.Struct):
    body: bytes
    status: int = 200
    type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = []
    stream: AsyncIterator[bytes] | None = None  # goes on after `body`, until it ends or nobody listens


Handler = Callable[[Ask], Awaitable[Reply]]


class Call(NamedTuple):
    """One route.  `needed` is the scope of key it asks for, "" for anybody.

    `takes` and `gives` are types of `messages`, or for `gives` a media type; `fails` are the statuses of its own, those
    that any route may answer aside; `query` are parameters by name, each a type.  `then` leads from an answer to the
    next call: operation -> its parameters and fields of its body, as OpenAPI's runtime expressions.  `good` is the
    status of the answer; a call with `bare` may come without a body.
    """

    method: str
    path: str
    handler: Handler
    needed: str
    words: str = ""
    takes: Any = None
    gives: Any = None
    fails: tuple[int, ...] = ()
    query: Mapping[str, Any] = {}
    then: Mapping[str, Mapping[str, str]] = {}
    good: int = 200
    bare: bool = False


class Around(Protocol):
    """What an endpoint needs of its surroundings."""

    max_body: int

    def admit(self, scope: Scope, needed: str) -> None:
        """Let a request in, or raise a Problem: 401, 403, 429."""

    def observe(self, route: str, status: int, seconds: float, request: str | None = None) -> None: ...

    def unforeseen(self, route: str, error: Exception, request: str) -> None: ...


class Endpoint:
    """One function behind one route; `needed` is the scope of key it asks for, "" for anybody."""

    def __init__(self, around: Around, route: str, handler: Handler, needed: str) -> None:
        self.around, self.route, self.handler, self.needed = around, route, handler, needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = request_id(scope["headers"])
        try:
            self.around.admit(scope, self.needed)
            body = await _body(receive, self.around.max_body)
            reply = await self.handler(Ask(body, scope, scope.get("path_params", {})))
        except Problem as problem:
            reply = problem_reply(problem)
        except StoreUnavailable as error:
            reply = problem_reply(Problem(503, str(error), retry_after=1))
        except StoreError as error:
            reply = problem_reply(Problem(503, str(error), retry_after=60))
        except Exception as error:  # noqa: BLE001 (the last resort: told to the log, not to the caller)
            request = request or os.urandom(8).hex()
            self.around.unforeseen(self.route, error, request)
            words = f"something went wrong here; the service's log says what, under request {request}"
            reply = problem_reply(Problem(500, words))
        if request is not None:
            reply.headers = [*reply.headers, (b"x-request-id", request.encode())]
        if reply.stream is None:
            await respond(send, reply)
        self.around.observe(self.route, reply.status, time.perf_counter() - began, request)
        if reply.stream is not None:
            await _stream(receive, send, reply, reply.stream)


async def _body(receive: Receive, most: int) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > most:
            raise _too_large(most)
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        if size > most:
            raise _too_large(most)
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
    if size > most:
        raise _too_large(most)
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body has more than {most:,} bytes; send fewer arms, or name items of the catalogue")


def refuse_other_sites(scope: Scope) -> None:
    """Where no key is asked for, a page of another site must not act through the browser of whoever looks at it."""
    host = origin = b""
    for name, value in scope["headers"]:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
            raise Problem(403, _ELSEWHERE)
    if origin and origin.rpartition(b"/")[2] != host:
        raise Problem(403, _ELSEWHERE)


async def respond(send: Send, reply: Reply) -> None:
    headers = [(b"content-type", reply.type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _stream(receive: Receive, send: Send, reply: Reply, parts: AsyncIterator[bytes]) -> None:
    """Part by part, until the stream ends or the client has gone."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        headers = [(b"content-type", reply.type), *reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        async for part in parts:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def problem_reply(problem: Problem) -> Reply:
    headers = [] if problem.retry_after is None else [(b"retry-after", b"%d" % problem.retry_after)]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return Reply(problem.to_json(), problem.status, b"application/problem+json", headers)


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(_JSON.encode(value), status)
