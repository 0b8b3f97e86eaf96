"""Drill 22: every route answers every kind of key as the table in docs/http.md says; a wrong key reveals nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import InputError
from lcb.serve.config.settings import Settings
from lcb.serve.errors import Problem
from lcb.serve.web import keys as of_keys
from lcb.serve.web.endpoint import Ask, Reply
from lcb.serve.web.keys import SCOPES, Keyring, check_address, create, revoke, sha256
from lcb.serve.web.openapi import strip_converters
from lcb.storage.store.base import Key
from lcb.storage.store.open_store import open_store
from support.harness import LONG, serving
from support.http_inside import inside

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
WHO = ("none", "wrong", "revoked", *SCOPES)
SECRETS = {who: f"lcb_{who}" for who in WHO[1:]}
KEYS = [
    *(Key(scope, scope, sha256(SECRETS[scope]), 0.0, None) for scope in SCOPES),
    Key("revoked", "admin", sha256(SECRETS["revoked"]), 0.0, 1.0),
]


async def through(ask: Ask) -> Reply:
    """Replaces the handlers of the API: a request that gets here was admitted."""
    return Reply(b"{}")


def matrix(folder: Path) -> dict[tuple[str, str], dict[str, int]]:
    """Return the status of every route for every kind of key."""

    async def ask() -> dict[tuple[str, str], dict[str, int]]:
        found: dict[tuple[str, str], dict[str, int]] = {}
        async with inside(Settings(store=str(folder / "lcb.db")), keys=KEYS) as (app, client):
            for route in app._router.routes:
                if not route.path.startswith("/page/"):  # these look at keys and cookies themselves
                    route.endpoint.handler = through
            app.draining = True  # so that streams end
            app.retraining.ask = nothing
            for call in app.calls:
                for who in WHO:
                    headers = {} if who == "none" else {"authorization": f"Bearer {SECRETS[who]}"}
                    answer = await client.request(
                        call.method, strip_converters(call.path).format_map(Anything()), headers=headers
                    )
                    found.setdefault((call.method, strip_converters(call.path)), {})[who] = answer.status_code
        return found

    return asyncio.run(ask())


async def nothing(by: object) -> None: ...


class Anything(dict):
    def __missing__(self, key: str) -> str:
        return "1"


def table(calls: Iterable[tuple[str, str]], found: dict[tuple[str, str], dict[str, int]]) -> str:
    """Format the table as docs/http.md shows it."""
    lines = ["| call | none, wrong, revoked | reader | writer | admin |", "|---|---|---|---|---|"]
    for method, path in calls:
        of = found[method, path]
        assert of["none"] == of["wrong"] == of["revoked"], f"{method} {path} tells one wrong key from another"
        cells = [str(of[who]) if of[who] in (401, 403) else "yes" for who in ("none", *SCOPES)]
        lines.append(f"| `{method} {path}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def drill(folder: Path) -> None:
    found = matrix(folder)
    wanted = table(found, found)
    assert wanted in PAGE.read_text(), f"docs/http.md shows another table than this:\n{wanted}"
    assert not {401, 403, 500} & {of["admin"] for of in found.values()}


def test_every_route_opens_to_whom_the_page_says(tmp_path: Path) -> None:
    drill(tmp_path)


def everything(self: Keyring, authorization: bytes | None, needed: str) -> str | None:
    return None


def any_known_key(self: Keyring, authorization: bytes | None, needed: str) -> str | None:
    """A broken check that accepts any known key, whatever its scope."""
    if not needed:
        return None
    digest = sha256((authorization or b"").decode().removeprefix("Bearer "))
    if not any(key.sha256 == digest and key.revoked is None for key in self.keys):
        raise Problem(401, "unknown")
    return "somebody"


@pytest.mark.parametrize("check", [everything, any_known_key])
def test_a_service_that_does_not_look_at_keys_or_scopes_fails(tmp_path: Path, monkeypatch, check) -> None:
    monkeypatch.setattr(Keyring, "check", check)
    with pytest.raises(AssertionError, match="another table"):
        drill(tmp_path)


@pytest.mark.parametrize("order", [("admin", "wrong"), ("wrong", "admin")])
def test_two_keys_in_one_request_are_refused(tmp_path: Path, order: tuple[str, str]) -> None:
    """A proxy and the service could each look at another of them."""

    async def ask() -> int:
        async with inside(Settings(store=str(tmp_path / "lcb.db")), keys=KEYS) as (_, client):
            headers = [("authorization", f"Bearer {SECRETS[who]}") for who in order]
            return int((await client.get("/v1/models", headers=headers)).status_code)

    assert asyncio.run(ask()) == 400


@pytest.mark.parametrize(
    "authorization",
    [b"", b"Bearer", b"Bearer ", b"lcb_admin", b"Basic lcb_admin", b"Bearer lcb_admi", b"Bearer lcb_adminn",
     b"Bearer LCB_ADMIN", b"Bearer \xff\xfe", b"Bearer lcb_admin lcb_reader", b"Bearer " + b"x" * 100_000],
)  # fmt: skip
def test_what_is_not_quite_a_key_is_none(authorization: bytes) -> None:
    with pytest.raises(Problem) as told:
        Keyring(KEYS).check(authorization, "reader")
    assert told.value.status == 401
    assert "lcb_a" not in told.value.detail


def test_the_work_is_the_same_whichever_key_comes(monkeypatch) -> None:
    """Neither a key's position nor the length of its correct prefix matters: there is one digest and one lookup."""
    compared = []
    digest = hmac.compare_digest
    monkeypatch.setattr(of_keys.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or digest(a, b))
    for secret in ("lcb_reader", "lcb_revoked", "lcb_nobody", ""):
        compared.clear()
        with contextlib.suppress(Problem):
            Keyring(KEYS).check(f"Bearer {secret}".encode(), "reader")
        assert compared == [32]


