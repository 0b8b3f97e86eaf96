"""Visitors of the reader's page, asked over ASGI."""

from __future__ import annotations

import asyncio

import pytest

from lcb.demo.readers import KINDS
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from support.http_inside import inside
from support.news_front import front, read

CULTURE = set(KINDS["culture"][1])


def test_a_visitor_is_known_by_a_signed_cookie_and_keeps_it(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            first = await client.post("/page/visit", json={})
            assert first.cookies["lcb_reader"]
            again = await client.post("/page/visit", json={})
            assert "set-cookie" not in again.headers
            assert again.json() == first.json()
            other = (await client.post("/page/visit", json={"again": True})).json()
            assert other["visitor"] != first.json()["visitor"]

    asyncio.run(main())


def test_a_forged_cookie_is_somebody_new(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            mine = (await client.post("/page/visit", json={})).json()["visitor"]
            client.cookies.clear()
            forged = {"cookie": "lcb_reader=" + "cmVhZGVyLTE.forged"}
            theirs = await client.post("/page/visit", json={}, headers=forged)
            assert theirs.json()["visitor"] not in (mine, "reader-1")
            assert "set-cookie" in theirs.headers

    asyncio.run(main())


def test_a_headline_is_answered_by_its_own_visitor_alone(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (app, client):
            mine = (await client.post("/page/visit", json={})).json()
            client.cookies.clear()
            await client.post("/page/visit", json={})
            before = app.service.world.seq
            body = {"decision_id": mine["offer"]["decision_id"], "opened": True}
            refused = await client.post("/page/answer", json=body)
            assert refused.status_code == 404
            assert refused.json()["field"] == "decision_id"
            client.cookies.clear()
            assert (await client.post("/page/answer", json=body)).status_code == 404
            assert app.service.world.seq == before

    asyncio.run(main())


@pytest.mark.parametrize("study", [False, True])
def test_a_caller_who_knows_a_visitors_name_cannot_disturb_the_visit(tmp_path, study):
    async def main():
        async with inside(front(tmp_path)) as (app, client):
            mine = (await client.post("/page/visit", json={"study": study})).json()
            arms, before = [{"id": mine["offer"]["id"]}], app.service.world.seq
            taken = {"user": "ann", "arms": arms, "decision_id": f"{mine['visitor']}.1"}
            named = {"user": mine["visitor"], "arms": arms}
            for request, field in ((taken, "decision_id"), (named, "user")):
                refused = await client.post("/v1/decisions", json=request)
                assert (refused.status_code, refused.json()["field"]) == (422, field)
                assert "a visitor of the pages" in refused.json()["detail"]
            batch = {"decisions": [taken, named, {"user": "ben", "arms": arms}]}
            outcomes = (await client.post("/v1/decisions:batch", json=batch)).json()["outcomes"]
            assert [one["status"] for one in outcomes] == [422, 422, 200]
            assert [row.user for row in app.service.store.events(before)] == ["ben"]
            body = {"decision_id": mine["offer"]["decision_id"], "opened": True}
            answered = await client.post("/page/answer", json=body)
            assert (answered.status_code, answered.json()["step"]) == (200, 1)

    asyncio.run(main())


def test_the_same_answer_again_and_another_change_nothing(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            offer = (await client.post("/page/visit", json={})).json()["offer"]
            body = {"decision_id": offer["decision_id"], "opened": True}
            first = await client.post("/page/answer", json=body)
            again = await client.post("/page/answer", json=body)
            assert again.json() == first.json()
            other = await client.post("/page/answer", json=body | {"opened": False})  # of a tab that was left behind
            assert other.json() == first.json()

    asyncio.run(main())


def test_twenty_headlines_each_new_and_then_it_is_done(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            seen = await read(client, CULTURE)
            assert seen["done"]
            assert seen["offer"] is None
            assert len({step["id"] for step in seen["past"]}) == 20
            assert all(step["n_arms"] == 170 and 0 < step["propensity"] <= 1 for step in seen["past"])
            assert (await client.post("/page/visit", json={})).json() == seen

    asyncio.run(main())


def test_the_belief_is_the_posterior_of_the_service(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            seen = await read(client, CULTURE, 8)
            told = (await client.get(f"/v1/users/{seen['visitor']}")).json()
            assert seen["beliefs"]["posterior"] == told["posterior"] == seen["past"][-1]["posterior"]
            assert sum(told["posterior"]) == pytest.approx(1)
            assert told["recommender"] == "reader"
            names = [one["likes"] for one in seen["beliefs"]["classes"]]
            assert names[1] == ["arts", "books", "film"]
            assert "drawn at random from 170" in seen["beliefs"]["why"]

    asyncio.run(main())


def test_with_one_list_for_everybody_there_is_no_posterior(tmp_path):
    async def main():
        given = front(tmp_path, recommenders=(RecommenderSpec("population", "linucb", scope="everyone"),))
        async with inside(given) as (_, client):
            seen = await read(client, CULTURE, 6)
            assert seen["beliefs"]["posterior"] is None
            assert seen["beliefs"]["why"].startswith("All visitors get the same list here")
            assert all(step["posterior"] is None for step in seen["past"])

    asyncio.run(main())


def test_a_restart_goes_on_where_it_was(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            before = await read(client, CULTURE, 7)
            cookies = dict(client.cookies)
        async with inside(front(tmp_path)) as (_, client):
            client.cookies.update(cookies)
            assert (await client.post("/page/visit", json={})).json() == before
            assert (await read(client, CULTURE, again=False))["past"][:7] == before["past"]

    asyncio.run(main())


def test_somebody_erased_begins_again_under_another_name(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            visitor = (await read(client, CULTURE, 5))["visitor"]
            assert (await client.delete(f"/v1/users/{visitor}")).status_code == 200
            seen = (await client.post("/page/visit", json={})).json()
            assert seen["visitor"] != visitor
            assert seen["step"] == 0
            assert (await read(client, CULTURE, again=False))["done"]

    asyncio.run(main())


def test_an_item_that_left_the_catalogue_stays_in_the_story(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            seen = await read(client, CULTURE, 3)
            gone = [step["id"] for step in seen["past"]] + [seen["offer"]["id"]]
            assert (await client.put("/v1/items", json={"items": [], "remove": gone})).status_code == 200
            now = (await client.post("/page/visit", json={})).json()
            assert [step["title"] for step in now["past"]] == gone[:3]
            assert now["offer"]["title"] == gone[3]
            assert (await read(client, CULTURE, 6, again=False))["step"] == 6

    asyncio.run(main())


def test_an_empty_catalogue_is_said_to_be_empty(tmp_path):
    async def main():
        async with inside(front(tmp_path, items=None)) as (_, client):
            refused = await client.post("/page/visit", json={})
            assert refused.status_code == 409
            assert "nothing to read yet; the operator must fill the catalogue" in refused.json()["detail"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/page/visit", {"study": "yes"}), ("/page/visit", {"who": 1}), ("/page/answer", {}),
        ("/page/answer", {"decision_id": "x", "opened": 1}), ("/page/answer", {"decision_id": 5, "opened": True}),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(tmp_path, path, body):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            assert (await client.post(path, json=body)).status_code == 422

    asyncio.run(main())


def test_another_site_is_refused(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
                answered = await client.post("/page/visit", json={}, headers={"sec-fetch-site": site})
                assert answered.status_code == status

    asyncio.run(main())


def test_a_study_tells_nothing_of_who_chooses(tmp_path):
    async def main():
        async with inside(front(tmp_path)) as (_, client):
            kinds = set()
            for _ in range(8):
                seen = (await client.post("/page/visit", json={"study": True, "again": True})).json()
                body = {"decision_id": seen["offer"]["decision_id"], "opened": True}
                seen = (await client.post("/page/answer", json=body)).json()
                kinds.add((*seen["offer"], *seen["past"][0], seen["beliefs"]))
            assert len(kinds) == 1
            assert not {"propensity", "posterior"} & set(next(iter(kinds)))

    asyncio.run(main())


def test_a_small_catalogue_is_read_to_its_end(tmp_path):
    items = tmp_path / "items.json"
    items.write_text('{"items": [{"id": "a", "x": [1, 0]}, {"id": "b", "x": [0, 1]}, {"id": "c", "x": [1, 1]}]}')

    async def main():
        async with inside(Settings(store=str(tmp_path / "small.db"), items=str(items))) as (_, client):
            seen = (await client.post("/page/visit", json={})).json()
            for n in range(3):
                assert (seen["step"], seen["n_steps"], seen["done"]) == (n, 3, False)
                body = {"decision_id": seen["offer"]["decision_id"], "opened": True}
                seen = (await client.post("/page/answer", json=body)).json()
            assert (seen["step"], seen["done"], seen["offer"]) == (3, True, None)

    asyncio.run(main())
