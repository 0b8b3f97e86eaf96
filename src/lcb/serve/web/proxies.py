"""The address of a caller behind a proxy that the setting `proxies` names.

uvicorn takes it from X-Forwarded-For: the last entry that is not itself a named proxy.  The entry may be any text, so
it is checked here before it is used to count requests and to say in the log who did what.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from lcb.serve.errors import Problem
from lcb.serve.web.endpoint import Receive, Scope, Send, address_of, problem_reply, respond


class CheckedAddresses:
    """An ASGI application around `app` that answers 400 if the caller's address is not an IP address."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            try:
                address = ipaddress.ip_address(address_of(scope))
            except ValueError:
                return respond(send, problem_reply(_describe_bad_address(address_of(scope))))
            scope["client"] = (str(address), scope["client"][1])
            scope["scheme"] = scope["scheme"].lower()  # as X-Forwarded-Proto gave it
        return self.app(scope, receive, send)


def _describe_bad_address(given: str) -> Problem:
    words = f"X-Forwarded-For names {given[:100]!r}, which is no IP address"
    return Problem(400, f"{words}; let the proxy set it to the address of its client", field="X-Forwarded-For")
