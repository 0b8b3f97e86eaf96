"""Headers that every answer has, and checks of headers of a request.

Browsers must not guess another type than the one that is given, and nobody keeps a copy of an answer that is about
people.  Only static files, which are the same for everybody, may be kept.
"""

from __future__ import annotations

from lcb.serve.errors import Problem

NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = b"no-store"  # of Cache-Control


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
