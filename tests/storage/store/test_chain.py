"""Digests and links have the form that the documentation states, whatever the size of the body."""

from __future__ import annotations

import hashlib

import pytest

from lcb.storage.store.base import Head, NewRow, Row, Seal
from lcb.storage.store.chain import Salts, compute_digest, digest_erased, seal_rows


def blake2b(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


@pytest.mark.parametrize("size", [0, 1, 1546, 1547, 1548, 2047, 2048, 4094, 4095, 65_504, 65_505, 200_000])
def test_a_digest_is_the_hash_of_salt_header_and_body(size: int) -> None:
    body, salt = bytes(i % 251 for i in range(size)), b"s" * 16
    row = NewRow("d1", "decision", "ün", 3, body)
    assert compute_digest(salt, row) == blake2b(salt + "2 8 2 3\nd1decisionün".encode() + body)
    assert compute_digest(salt, Row(9, *row)) == compute_digest(salt, row)


def test_events_with_the_same_letters_in_other_fields_have_other_digests() -> None:
    rows = [
        NewRow("ab", "c", "d", None, b"e"), NewRow("a", "bc", "d", None, b"e"), NewRow("ab", "cd", None, None, b"e"),
        NewRow("ab", "cd", "", None, b"e"), NewRow("ab", "c", "de", None, b""), NewRow("ab", "c", "d", 0, b"e"),
    ]  # fmt: skip
    assert len({compute_digest(b"", row) for row in rows}) == len(rows)


def test_links_follow_from_each_other_and_an_erased_event_keeps_its_digest() -> None:
    rows = [NewRow(f"d{i}", "decision", "u", 1, b"body") for i in range(3)]
    seals = seal_rows(rows, Head(4, None), Salts())
    link = bytes(32)
    for seq, row, seal in zip((5, 6, 7), rows, seals, strict=True):
        assert seal.salt is not None
        digest = compute_digest(seal.salt, row)
        link = blake2b(link + seq.to_bytes(8, "big") + digest)
        assert seal.link == link
        assert digest_erased(Row(seq, *row), seal) == digest
    assert digest_erased(Row(1, *rows[0]), Seal(None, None, None)) is None


def test_salts_are_never_used_twice() -> None:
    salts = Salts()
    assert len({salts.take() for _ in range(10_000)}) == 10_000
