"""Connects commands to a running service: the options for its address and key, and its errors in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from lcb.errors import InputError, ServiceError, Unreachable

if TYPE_CHECKING:
    from lcb.client import Client

URL = "http://127.0.0.1:8000"
_KEY_HELP = "Key for the service. Prefer the variable: a list of processes shows options."
Url = Annotated[str, typer.Option(help="Address of the service.", metavar="URL")]
Key = Annotated[str | None, typer.Option(help=_KEY_HELP, envvar="LCB_KEY", metavar="KEY")]
_SECONDS = 30.0  # for an answer; commands do not retry, that is left to scripts


@contextmanager
def connect(url: str, key: str | None) -> Iterator[Client]:
    """Open a client for the service at `url`; its errors become an InputError that names the address.

    A service on this machine is reached directly, even if the environment names a proxy.
    """
    from lcb.client import Client  # before httpx: its error has the install line

    import httpx  # isort: skip

    local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    transport = httpx.HTTPTransport() if local else None
    try:
        with Client(url, key or None, timeout=_SECONDS, deadline=_SECONDS, retries=0, transport=transport) as client:
            yield client
    except ServiceError as error:
        raise InputError(f"{url}: {error}") from None
    except Unreachable as error:
        message = f"{url} does not answer ({error.reason}); start a service with lcb serve, or give --url"
        raise InputError(message) from None


def ask_page(client: Client, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """GET a route of the service's pages, which is not part of the API; POST if there is a body."""
    from lcb.client.calls import Call, encode

    call = Call("GET", path, None, dict) if body is None else Call("POST", path, encode(body), dict)
    return client.send(call)


def convert_answer(answer: object) -> Any:
    """Return an answer of the client as JSON values."""
    import msgspec

    return msgspec.to_builtins(answer)
