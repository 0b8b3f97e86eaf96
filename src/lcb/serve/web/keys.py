"""API keys: who may read, who may write, who may change models and erase people.

A key is shown once, when it is made; the store has its SHA-256 alone.  Scopes are steps: a writer may read, an admin
may do everything.  Without any key the service is open, and then listens on this machine alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Sequence

from lcb.errors import InputError
from lcb.serve.errors import Problem
from lcb.storage.store.base import Key, Store

SCOPES = ("reader", "writer", "admin")
_NOBODYS = bytes(32)
_RANK = {scope: rank for rank, scope in enumerate(SCOPES)}


def create(store: Store, name: str, scope: str, now: float) -> str:
    """Make a key; what is returned is the only time it is seen."""
    if scope not in SCOPES:
        raise InputError(f"scope {scope!r}; it is one of {', '.join(SCOPES)}")
    if not name or not name.isprintable() or len(name) > 100:
        raise InputError(f"name {name[:100]!r}; give printable text of at most 100 characters")
    if any(key.name == name and key.revoked is None for key in store.list_keys()):
        raise InputError(f"there is a key named {name!r}; revoke it first, or take another name")
    secret = f"lcb_{secrets.token_urlsafe(32)}"
    store.save_key(Key(name, scope, sha256(secret), now, None))
    return secret


def revoke(store: Store, name: str, now: float) -> None:
    """A key that no longer opens anything; it stays in the list."""
    found = next((key for key in store.list_keys() if key.name == name), None)
    if found is None:
        there = ", ".join(key.name for key in store.list_keys()) or "none"
        raise InputError(f"no key named {name!r}; there are: {there}")
    store.save_key(found._replace(revoked=found.revoked or now))


def sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Keyring:
    """The keys of a running service, as last read from the store."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self.keys = keys

    @property
    def keys(self) -> Sequence[Key]:
        return self._keys

    @keys.setter
    def keys(self, keys: Sequence[Key]) -> None:
        self._keys = list(keys)
        self._by_digest = {key.sha256: key for key in keys}

    @property
    def open(self) -> bool:
        """No key was ever made."""
        return not self.keys

    def check(self, authorization: bytes | None, needed: str) -> str | None:
        """The name of the key that opens this; None where everything is open."""
        if not needed or self.open:
            return None
        if authorization is None:
            raise Problem(401, "this needs a key; send Authorization: Bearer KEY (lcb keys create makes one)")
        kind, _, secret = authorization.decode("latin-1").partition(" ")
        digest = sha256(secret.strip())
        found = self._by_digest.get(digest)  # by a digest that nobody can steer: time tells nothing of a key
        same = hmac.compare_digest(_NOBODYS if found is None else found.sha256, digest)
        if kind.lower() != "bearer" or found is None or not same or found.revoked is not None:
            raise Problem(401, "this key is not known, or was revoked; send Authorization: Bearer KEY")
        return _enough(found, needed)

    def check_session(self, digest: str, needed: str) -> str | None:
        """The same for a session that began with the key of this digest; None where that opens nothing any more."""
        found = self.of_session(digest)
        return None if found is None else _enough(found, needed)

    def of_session(self, digest: str) -> Key | None:
        return next((key for key in self.keys if key.sha256.hex() == digest and key.revoked is None), None)


def _enough(key: Key, needed: str) -> str:
    if _RANK[key.scope] < _RANK[needed]:
        raise Problem(403, f"key {key.name} is a {key.scope}'s, this needs a {needed}'s")
    return key.name


def check_address(host: str, keyring: Keyring) -> None:
    """Refuse to listen beyond this machine while everything is open."""
    if not keyring.open or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InputError(
            f"host {host} is reached from other machines and there is no key; make one first "
            "(lcb keys create NAME --scope admin), or listen on 127.0.0.1"
        )
