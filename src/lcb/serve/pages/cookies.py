"""Signed cookies: a value and its HMAC-SHA256 signature."""

from __future__ import annotations

import base64
import hashlib
import hmac


class Signer:
    """Signs with a key derived from the log's seed, so cookies stay valid after a restart.

    >>> signer = Signer(b"seed")
    >>> signer.read("reader", signer.sign("reader", "v-1")), signer.read("study", signer.sign("reader", "v-1"))
    ('v-1', None)
    """

    def __init__(self, seed: bytes) -> None:
        self._key = hashlib.blake2b(b"cookies", key=seed, digest_size=32).digest()

    def sign(self, name: str, value: str) -> str:
        text = base64.urlsafe_b64encode(value.encode()).decode().rstrip("=")
        return f"{text}.{self._compute_signature(name, text)}"

    def read(self, name: str, cookie: str | None) -> str | None:
        """Return the value if the signature is valid for a cookie of this name, else None."""
        text, dot, signature = (cookie or "").partition(".")
        if not dot or not hmac.compare_digest(signature.encode(), self._compute_signature(name, text).encode()):
            return None
        try:
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        except ValueError:
            return None

    def _compute_signature(self, name: str, text: str) -> str:
        digest = hmac.new(self._key, f"{name}={text}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def read_cookies(header: bytes | None) -> dict[str, str]:
    """Parse the Cookie header of a request.

    >>> read_cookies(b"a=1; b=x.y=z")
    {'a': '1', 'b': 'x.y=z'}
    """
    pairs = (part.partition("=") for part in (header or b"").decode("latin-1").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def set_cookie(name: str, value: str, *, max_age: int) -> tuple[bytes, bytes]:
    """Return a Set-Cookie header; scripts cannot read the cookie, and pages of other sites do not send it."""
    return b"set-cookie", f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict".encode()
