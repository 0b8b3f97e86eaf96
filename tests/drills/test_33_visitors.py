"""Drill 33: visitors without a key do not move what callers with a key get, and cannot fill the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Limits, Settings
from lcb.serve.errors import Problem
from lcb.serve.learn import supervisor
from lcb.serve.pages.open_visits import OpenVisits
from lcb.serve.service import Service
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.serve.state.world import World
from lcb.serve.web.app import App
from lcb.serve.web.keys import sha256
from lcb.storage.store.base import Key
from support.harness import LONG
from support.http_inside import inside
from support.learning import learn_here
from support.news_front import front, read

KEYS = [Key("shop", "admin", sha256("lcb_shop"), 0.0, None)]
BEARER = {"authorization": "Bearer lcb_shop"}
TOPICS = ("tennis", "music", "law", "food")
N_CALLERS, N_VISITORS = (120, 250) if LONG else (24, 24)
UNLIMITED = Limits(visitor_rate=0, open_visits=10**6)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    if not LONG:
        monkeypatch.setattr(supervisor, "run_job", learn_here)


async def share_of_law(client: httpx.AsyncClient, user: str) -> float:
    """The probability that a new caller's user is first shown an item about law."""
    told = (await client.post("/v1/decisions", json={"user": user}, headers=BEARER)).json()
    items = (await client.get("/v1/items", headers=BEARER)).json()["items"]
    return sum(p for p, item in zip(told["distribution"], items, strict=True) if item["categories"] == ["law"])


async def learned(app: App, n_versions: int) -> None:
    async with asyncio.timeout(120):
        while app.retraining.running or len(app.service.world.state.versions) < n_versions:
            await asyncio.sleep(0.02)


def drill(folder: Path, *, keys: Sequence[Key] = KEYS, **more: Any) -> float:
    """Callers like tennis or music; then visitors open nothing but law.  Returns the share of law after it."""
    settings = Settings(
        store=str(folder / "lcb.db"),
        categories=TOPICS,
        recommenders=(RecommenderSpec("lcb", **more),),
        learning=Learning(n_warmup_users=N_CALLERS, retrain_every=N_VISITORS, n_classes=3, held_out=0.0),
        limits=UNLIMITED,
    )

    async def main() -> float:
        async with inside(settings, keys=keys) as (app, client):
            items = [{"id": f"{topic}{i}", "categories": [topic]} for i in range(8) for topic in TOPICS]
            assert (await client.put("/v1/items", json={"items": items}, headers=BEARER)).status_code == 200
            for i in range(N_CALLERS):
                for j in range(8):  # every user is shown every topic twice
                    offer = {"user": f"u{i}", "arms": [{"id": f"{TOPICS[j % 4]}{j // 4}"}]}
                    told = (await client.post("/v1/decisions", json=offer, headers=BEARER)).json()
                    body = {"decision_id": told["decision_id"], "reward": float(j % 4 == i % 2)}
                    assert (await client.post("/v1/rewards", json=body, headers=BEARER)).status_code == 200
            await learned(app, 1)
            before = await share_of_law(client, "new-1")
            assert before < 0.05, "the callers' users do not like law"
            for _ in range(N_VISITORS):
                await read(client, {"law"}, 20 if LONG else 5)
            began = app.retraining.running or len(app.service.world.state.versions) > 1
            if not began:
                assert (await client.post("/v1/models/retrain", headers=BEARER)).status_code == 202
            await learned(app, 2)
            after = await share_of_law(client, "new-2")
            assert after < 0.05, f"visitors moved the share of law from {before:.2f} to {after:.2f}"
            assert not began, "visitors made learning begin"
            return after

    return asyncio.run(main())


def test_visitors_do_not_move_what_callers_get(tmp_path: Path) -> None:
    drill(tmp_path)


def test_visitors_who_teach_would(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="visitors moved the share of law"):
        drill(tmp_path, teach="everyone")


