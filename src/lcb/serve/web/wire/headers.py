"""Headers that every answer has, and the header Host of a request.

Browsers must not guess another type than the one that is given, and nobody keeps a copy of an answer that is about
people.  Only static files, which are the same for everybody, may be kept.
"""

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
