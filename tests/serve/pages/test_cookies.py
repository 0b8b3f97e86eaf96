"""Cookies that only this service can have made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, text

from lcb.serve.pages.cookies import Signer, read_cookies, set_cookie

SIGNER = Signer(b"a seed")


@given(name=text(max_size=20), value=text(max_size=100).filter(lambda value: value.isprintable()))
def test_what_was_signed_is_read(name, value):
    assert SIGNER.read(name, SIGNER.sign(name, value)) == value


@given(place=integers(0, 10**6), bit=integers(0, 6))
def test_a_changed_letter_anywhere_is_refused(place, bit):
    cookie = SIGNER.sign("reader", "reader-0123456789")
    place %= len(cookie)
    changed = cookie[:place] + chr(ord(cookie[place]) ^ (1 << bit)) + cookie[place + 1 :]
    assert SIGNER.read("reader", changed) is None


@given(cookie=binary(max_size=80).map(lambda raw: raw.decode("latin-1")))
def test_anything_else_is_refused(cookie):
    assert SIGNER.read("reader", cookie) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.", ".a", "reader-1", "cmVhZGVyLTE.", "a.b.c"])
def test_what_is_no_cookie_is_nobodys(cookie):
    assert SIGNER.read("reader", cookie) is None


def test_another_service_and_another_name_sign_otherwise():
    assert Signer(b"another seed").read("reader", SIGNER.sign("reader", "x")) is None
    assert SIGNER.read("study", SIGNER.sign("reader", "x")) is None
    assert Signer(b"a seed").read("reader", SIGNER.sign("reader", "x")) == "x"


@given(header=binary(max_size=60))
def test_any_header_is_read(header):
    assert all(name == name.strip() != "" for name in read_cookies(header))


def test_no_header_is_no_cookies():
    assert read_cookies(None) == {}
    assert read_cookies(b"; ;a; =b;c=d") == {"a": "", "c": "d"}


def test_a_cookie_is_out_of_reach_of_scripts_and_other_sites():
    name, value = set_cookie("lcb_reader", "x.y", max_age=60)
    assert name == b"set-cookie"
    assert value == b"lcb_reader=x.y; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
