"""API keys and their scopes: reader, writer, admin.

A key is shown once, when it is created; the store keeps only its SHA-256.  A writer may also read; an admin may also
change models and erase users.  While there is no key the service needs none, and listens on this machine only.  Each
key that is created or revoked is an event, and the table of keys is held against these events (`log/key_events.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence

import structlog

from lcb.errors import InputError, StoreError
from lcb.serve.config.settings import Settings
from lcb.serve.errors import Problem
from lcb.serve.log import key_events
from lcb.storage.store.base import Key, Store

SCOPES = ("reader", "writer", "admin")
_NO_DIGEST = bytes(32)
_RANK = {scope: rank for rank, scope in enumerate(SCOPES)}


def create(store: Store, name: str, scope: str, now: float, address: str = "command line") -> str:
    """Create a key and return it; it is not stored and cannot be shown again."""
    if scope not in SCOPES:
        raise InputError(f"scope is {scope!r}; it must be one of {', '.join(SCOPES)}")
    if not name or not name.isprintable() or len(name) > 100:
        raise InputError(f"name is {name[:100]!r}; give printable text of 1 to 100 characters")
    key_events.adopt(store, now, address)
    if any(key.name == name and key.revoked is None for key in store.list_keys()) or name in _read_log(store).valid:
        raise InputError(f"there is already a key named {name!r}; revoke it first, or choose another name")
    secret = f"lcb_{secrets.token_urlsafe(32)}"
    key = Key(name, scope, sha256(secret), now, None)
    key_events.record(store, key_events.CREATED, now, address, key)
    store.save_key(key)
    return secret


def revoke(store: Store, name: str, now: float, address: str = "command line") -> None:
    """Revoke a key of the table or of the log; it stays in the list."""
    key_events.adopt(store, now, address)
    keys, logged = store.list_keys(), _read_log(store).valid.get(name)
    found = next((key for key in keys if key.name == name), None)
    if found is None and logged is not None:
        found = Key(name, logged.scope, logged.sha256, now, None)
    if found is None:
        raise InputError(f"no key named {name!r}; the keys are: {', '.join(key.name for key in keys) or 'none'}")
    if found.revoked is None or logged is not None:
        key_events.record(store, key_events.REVOKED, now, address, found)
        store.save_key(found._replace(revoked=now))


def open_service(store: Store, now: float, address: str = "command line") -> None:
    """Let the service need no key from its next start on, although there were keys; all must be revoked."""
    key_events.adopt(store, now, address)
    valid = sorted({key.name for key in store.list_keys() if key.revoked is None} | set(_read_log(store).valid))
    if valid:
        raise InputError(f"there are valid keys: {', '.join(valid)}; revoke them first (lcb keys revoke NAME)")
    key_events.record(store, key_events.OPENED, now, address)


def _read_log(store: Store) -> key_events.KeysOfLog:
    found = key_events.read_keys_of_log(store)
    assert found is not None  # adopted before
    return found


def read_keys(store: Store, now: float) -> key_events.CheckedKeys:
    """Return the keys that a service starts with; StoreError if the table of keys differs from the log."""
    log = structlog.get_logger("lcb.serve")
    for key in key_events.adopt(store, now, "start of the service"):
        log.warning("a key of an earlier version is recorded in the log", key=key.name, scope=key.scope)
    checked = key_events.check_keys(store)
    assert checked is not None
    if checked.problems:
        raise StoreError(key_events.describe_problems(checked.problems.values()))
    return checked


def sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Keyring:
    """The keys of a running service, as last read from the store.

    `open`: no key was ever created, or the operator has opened the service since, so that requests need none.
    Deleting all keys of a running service closes it.
    """

    open = True

    def __init__(self, keys: Sequence[Key] = (), *, open: bool | None = None) -> None:
        self.keys = keys
        self.open = self.open if open is None else open

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
