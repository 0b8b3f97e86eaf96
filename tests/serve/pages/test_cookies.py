"""Cookies of visitors cannot be guessed, nor computed from the names in the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import binary, floats, integers, sampled_from

from lcb.serve.pages.cookies import name_of, new_visitor_cookie, read_cookies, set_cookie


@given(now=floats(0, 4e9), role=sampled_from(["reader", "study"]))
def test_a_new_cookie_names_a_visitor_of_its_own(now, role):
    cookie, other = new_visitor_cookie(now), new_visitor_cookie(now)
    assert name_of(role, cookie).startswith(f"{role}-{int(now * 1000):012x}")
    assert name_of(role, cookie) == name_of(role, cookie) != name_of(role, other)
    assert cookie.partition(".")[2] not in name_of(role, cookie)
    assert name_of("reader", cookie).removeprefix("reader-") != name_of("study", cookie).removeprefix("study-")


@given(place=integers(0, 10**6), bit=integers(0, 6))
def test_a_changed_letter_anywhere_is_nobody_or_somebody_else(place, bit):
    cookie = new_visitor_cookie(1e9)
    place %= len(cookie)
    changed = cookie[:place] + chr(ord(cookie[place]) ^ (1 << bit)) + cookie[place + 1 :]
    assert name_of("reader", changed) != name_of("reader", cookie)


@given(cookie=binary(max_size=80).map(lambda raw: raw.decode("latin-1")))
def test_anything_else_is_refused(cookie):
    assert name_of("reader", cookie) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.", "reader-1", "0" * 12 + ".", "0" * 12 + "." + "A" * 23])
def test_what_is_no_cookie_is_nobodys(cookie):
    assert name_of("reader", cookie) is None


@given(header=binary(max_size=60))
def test_any_header_is_read(header):
    assert all(name == name.strip() != "" for name in read_cookies(header))


def test_no_header_is_no_cookies():
    assert read_cookies(None) == {}
    assert read_cookies(b"; ;a; =b;c=d") == {"a": "", "c": "d"}


def test_a_cookie_is_out_of_reach_of_scripts_and_other_sites():
    name, value = set_cookie("lcb_reader", "x.y", max_age=60, secure=False)
    assert name == b"set-cookie"
    assert value == b"lcb_reader=x.y; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
    assert set_cookie("lcb_reader", "x.y", max_age=60, secure=True)[1] == value + b"; Secure"
