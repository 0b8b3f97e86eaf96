"""The chain over the events of a log: the link of an event depends on every event up to it.

    content   f"{len(id)} {len(kind)} {len(user)} {model}\\n{id}{kind}{user}" in UTF-8, then the body
              lengths count characters; "-" stands for the length of a user that is null, and for a model that is null
    digest    BLAKE2b-256(salt + content)
    link      BLAKE2b-256(link of the event before + seq as 8 bytes, big-endian + digest)

The salt is 16 random bytes, stored with the event.  When a user is erased, the digests of their events are stored in
place of the salts, so the links still verify, but nobody can test a guess of what an erased event was.  The `erase`
event holds `digest_rewrite` of what is left of each, so that this cannot be changed unnoticed either.

Before the first link come 32 zero bytes.  Events that were written before there was a chain have neither salt nor link.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b

from lcb.storage.store.base import Head, NewRow, Rewrite, Row, Seal, as_seal

START = bytes(32)  # in place of the link before the first
SALT_BYTES, LINK_BYTES = 16, 32
_SALTS_AT_ONCE = 4096
_PIECE = (
    2047  # hashlib releases the interpreter lock for more bytes than that, and the writing thread then waits for it
)
_MOST_PIECES = 32
_begin = blake2b(digest_size=LINK_BYTES).copy  # faster than its arguments are read


class Salts:
    """Random salts, drawn many at once: each call of os.urandom releases the interpreter lock.

    >>> len(Salts().take())
    16
    """

    def __init__(self) -> None:
        self._bytes, self._at = b"", 0

    def take(self, n: int = 1) -> bytes:
        """Return `n` salts, one after another."""
        size = n * SALT_BYTES
        if self._at + size > len(self._bytes):
            self._bytes, self._at = os.urandom(max(SALT_BYTES * _SALTS_AT_ONCE, size)), 0
        self._at += size
        return self._bytes[self._at - size : self._at]


def seal_rows(rows: Sequence[NewRow], head: Head, salts: Salts) -> list[Seal]:
    """Return the seals of new events that follow `head`.

    `compute_digest` and `compute_link` are written out for events of users, which are nearly all.
    """
    seals, link, seq = [], head.link or START, head.seq
    begin = _begin
    many = salts.take(len(rows))
    for i, row in enumerate(rows):
        seq += 1
        salt = many[SALT_BYTES * i : SALT_BYTES * (i + 1)]
        id, kind, user, model, body = row
        if user is None or model is None or len(body) > _PIECE - 500:
            digest = compute_digest(salt, row)
        else:
            header = f"{len(id)} {len(kind)} {len(user)} {model}\n{id}{kind}{user}".encode()
            content = begin()
            content.update(salt + header)
            content.update(body)
            digest = content.digest()
        linked = begin()
        linked.update(link + seq.to_bytes(8, "big") + digest)
        link = linked.digest()
        seals.append(as_seal((salt, None, link)))
    return seals


def compute_digest(salt: bytes, row: NewRow | Row) -> bytes:
    """Return the salted digest of an event without its seq."""
    id, kind, user, model, body = row[-5:]
    of_user, name = ("-", "") if user is None else (len(user), user)
    header = f"{len(id)} {len(kind)} {of_user} {'-' if model is None else model}\n{id}{kind}{name}".encode()
    size = len(body)
    if size <= _PIECE - 500 or size > _MOST_PIECES * _PIECE:
        found = _begin()
        found.update(b"".join((salt, header, body)))
        return found.digest()
    found = _begin()
    found.update(salt + header)
    for start in range(0, size, _PIECE):
        found.update(body[start : start + _PIECE])
    return found.digest()


def compute_link(before: bytes | None, seq: int, digest: bytes) -> bytes:
    found = _begin()
    found.update((before or START) + seq.to_bytes(8, "big") + digest)
    return found.digest()


def digest_erased(row: Row, seal: Seal) -> bytes | None:
    """Return the digest that is stored in place of the salt when an event is erased."""
    return None if seal.salt is None else compute_digest(seal.salt, row)


def digest_rewrite(left: Rewrite | Row) -> bytes:
    """Return the digest of what is left of an erased event, for the `erase` event that lists it.

    >>> digest_rewrite(Rewrite(7, "erased/7", "erased reward", b"")).hex()[:16]
    'f67ab9d4e651fe8f'
    """
    return compute_digest(b"", NewRow(left.id, left.kind, None, None, left.body))
