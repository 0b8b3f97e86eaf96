"""API keys and their scopes: reader, writer, admin.

A key is shown once, when it is created; the store keeps only its SHA-256.  A writer may also read; an admin may also
change models and erase users.  While there is no key the service needs none, and listens on this machine only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from lcb.errors import InputError
from lcb.serve import events
from lcb.serve.config.settings import Settings
from lcb.serve.errors import Problem
from lcb.serve.event_ids import event_id
from lcb.serve.service import make_time_ordered_ids
from lcb.storage.store.base import Key, NewRow, Store

SCOPES = ("reader", "writer", "admin")
_NO_DIGEST = bytes(32)
_RANK = {scope: rank for rank, scope in enumerate(SCOPES)}


def create(store: Store, name: str, scope: str, now: float, address: str = "command line") -> str:
    """Create a key and return it; it is not stored and cannot be shown again."""
    if scope not in SCOPES:
        raise InputError(f"scope is {scope!r}; it must be one of {', '.join(SCOPES)}")
    if not name or not name.isprintable() or len(name) > 100:
        raise InputError(f"name is {name[:100]!r}; give printable text of 1 to 100 characters")
    if any(key.name == name and key.revoked is None for key in store.list_keys()):
        raise InputError(f"there is already a key named {name!r}; revoke it first, or choose another name")
    secret = f"lcb_{secrets.token_urlsafe(32)}"
    _record(store, f"created key {name} ({scope})", now, address)
    store.save_key(Key(name, scope, sha256(secret), now, None))
    return secret


def revoke(store: Store, name: str, now: float, address: str = "command line") -> None:
    """Revoke a key; it stays in the list."""
    found = next((key for key in store.list_keys() if key.name == name), None)
    if found is None:
        names = ", ".join(key.name for key in store.list_keys()) or "none"
        raise InputError(f"no key named {name!r}; the keys are: {names}")
    if found.revoked is None:
        _record(store, f"revoked key {name}", now, address)
        store.save_key(found._replace(revoked=now))


def _record(store: Store, action: str, now: float, address: str) -> None:
    """Append an audit event; `address` says where the command was given."""
    body = events.AuditBody(now, action, events.Actor(None, address))
    id = event_id("audit", make_time_ordered_ids(lambda: now)())
    store.append([NewRow(id, "audit", None, None, events.encode(body))], store.head())


def sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Keyring:
    """The keys of a running service, as last read from the store.

    `open`: no key was ever created, so that requests need none.  Deleting all keys of a running service closes it.
    """

    open = True

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self.keys = keys

    @property
    def keys(self) -> Sequence[Key]:
        return self._keys

    @keys.setter
    def keys(self, keys: Sequence[Key]) -> None:
        self._keys = list(keys)
        self._by_digest = {key.sha256: key for key in keys}
        self.open = self.open and not self._keys

    def check(self, authorization: bytes | None, needed: str) -> str | None:
        """Return the name of the key that a request carries; None if none is needed.  Problem 401 or 403."""
        if not needed or self.open:
            return None
        if authorization is None:
            raise Problem(401, "this route needs a key; send Authorization: Bearer KEY (lcb keys create makes one)")
        kind, _, secret = authorization.decode("latin-1").partition(" ")
        digest = sha256(secret.strip())
        found = self._by_digest.get(digest)  # looked up by digest, so timing reveals nothing about a key
        same = hmac.compare_digest(_NO_DIGEST if found is None else found.sha256, digest)
        if kind.lower() != "bearer" or found is None or not same or found.revoked is not None:
            raise Problem(401, "this key is unknown or revoked; send Authorization: Bearer KEY with a valid key")
        return check_scope(found, needed)

    def find(self, digest: bytes) -> Key | None:
        """Return the key with this SHA-256; None if there is none, or if it was revoked."""
        found = self._by_digest.get(digest)
        return None if found is None or found.revoked is not None else found


def check_scope(key: Key, needed: str) -> str:
    if _RANK[key.scope] < _RANK[needed]:
        raise Problem(403, f"key {key.name} has scope {key.scope}; this route needs {needed}", key=key.name)
    return key.name


def check_address(settings: Settings, keyring: Keyring) -> None:
    """Refuse to serve other machines while there is no key."""
    if keyring.open and settings.is_reachable:
        given = {"host": settings.host, "hosts": settings.hosts, "proxies": settings.proxies}
        shown = ", ".join(f"{name} is {value!r}" for name, value in given.items() if value)
        raise InputError(
            f"{shown}: other machines can reach the service, and there is no key; create one first "
            "(lcb keys create NAME --scope admin), or listen on 127.0.0.1 without hosts and proxies"
        )
