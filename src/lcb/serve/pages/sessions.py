"""Sessions of operators: random ids that end after a day, at sign-out, or when their key is revoked.

The log has a SHA-256 of each id, in its audit events, so that replicas agree and a restart ends no session.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import Any

from lcb.serve import events
from lcb.serve.service import Service
from lcb.serve.web.keys import Keyring
from lcb.storage.store.base import Key, Row

DAY = 24 * 3600
SIGNED_IN, SIGNED_OUT = "signed in", "signed out"
_MOST = 1000  # sessions; a new one ends the oldest


def digest_of(session: str) -> bytes:
    return hashlib.sha256(session.encode()).digest()


class Sessions:
    """The sessions that the log has begun and not ended."""

    def __init__(self, service: Service, keyring: Keyring) -> None:
        self.service, self.keyring = service, keyring
        self._open: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()  # digest -> that of the key, end
        self.load()
        service.watchers.append(self._watch)

    def load(self) -> None:
        """Read the sessions of the last day from the log."""
        newest = self.service.store.newest_of_service(("audit",), self.service.world.seq)
        for row in reversed(newest):
            self._watch(row, events.decode(row.kind, row.body))

    def _watch(self, row: Row, body: Any) -> None:
        if row.kind != "audit" or body.session is None:
            return
        if body.action == SIGNED_OUT:
            self._forget(body.session)
        elif body.until > self.service.now():
            self._open[body.session] = body.key, body.until
            if len(self._open) > _MOST:
                self._open.popitem(last=False)

    def _forget(self, digest: bytes) -> None:
        self._open.pop(digest, None)

    async def begin(self, key: Key, by: events.Actor) -> str:
        """Return the id of a new session, once the log has it."""
        session = secrets.token_urlsafe(32)
        until = self.service.now() + DAY
        await self.service.record(SIGNED_IN, by, session=digest_of(session), key=key.sha256, until=until)
        return session

    async def end(self, session: str, by: events.Actor) -> None:
        """End a session; any other text ends nothing."""
        digest = digest_of(session)
        if digest in self._open:
            await self.service.record(SIGNED_OUT, by, session=digest)

    def find(self, session: str | None) -> Key | None:
        """Return the key that a session was begun with; None if the session has ended or never was."""
        found = None if session is None else self._open.get(digest_of(session))
        if found is None:
            return None
        key, until = found
        return self.keyring.find(key) if self.service.now() < until else None