def test_visitors_who_count_would_make_learning_begin(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(UserFold, "is_teaching", lambda self, row, body: True)
    with pytest.raises(AssertionError, match="visitors made learning begin"):
        drill(tmp_path)


# What visitors of the study share with callers before there are classes, and in a recommender for everyone


POOLED = {"warm-up": RecommenderSpec("lcb"), "everyone": RecommenderSpec("all", "linucb", scope="everyone")}


def drill_pooled(folder: Path, spec: RecommenderSpec) -> None:
    settings = Settings(
        store=str(folder / "lcb.db"), categories=TOPICS, recommenders=(spec,), limits=UNLIMITED,
        learning=Learning(n_warmup_users=4),
    )  # fmt: skip

    async def main() -> None:
        async with inside(settings, keys=KEYS) as (app, client):
            items = [{"id": f"{topic}{i}", "categories": [topic]} for i in range(8) for topic in TOPICS]
            assert (await client.put("/v1/items", json={"items": items}, headers=BEARER)).status_code == 200
            before = await share_of_law(client, "new-1")
            for _ in range(12 if LONG else 6):
                await read(client, {"law"}, 20 if LONG else 10, study=True)
            after = await share_of_law(client, "new-2")
            assert after == before, f"visitors moved the share of law from {before:.2f} to {after:.2f}"
            assert not app.retraining.running
            assert not app.service.world.state.versions, "visitors ended the warm-up"
            assert verify(app.service.store).differences == []

    asyncio.run(main())


@pytest.mark.parametrize("spec", POOLED.values(), ids=POOLED)
def test_visitors_of_the_study_do_not_move_a_state_that_callers_share(tmp_path: Path, spec: RecommenderSpec) -> None:
    drill_pooled(tmp_path, spec)


@pytest.mark.parametrize("spec", POOLED.values(), ids=POOLED)
def test_those_who_teach_would_move_it(tmp_path: Path, spec: RecommenderSpec) -> None:
    with pytest.raises(AssertionError, match="visitors moved the share of law"):
        drill_pooled(tmp_path, replace(spec, teach="everyone"))


def test_the_log_says_from_where_on_visitors_do_not_count(tmp_path: Path, monkeypatch) -> None:
    """A log of an earlier version, then this one, then without keys, and erasures of users of all three."""
    settings = Settings(
        store=str(tmp_path / "lcb.db"), items="headlines", recommenders=tuple(POOLED.values()), limits=UNLIMITED,
        learning=Learning(n_warmup_users=1000),
    )  # fmt: skip
    visitors: list[str] = []
    counts: list[tuple[int, int, int]] = []

    async def serve(keys: Sequence[Key]) -> None:
        async with inside(settings, keys=keys) as (app, client):
            visitors.append((await read(client, (), 2))["visitor"])
            visitors.append((await read(client, (), 2, study=True))["visitor"])
            told = (await client.post("/v1/decisions", json={"user": f"u{len(counts)}"}, headers=BEARER)).json()
            body = {"decision_id": told["decision_id"], "reward": 1.0}
            assert (await client.post("/v1/rewards", json=body, headers=BEARER)).status_code == 200
            check(app)

    def check(app: App) -> None:
        world = app.service.world
        counts.append((world.n_users, world.n_started, world.n_rewarded))
        again = World(app.service.store)
        again.load()
        assert compare_worlds(world, again) == []
        assert verify(app.service.store).differences == []

    with monkeypatch.context() as patch:
        patch.setattr(Service, "declare_teachers", lambda self, closed: None)
        asyncio.run(serve(KEYS))
    asyncio.run(serve(KEYS))
    asyncio.run(serve(()))
    assert counts == [(3, 3, 3), (6, 4, 4), (9, 7, 7)]

    async def erase() -> None:
        async with inside(settings) as (app, client):
            for name in (*visitors, "u1"):
                assert (await client.delete(f"/v1/users/{name}")).status_code == 200
                check(app)

    asyncio.run(erase())
    assert counts[3:] == [(8, 6, 6), (7, 5, 5), (6, 5, 5), (5, 5, 5), (4, 4, 4), (3, 3, 3), (2, 2, 2)]


def test_the_first_key_of_a_running_service_ends_the_teaching_of_visitors(tmp_path: Path) -> None:
    async def work() -> None:
        settings = Settings(store=str(tmp_path / "lcb.db"), categories=TOPICS)
        async with inside(settings) as (app, _):
            assert app.service.world.state.closed == frozenset()
            await app.note_keys()
            app.keyring.keys = KEYS
            await app.note_keys()
            assert app.service.world.state.closed == {"lcb", "reader"}
            before = app.service.world.seq
            await app.note_keys()
            assert app.service.world.seq == before

    asyncio.run(work())


def closed_to_visitors(settings: Settings, keys: Sequence[Key], change: Callable[[Any], None] | None = None) -> set:
    async def main() -> set:
        async with inside(settings, keys=keys) as (app, _):
            if change is not None:
                change(app.service.world.state)
            return set(app.retraining.list_closed())

    return asyncio.run(main())


def test_who_teaches_is_a_setting_and_by_default_follows_the_keys(tmp_path: Path) -> None:
    def settings(teach: str | None, name: str) -> Settings:
        return Settings(
            store=str(tmp_path / name), categories=TOPICS, recommenders=(RecommenderSpec("lcb", teach=teach),)
        )

    assert closed_to_visitors(settings(None, "a.db"), ()) == set()
    assert closed_to_visitors(settings(None, "a.db"), KEYS) == {"lcb", "reader"}
    assert closed_to_visitors(settings("everyone", "a.db"), KEYS) == set(), "a setting counts more than the log"
    assert closed_to_visitors(settings("callers", "b.db"), ()) == {"lcb", "reader"}
    assert closed_to_visitors(settings(None, "b.db"), ()) == {"lcb", "reader"}, "the log keeps what it began with"


def test_a_log_from_before_the_setting_keeps_learning_from_everyone(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "lcb.db"), categories=TOPICS)

    def age(state: Any) -> None:
        old = b'{"bandit":"thompson","name":"lcb","scope":"user","settings":{},"warmup":{}}'
        state.apply("recommender", 1, events.RecommenderBody(0.0, old))

    assert closed_to_visitors(settings, KEYS, age) == {"reader"}


