"""Sessions of operators: random ids that end after a day, at sign-out, or when their key is revoked.

The log has a SHA-256 of each id, in its audit events, so that replicas agree and a restart ends no session.  If an
event could not be noted, which may have been a sign-out, no session is valid until the log is read again.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import structlog

from lcb.errors import StoreError
from lcb.serve import events
from lcb.serve.read_event import read_event
from lcb.serve.service import Service
from lcb.serve.web.keys import Keyring
from lcb.serve.web.limits.rate_limits import RateLimits
from lcb.storage.store.base import Key, Row

DAY = 24 * 3600
SIGNED_IN, SIGNED_OUT = "signed in", "signed out"
_WHAT = "sign-ins with one key"
_CLOCKS_DIFFER = 300  # seconds, between replicas
_MOST = 100  # sessions of one key; a new one ends the oldest of them


def digest_of(session: str) -> bytes:
    return hashlib.sha256(session.encode()).digest()


class Sessions:
    """The sessions that the log has begun and not ended."""

    def __init__(self, service: Service, keyring: Keyring) -> None:
        self.service, self.keyring = service, keyring
        self._open: dict[bytes, tuple[bytes, float]] = {}  # digest -> that of the key, end; the oldest first
        self._rates = RateLimits(service.settings.limits.sign_ins, "limits.sign_ins", seconds=400, what=_WHAT)
        self._in_doubt = True
        self.load()
        service.watchers.watch(self._watch, ("audit",), self._doubt)

    def load(self) -> None:
        """Read the sessions of the last day from the log."""
        newest, self._open = self.service.store.newest_of_service(("audit",), self.service.world.seq), {}
        for row in reversed(newest):
            self._watch(row, read_event(row))
        self._in_doubt = False

    def _doubt(self) -> None:
        self._in_doubt = True

    def _settle_doubt(self) -> None:
        """Read the log again if an event was missed."""
        if self._in_doubt:
            try:
                self.load()
            except StoreError as error:
                structlog.get_logger("lcb.serve").warning("sessions could not be read; none is valid", error=str(error))

    def _watch(self, row: Row, body: Any) -> None:
        if body.session is None:
            return
        if body.action == SIGNED_OUT:
            self._forget(body.session)
        elif body.until > self.service.now():
            self._open[body.session] = body.key, body.until
            of_key = [session for session, (key, _) in self._open.items() if key == body.key]
            if len(of_key) > _MOST:
                self._forget(of_key[0])

    def _forget(self, digest: bytes) -> None:
        self._open.pop(digest, None)

    async def begin(self, key: Key, by: events.Actor, before: str | None) -> str:
        """Return the id of a new session, once the log has it; `before`, the session of the same browser, ends.

        Problem 429 if this key was used for too many sign-ins: each of them writes to the log.
        """
        self._rates.take(key.name)
        if before is not None:
            await self.end(before, by)
        session = secrets.token_urlsafe(32)
        until = self.service.now() + DAY
        await self.service.record(SIGNED_IN, by, session=digest_of(session), key=key.sha256, until=until)
        return session

    async def end(self, session: str, by: events.Actor) -> None:
        """End a session; any other text ends nothing."""
        digest = digest_of(session)
        self._settle_doubt()
        if digest in self._open or self._in_doubt:
            await self.service.record(SIGNED_OUT, by, session=digest)

    def find(self, session: str | None) -> Key | None:
        """Return the key that a session was begun with; None if the session has ended or never was."""
        if session is None:
            return None
        self._settle_doubt()
        found = self._open.get(digest_of(session))
        if found is None or self._in_doubt:
            return None
        key, until = found
        left = until - self.service.now()
        if not 0 < left <= DAY + _CLOCKS_DIFFER:  # later: the clock was ahead when it began
            self._forget(digest_of(session))
            return None
        return self.keyring.find(key)
