"""Asking a running service: where it is, by which key, and what it says when it says no."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import typer

from lcb.errors import InputError

Url = Annotated[str, typer.Option(help="Where the service answers.", metavar="URL")]
Key = Annotated[
    str | None, typer.Option(help="A key of the service; better in the variable, where no list of processes shows it.",
                             envvar="LCB_KEY", metavar="KEY"),
]  # fmt: skip
URL = "http://127.0.0.1:8000"
_SECONDS = 30


def ask(url: str, key: str | None, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the service answers; an InputError in its own words where it refuses."""
    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise InputError(f"--url {url}; give the address of a service, as http://127.0.0.1:8000")
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["content-type"] = "application/json"
    request = Request(f"{url.rstrip('/')}{path}", data, headers, method=method)
    try:
        with _opener(split.hostname).open(request, timeout=_SECONDS) as answer:
            return json.loads(answer.read())
    except HTTPError as error:
        raise InputError(f"{url}: {_refusal(error)}") from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(f"{url} does not answer ({reason}); start one with lcb serve, or give --url") from None
    except ValueError:
        raise InputError(f"{url} answers with something else than JSON; is that a service of lcb?") from None


def _opener(host: str) -> OpenerDirector:
    """This machine is asked directly, whatever proxy there is for others."""
    return build_opener(ProxyHandler({})) if host in ("127.0.0.1", "localhost", "::1") else build_opener()


def _refusal(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}; is that a service of lcb?"