# How much visitors can write


def visiting(folder: Path, limits: Limits, work: Callable[[App, httpx.AsyncClient], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with inside(front(folder, limits=limits), keys=KEYS) as (app, client):
            return await work(app, client)

    return asyncio.run(main())


def from_address(app: App, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def flood(folder: Path, limits: Limits) -> None:
    """One address asks for visit after visit; others still get theirs."""
    n = 400 if LONG else 60

    async def work(app: App, client: httpx.AsyncClient) -> None:
        before = app.service.world.seq
        async with from_address(app, "198.51.100.1") as attacker:
            answers = [await attacker.post("/page/visit", json={"again": True}) for _ in range(n)]
        wrote = app.service.world.seq - before
        assert wrote <= 10, f"one address wrote {wrote} events"
        refused = answers[-1]
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "limits." in refused.json()["detail"]
        async with from_address(app, "198.51.100.2") as other:
            assert (await other.post("/page/visit", json={})).status_code == 200
            assert (await other.post("/v1/decisions", json={"user": "ann"}, headers=BEARER)).status_code == 200

    visiting(folder, limits, work)


@pytest.mark.parametrize("limits", [Limits(visitor_rate=0.001), Limits(visitor_rate=0, open_visits=200)])
def test_one_address_cannot_fill_the_log(tmp_path: Path, limits: Limits) -> None:
    flood(tmp_path, limits)


def test_without_limits_it_would(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="one address wrote"):
        flood(tmp_path, UNLIMITED)


def test_answers_count_against_the_rate_too(tmp_path: Path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> list[int]:
        seen = (await client.post("/page/visit", json={})).json()
        body = {"decision_id": seen["offer"]["decision_id"], "opened": True}
        return [(await client.post("/page/answer", json=body)).status_code for _ in range(3)]

    assert visiting(tmp_path, Limits(visitor_rate=0.001), work) == [429] * 3


def test_visits_are_open_until_they_are_finished_or_an_hour_has_passed() -> None:
    clock = [0.0]
    visits = OpenVisits(40, clock=lambda: clock[0])

    def refuse(name: str, address: str, words: str) -> None:
        with pytest.raises(Problem, match=words) as told:
            visits.begin(name, address)
        assert (told.value.status, told.value.retry_after) == (429, 60)

    visits.begin("a0", "a")
    visits.begin("a1", "a")
    refuse("a2", "a", "2 visits are open from your address")
    visits.begin("b0", "b")  # another address has its own
    visits.end("a0")
    visits.end("a0")
    visits.begin("a2", "a")
    refuse("a3", "a", "2 visits are open from your address")
    clock[0] += 3601
    visits.begin("a4", "a")
    for i in range(39):
        visits.begin(f"v{i}", f"address {i}")
    refuse("one more", "elsewhere", "40 visits are open;")


def test_a_finished_visit_is_no_longer_open_and_a_reload_is_not_a_new_one(tmp_path: Path) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        await read(client, (), 20)
        for _ in range(2):
            await read(client, (), 3)
            for _ in range(3):
                assert (await client.post("/page/visit", json={})).status_code == 200
            await read(client, (), 20, again=False)

    visiting(tmp_path, Limits(visitor_rate=0, open_visits=20), work)


# Pages beyond this machine


@pytest.mark.parametrize(
    ("host", "pages", "wanted"),
    [("127.0.0.1", None, 200), ("0.0.0.0", None, 404), ("0.0.0.0", True, 200), ("127.0.0.1", False, 404)],
)
def test_pages_are_off_beyond_this_machine_unless_a_setting_turns_them_on(tmp_path, host, pages, wanted) -> None:
    async def main() -> int:
        settings = Settings(store=str(tmp_path / "lcb.db"), host=host, pages=pages)
        async with inside(settings, keys=KEYS) as (_, client):
            return (await client.get("/")).status_code

    assert asyncio.run(main()) == wanted
