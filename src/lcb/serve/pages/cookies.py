"""Cookies: unguessable random values, of which the log has only hashes.

Whoever reads the log learns neither the sessions of operators nor the cookies of visitors, so
no secret that signs them is needed.
"""

from __future__ import annotations

import hashlib
import re
import secrets

_PORT = re.compile(rb":([0-9]{1,5})$")  # an IPv6 address without a port ends with ]
_VISITOR = re.compile(r"[0-9a-f]{12}\.[A-Za-z0-9_-]{22}")


def new_visitor_cookie(now: float) -> str:
    """Return a random value that begins with the time, so that the names made of them sort by time."""
    return f"{int(now * 1000):012x}.{secrets.token_urlsafe(16)}"


def name_of(role: str, cookie: str | None) -> str | None:
    """Return the name of the visitor with this cookie, which does not tell the cookie; None if it is not a cookie.

    >>> name_of("reader", "0197c2a5b1f0.AAAAAAAAAAAAAAAAAAAAAA")
    'reader-0197c2a5b1f09282c5ce5a778036356f8827323109a8'
    """
    if cookie is None or _VISITOR.fullmatch(cookie) is None:
        return None
    return f"{role}-{cookie[:12]}{hashlib.sha256(f'{role} {cookie}'.encode()).hexdigest()[:32]}"


def name_cookie(name: str, host: bytes | None) -> str:
    """Return the name of a cookie on the host that a request gives; it ends with the port, if that is given.

    A browser sends the cookies of one port to all ports of a host.  So that a sign-in to one service does not end that
    to another, their cookies have different names.

    >>> name_cookie("lcb_session", b"shop.example"), name_cookie("lcb_session", b"[::1]:8001")
    ('lcb_session', 'lcb_session_8001')
    """
    found = _PORT.search(host or b"")
    return name if found is None else f"{name}_{int(found[1])}"


def read_cookies(header: bytes | None) -> dict[str, str]:
    """Parse the Cookie header of a request.

    >>> read_cookies(b"a=1; b=x.y=z")
    {'a': '1', 'b': 'x.y=z'}
    """
    pairs = (part.partition("=") for part in (header or b"").decode("latin-1").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def set_cookie(name: str, value: str, *, max_age: int, secure: bool) -> tuple[bytes, bytes]:
    """Return a Set-Cookie header; scripts cannot read the cookie, and pages of other sites do not send it.

    `secure`: the page came by TLS, and the cookie is to be sent by TLS only.
    """
    more = "; Secure" if secure else ""
    return b"set-cookie", f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{more}".encode()
