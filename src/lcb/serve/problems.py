"""What went wrong, as application/problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from lcb.errors import LCBError


class Problem(LCBError):
    """An answer that says what came, what was wanted and what to do next; `field` names the place in the request."""

    def __init__(self, status: int, detail: str, *, field: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field, self.retry_after = status, detail, field, retry_after

    def to_json(self) -> bytes:
        title = HTTPStatus(self.status).phrase
        said = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return msgspec.json.encode(said if self.field is None else said | {"field": self.field})


def from_validation(error: Exception, body: bytes) -> Problem:
    """What a body that could not be read has wrong."""
    return Problem(422, str(error))