# Timing, in the long form


def seconds(check, secret: str) -> int:
    authorization, began = f"Bearer {secret}".encode(), time.perf_counter_ns()
    with contextlib.suppress(Problem):
        check(authorization)
    return time.perf_counter_ns() - began


def timing(check, real: str, tries: int) -> None:
    """Time keys that are wrong in the last letter and keys that are wrong in the first, alternating."""
    chance, near, far = random.Random(0), [], []
    other = "".join("x" if letter != "x" else "y" for letter in real)
    for _ in range(tries // 2):
        pair = [(near, real[:-1] + "~"), (far, other[:-1] + "~")]
        chance.shuffle(pair)
        for times, secret in pair:
            times.append(seconds(check, secret))
    # medians over blocks, so that other load on the machine counts as noise
    size = max(tries // 200, 1)
    medians = [[statistics.median(t[i : i + size]) for i in range(0, len(t), size)] for t in (near, far)]
    differences = [a - b for a, b in zip(*medians, strict=True)]
    spread = statistics.stdev(differences) / len(differences) ** 0.5
    mean = statistics.fmean(differences)
    assert abs(mean) < 6 * spread + 20, f"a right beginning takes {mean:.0f} ns longer, noise is {spread:.0f} ns"


def letter_by_letter(real: str):
    def check(authorization: bytes) -> None:
        given = authorization.decode().removeprefix("Bearer ")
        for a, b in zip(given, real, strict=True):
            if a != b:
                raise Problem(401, "unknown")

    return check


def test_the_time_of_an_answer_does_not_tell_how_much_of_a_key_is_right() -> None:
    real = "lcb_" + "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF"
    keyring = Keyring([*KEYS, Key("real", "admin", sha256(real), 0.0, None)])
    tries = 100_000 if LONG else 2_000
    timing(lambda authorization: keyring.check(authorization, "reader"), real, tries)
    with pytest.raises(AssertionError, match="a right beginning takes"):
        timing(letter_by_letter(real), real, 4_000)


# Listening, and keys that change while the service runs


@pytest.mark.parametrize(
    "given",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "192.168.1.5"},
        {"host": "example.org"},
        {"hosts": ("localhost", "shop.example")},
        {"proxies": ("127.0.0.1",)},
    ],
    ids=str,
)
def test_the_service_stays_on_this_machine_until_there_is_a_key(given: dict[str, Any]) -> None:
    settings = Settings(**given)
    with pytest.raises(InputError, match="there is no key"):
        check_address(settings, Keyring())
    check_address(settings, Keyring(KEYS[:1]))
    check_address(settings, Keyring(KEYS[3:]))  # with a revoked key only, the service still needs a key
    assert not settings.has_pages


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_on_this_machine_no_key_is_needed(host: str) -> None:
    check_address(Settings(host=host, hosts=("localhost",)), Keyring())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_key_made_or_revoked_while_the_service_runs_counts_from_then_on(tmp_path: Path, request, kind) -> None:
    url = str(tmp_path / "lcb.db") if kind == "sqlite" else request.getfixturevalue("postgres_database")
    store = open_store(url)
    try:
        admin = create(store, "ops", "admin", 0.0)
        with serving(tmp_path, store=url) as server, server.client() as client:

            def status(secret: str) -> int:
                return client.get("/v1/items", headers={"authorization": f"Bearer {secret}"}).status_code

            assert (status(admin), status("lcb_other")) == (200, 401)
            reader = create(store, "page", "reader", 0.0)
            assert eventually(lambda: status(reader) == 200)
            revoke(store, "page", 1.0)
            assert eventually(lambda: status(reader) == 401)
            assert status(admin) == 200
            with pytest.raises(InputError, match="there is already a key named 'ops'"):
                create(store, "ops", "reader", 0.0)
            assert [(key.name, key.revoked) for key in store.list_keys()] == [("ops", None), ("page", 1.0)]
    finally:
        store.close()


def eventually(holds, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_a_page_of_another_site_cannot_act_where_there_are_no_keys(tmp_path: Path) -> None:
    async def asked(site: str) -> int:
        async with inside(Settings(store=str(tmp_path / f"{site}.db"), pages=False)) as (_, http):
            body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
            return (await http.post("/v1/decisions", json=body, headers={"sec-fetch-site": site})).status_code

    found = {site: asyncio.run(asked(site)) for site in ("none", "same-origin", "same-site", "cross-site")}
    assert found == {"none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403}
