"""Errors of the service, sent as application/problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from lcb.errors import LCBError

_LONGEST = 1000  # characters; a longer detail is cut


class Problem(LCBError):
    """An error answer; `detail` says what is wrong and what to do next, `field` names the wrong field of the request.

    `key` is the name of the caller's key, for the audit; it is not sent.

    >>> Problem(422, "k is 0; ask for more", field="k").to_json()
    b'{"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"k is 0; ask for more","field":"k"}'
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
        key: str | None = None,
    ) -> None:
        detail = detail if len(detail) <= _LONGEST else f"{detail[: _LONGEST - 1]}…"  # a detail may quote a long value
        super().__init__(detail)
        self.status, self.detail, self.field, self.retry_after, self.key = status, detail, field, retry_after, key

    def to_json(self) -> bytes:
        title = HTTPStatus(self.status).phrase
        body = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return msgspec.json.encode(body if self.field is None else body | {"field": self.field})


def forget_frames(error: BaseException) -> None:
    """Drop the traceback of an error that was answered, and those of the errors before it.

    Its frames hold the body of the request and often the error itself: only a late garbage collection would free both.
    """
    seen: BaseException | None = error
    while seen is not None:
        before, seen.__traceback__, seen.__context__ = seen.__context__, None, None
        seen = before
