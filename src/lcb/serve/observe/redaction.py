"""Masks secrets in everything that is logged, printed or answered.

Masked are API keys (lcb_...), passwords in URLs and in password=..., Authorization headers and cookies.
"""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"authorization|cookie|password|passwd|secret|token|(^|_)key$", re.IGNORECASE)
_PASSWORD = r"((?:password|passwd|sslpassword|passphrase)\s*=\s*)(?:'[^']*'|[^\s&'\"]+)"
_PATTERNS = (
    (re.compile(r"\blcb_[A-Za-z0-9_-]{16,}"), f"lcb_{HIDDEN}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@?#]*:)[^\s]*@", re.IGNORECASE), rf"\g<1>{HIDDEN}@"),
    (re.compile(_PASSWORD, re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\g<1> {HIDDEN}"),
    (re.compile(r"((?:set-)?cookie['\"]?\s*[:=,]\s*b?['\"]?)[^'\"\r\n]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
)


def redact(text: str) -> str:
    """Return the text with every secret masked.

    >>> redact("postgresql://lcb:s3cret@db/lcb refused Bearer abcdefgh12345678")
    'postgresql://lcb:***@db/lcb refused Bearer ***'
    >>> redact("key lcb_Zm9vYmFyYmF6cXV4Zm9vYmFy, host=db password=s3cret")
    'key lcb_***, host=db password=***'
    """
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def is_secret(name: str) -> bool:
    """Whether values of this name are always hidden.

    >>> is_secret("Set-Cookie"), is_secret("cookie_secret"), is_secret("LCB_KEY"), is_secret("keys")
    (True, True, True, False)
    """
    return bool(_SECRET_NAMES.search(name))


def redact_value(value: Any) -> Any:
    """Mask secrets in values nested in lists, tuples and dictionaries; bytes become text.

    >>> redact_value({"headers": [(b"authorization", b"Bearer abc")], "n": 3})
    {'headers': [('authorization', '***')], 'n': 3}
    """
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {
            redact_value(name): HIDDEN if isinstance(name, str) and is_secret(name) else redact_value(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) == 2 and isinstance(value[0], str | bytes) and is_secret(_to_text(value[0])):
            return (_to_text(value[0]), HIDDEN)
        inner = [redact_value(one) for one in value]
        return inner if isinstance(value, list) else tuple(inner)
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


def _to_text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("latin-1")
