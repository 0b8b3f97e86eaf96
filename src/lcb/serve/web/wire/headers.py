"""Headers that every answer has, and what the first line and the headers of a request say.

Browsers must not guess another type than the one that is given, and nobody keeps a copy of an answer that is about
people.  Only static files, which are the same for everybody, may be kept.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from httptools import parse_url

from lcb.serve.errors import Problem

NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = b"no-store"  # of Cache-Control
_PLAIN_PATH = re.compile(rb"(?:/[\w.:~-]+)+")  # with nothing in it that must be decoded


def read_target(target: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[str, bytes, bytes]:
    """Return the decoded path, the path and the query of a request; a host in its target replaces the header Host.

    >>> read_target(b"http://a:80/users/Zo%C3%AB?k=1", headers := [(b"host", b"b")]), headers
    (('/users/Zoë', b'/users/Zo%C3%AB', b'k=1'), [(b'host', b'a:80')])
    """
    query = b""
    if not _PLAIN_PATH.fullmatch(target):
        parsed = parse_url(target)
        if parsed.host is not None:  # RFC 9112, 3.2.2: the target's host counts, not the header's
            replace_host(headers, parsed.host, parsed.port)
        target, query = parsed.path or b"/", parsed.query or b""
    path = target.decode("ascii")
    return unquote(path) if "%" in path else path, target, query


def replace_host(headers: list[tuple[bytes, bytes]], host: bytes, port: int | None) -> None:
    """Replace the header Host of a request by the host of its target.

    >>> headers = [(b"host", b"other"), (b"accept", b"*/*")]
    >>> replace_host(headers, b"::1", 80)
    >>> headers
    [(b'accept', b'*/*'), (b'host', b'[::1]:80')]
    """
    host = b"[%b]" % host if b":" in host else host
    headers[:] = [header for header in headers if header[0] != b"host"]
    headers.append((b"host", host if port is None else b"%b:%d" % (host, port)))


def check_upgrade(method: bytes, headers: list[tuple[bytes, bytes]]) -> Problem | None:
    """Return the problem of a request to upgrade whose body the parser would take for the next request."""
    if method == b"CONNECT":
        return Problem(400, "CONNECT is for proxies, and this is none; send the request itself")
    if any(name == b"transfer-encoding" or (name == b"content-length" and int(value)) for name, value in headers):
        return Problem(400, "a request with the header Upgrade may not have a body; leave Upgrade out (HTTP/1.1)")
    return None


def count_headers(headers: list[tuple[bytes, bytes]]) -> tuple[int, int, int]:
    """Return the number of headers Host, of transfer codings that are not understood, and the length of the body.

    >>> count_headers([(b"host", b"a"), (b"transfer-encoding", b"gzip"), (b"content-length", b"7")])
    (1, 1, 7)
    """
    n_hosts = n_codings = n_wrong = size = 0
    for name, value in headers:
        if name == b"host":
            n_hosts += 1
        elif name == b"transfer-encoding":
            n_codings += 1
            n_wrong += n_codings > 1 or value.strip().lower() != b"chunked"
        elif name == b"content-length":
            size = int(value)
    return n_hosts, n_wrong, size
