"""The files of the pages."""

from __future__ import annotations

import pytest

from lcb.serve.errors import Problem
from lcb.serve.pages.files import Files
from lcb.serve.pages.security import CONTENT_SECURITY_POLICY
from lcb.serve.web.endpoint import Ask, build_headers

FILES = Files()


def asked(**headers):
    return Ask(b"", {"headers": [(name.replace("_", "-").encode(), value) for name, value in headers.items()]}, {})


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("index.html", b"text/html; charset=utf-8"), ("style.css", b"text/css; charset=utf-8"),
        ("deck.js", b"text/javascript; charset=utf-8"), ("icon.svg", b"image/svg+xml"),
    ],
)  # fmt: skip
def test_a_file_comes_with_its_type_and_the_policy(name, type):
    reply = FILES.reply(name, asked())
    headers = dict(build_headers(reply))
    assert (reply.status, reply.type) == (200, type)
    assert headers[b"content-security-policy"] == CONTENT_SECURITY_POLICY
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert reply.body


def test_nothing_is_sent_again_that_has_not_changed():
    first = FILES.reply("deck.js", asked())
    tag = dict(first.headers)[b"etag"]
    again = FILES.reply("deck.js", asked(if_none_match=tag))
    assert (again.status, again.body) == (304, b"")
    assert FILES.reply("deck.js", asked(if_none_match=b'"another"')).status == 200
    assert dict(FILES.reply("reader.js", asked()).headers)[b"etag"] != tag


@pytest.mark.parametrize(
    "name", ["nothing.js", "../cookies.py", "cookies.py", "", "headlines.json", "%2e%2e/x", "a" * 500]
)
def test_nothing_but_the_files_is_served(name):
    with pytest.raises(Problem, match="no file") as raised:
        FILES.reply(name, asked())
    assert raised.value.status == 404
    assert len(str(raised.value)) < 200


def test_the_policy_allows_nothing_inline_and_nobody_else():
    assert b"unsafe" not in CONTENT_SECURITY_POLICY
    assert b"http" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith(b"default-src 'none';")
