"""Callers are counted by address; of IPv6 by the part that a client cannot choose."""

from __future__ import annotations

import asyncio

import pytest

from lcb.serve.config.settings import Limits, Settings
from lcb.serve.web.endpoint import counted_address
from support.http_inside import inside


def ask_from(address: str) -> dict[str, object]:
    return {"client": (address, 1), "headers": []}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_addresses_that_one_client_has_count_as_one(one, other, same):
    assert (counted_address(ask_from(one)) == counted_address(ask_from(other))) is same


def test_another_address_of_the_same_network_does_not_help_to_guess(tmp_path):
    async def main():
        settings = Settings(store=str(tmp_path / "lcb.db"), categories=("a", "b"), limits=Limits(failures=1.0))
        async with inside(settings) as (app, _):
            answers = [app.limit_failure(ask_from(f"2001:db8::{i:x}"), None) for i in range(1, 30)]
            assert answers[:10] == [None] * 10
            assert answers[-1].status == 429
            assert app.limit_failure(ask_from("2001:db8:0:1::1"), None) is None

    asyncio.run(main())
