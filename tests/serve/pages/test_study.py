"""The study: which visitors count, and the results."""

from __future__ import annotations

import asyncio
import csv
import io
import threading

import httpx
import numpy as np
import pytest

from lcb.demo.readers import KINDS
from lcb.evaluate.two_groups import Group
from lcb.serve.config.settings import Settings
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.web.keys import Keyring
from lcb.storage.store.open_store import open_store
from support.http_inside import inside
from support.news_front import front, read

HOME = set(KINDS["home"][1])


async def results(client):
    return {row["name"]: row for row in (await client.get("/page/study/results")).json()["recommenders"]}


async def lines(client):
    answered = await client.get("/page/study/results.csv")
    assert answered.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answered.text)))


def test_only_those_who_finished_count(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            await read(client, HOME, 19, study=True)
            assert {row["users"] for row in (await results(client)).values()} == {0}
            await read(client, HOME, study=True, again=False)
            assert sum(row["users"] for row in (await results(client)).values()) == 1
            await read(client, HOME)  # of the reader's page: no part of the study
            assert sum(row["users"] for row in (await results(client)).values()) == 1

    asyncio.run(main())


def test_mean_and_deviation_are_over_visitors_and_the_file_has_the_same(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (app, client):
            told: dict[str, list[float]] = {"lcb": [], "population": []}
            for i in range(8):
                seen = await read(client, HOME if i % 2 else set(), study=True)
                user = app.service.world.user(seen["visitor"])
                told[user.recommender].append(sum(step["opened"] for step in seen["past"]) / 20)
            for name, row in (await results(client)).items():
                group = Group.of_rates(np.array(told[name]))
                assert (row["users"], row["simulated"]) == (group.n, 0)
                assert row["mean"] == (None if group.n < 1 else pytest.approx(group.mean))
                assert row["deviation"] == (None if group.n < 2 else pytest.approx(group.deviation))
            rows = await lines(client)
            assert sorted(float(row["rate"]) for row in rows) == sorted([*told["lcb"], *told["population"]])
            assert all(int(row["opened"]) / int(row["steps"]) == float(row["rate"]) for row in rows)

    asyncio.run(main())


def test_the_published_study_stands_beside(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            told = (await client.get("/page/study/results")).json()
            assert {row["name"]: (row["mean"], row["deviation"], row["users"]) for row in told["paper"]} == {
                "population": (0.196, 0.096, 5), "lcb": (0.380, 0.076, 5),
            }  # fmt: skip
            assert told["difference"] is None

    asyncio.run(main())


def test_a_restart_forgets_nobody_and_an_erasure_only_the_erased(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            names = [(await read(client, HOME, study=True))["visitor"] for _ in range(4)]
            before = await lines(client)
        async with inside(front(tmp_path)) as (_, client):
            assert await lines(client) == before
            assert (await client.delete(f"/v1/users/{names[1]}")).status_code == 200
            assert await lines(client) == [row for row in before if row["visitor"] != names[1]]
            await read(client, HOME, study=True)
            assert len(await lines(client)) == 4

    asyncio.run(main())


def test_two_who_ask_at_once_both_see_everybody(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            for _ in range(3):
                await read(client, HOME, study=True)
        async with inside(front(tmp_path)) as (_, client):
            both = await asyncio.gather(*(lines(client) for _ in range(5)))
            assert [len(one) for one in both] == [3] * 5

    asyncio.run(main())


def test_an_erasure_while_the_log_is_read_is_not_missed(tmp_path, monkeypatch):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            names = [(await read(client, HOME, study=True))["visitor"] for _ in range(3)]
        async with inside(front(tmp_path)) as (app, client):
            kept, reading, erased = app.service.world.loader.load, asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def read_user(name, upto):
                found = kept(name, upto)
                loop.call_soon_threadsafe(reading.set)
                assert erased.wait(20)
                return found

            monkeypatch.setattr(app.service.world.loader, "load", read_user)
            asked = asyncio.create_task(lines(client))
            await reading.wait()
            await app.service.erase(names[0])
            erased.set()
            await asked
            assert {row["visitor"] for row in await lines(client)} == set(names[1:])

    asyncio.run(main())


def test_simulated_visitors_are_marked_and_finish(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (app, client):
            assert (await client.get("/page/study/visitors")).json() == {"running": 0, "done": 0, "may": True}
            answered = await client.post("/page/study/visitors", json={"n": 6})
            assert (answered.status_code, answered.json()) == (202, {"running": 6})
            while (count := (await client.get("/page/study/visitors")).json())["running"]:
                await asyncio.sleep(0.05)
            assert count["done"] == 6
            told = await results(client)
            assert sum(row["users"] for row in told.values()) == sum(row["simulated"] for row in told.values()) == 6
            assert {row["simulated"] for row in await lines(client)} == {"1"}
            assert all(name.startswith("study-simulated-") for name in app.pages.study.finished)

    asyncio.run(main())


def test_more_simulated_visitors_than_a_thousand_at_a_time_are_refused(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            assert (await client.post("/page/study/visitors", json={"n": 1000})).status_code == 202
            refused = await client.post("/page/study/visitors", json={"n": 1})
            assert refused.status_code == 429
            assert "1000 simulated visitors are on their way" in refused.json()["detail"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["study-mallory", "study-=cmd", "study-simulated-x"])
def test_users_of_callers_are_no_part_of_the_study(tmp_path, name):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            for i in range(20):
                body = {"user": name, "decision_id": f"d{i}"}
                assert (await client.post("/v1/decisions", json=body)).status_code == 200
                assert (
                    await client.post("/v1/rewards", json={"decision_id": f"d{i}", "reward": 1.0})
                ).status_code == 200
            assert await lines(client) == []

    asyncio.run(main())


def test_callers_do_not_answer_for_visitors(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            seen = (await client.post("/page/visit", json={"study": True})).json()
            body = {"decision_id": seen["offer"]["decision_id"], "reward": 1.0}
            refused = await client.post("/v1/rewards", json=body)
            assert (refused.status_code, refused.json()["field"]) == (422, "decision_id")
            outcome = (await client.post("/v1/rewards:batch", json={"rewards": [body]})).json()["outcomes"][0]
            assert (outcome["status"], outcome["field"]) == (422, "decision_id")

    asyncio.run(main())


def test_simulated_visitors_come_by_themselves_where_it_is_set(tmp_path):
    async def main():
        async with inside(front(tmp_path, simulated_visitors=6000.0)) as (app, _):
            until = asyncio.get_running_loop().time() + 20
            while app.service.world.n_started == 0 and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(0.02)
            assert app.service.world.n_started > 0

    asyncio.run(main())


@pytest.mark.parametrize("n", [0, 1001, -1, "5", 1.5])
def test_too_many_or_no_visitors_are_refused(tmp_path, n):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            assert (await client.post("/page/study/visitors", json={"n": n})).status_code == 422

    asyncio.run(main())


def test_they_do_not_read_a_catalogue_they_do_not_know(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            item = {"id": "mine", "x": [1.0] + [0.0] * 20}
            assert (await client.put("/v1/items", json={"items": [item]})).status_code == 200
            refused = await client.post("/page/study/visitors", json={"n": 1})
            assert refused.status_code == 409
            assert "21 categories of the demo" in refused.json()["detail"]

    asyncio.run(main())


def test_without_a_simulation_the_service_says_so(tmp_path):
    async def main():
        store = open_store(str(tmp_path / "lcb.db"))
        app = build_app(Service(Settings(store=store.url), store), Keyring())
        app.start()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            refused = await client.post("/page/study/visitors", json={"n": 1})
        await app.stop()
        assert refused.status_code == 409
        assert refused.json()["detail"].startswith("this service was started without simulated visitors")

    asyncio.run(main())
