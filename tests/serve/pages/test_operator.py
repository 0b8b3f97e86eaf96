"""Which keys may see the operator's pages and use their actions."""

from __future__ import annotations

import asyncio
import json
import time

import numpy as np
import pytest

from lcb.demo.readers import CATEGORIES, KINDS
from lcb.features import fit_features
from lcb.models import LatentModels
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.web.endpoint import Ask
from lcb.serve.web.keys import sha256
from lcb.storage.models.folder import save_models
from lcb.storage.store.base import Key
from support.http_inside import inside
from support.news_front import front, read

KEYS = [Key(scope, scope, sha256(f"lcb_{scope}"), 0.0, None) for scope in ("reader", "writer", "admin")]
SPORT = set(KINDS["sport"][1])


def asking(tmp_path, drill, keys=KEYS):
    async def main():
        async with inside(front(tmp_path), keys=keys) as (app, client):
            await drill(app, client)

    asyncio.run(main())


async def sign_in(client, scope):
    client.cookies.clear()
    answered = await client.post("/page/login", json={"key": f"lcb_{scope}"})
    assert answered.status_code == 204
    assert scope not in answered.headers["set-cookie"]


def cookie_of(client):
    return Ask(b"", {"headers": [(b"cookie", f"lcb_session={client.cookies['lcb_session']}".encode())]}, {})


def test_without_keys_everybody_here_is_an_operator(tmp_path):
    async def drill(app, client):
        told = (await client.get("/page/session")).json()
        assert told == {"needs_key": False, "role": "admin", "signed_in": False}
        assert (await client.get("/page/dashboard/charts")).status_code == 200

    asking(tmp_path, drill, keys=[])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/page/dashboard/charts"), ("GET", "/page/dashboard/events"), ("POST", "/page/dashboard/retrain"),
        ("POST", "/page/dashboard/activate"), ("GET", "/page/users/x/story"), ("POST", "/page/users/x/verify"),
        ("POST", "/page/study/visitors"),
    ],
)  # fmt: skip
def test_with_keys_nobody_else_sees_or_does_anything(tmp_path, method, path):
    async def drill(app, client):
        assert (await client.get("/page/session")).json()["needs_key"]
        before = app.service.world.seq
        assert (await client.request(method, path, json={"version": 1})).status_code == 401
        visitor = await client.post("/page/visit", json={})
        assert visitor.status_code == 200
        assert (await client.request(method, path, json={"version": 1})).status_code == 401
        assert app.service.world.seq == before + 1

    asking(tmp_path, drill)


@pytest.mark.parametrize(("scope", "retrain"), [("reader", 403), ("writer", 403), ("admin", 409)])
def test_a_session_may_what_its_key_may(tmp_path, scope, retrain):
    async def drill(app, client):
        await sign_in(client, scope)
        assert (await client.get("/page/session")).json() == {"needs_key": False, "role": scope, "signed_in": True}
        assert (await client.get("/page/dashboard/charts")).status_code == 200
        assert (await client.post("/page/dashboard/retrain", json={})).status_code == retrain
        moved = await client.post("/page/dashboard/activate", json={"version": 0})
        assert moved.status_code == (200 if scope == "admin" else 403)
        assert app.service.world.state.active == (0 if scope == "admin" else 1)

    asking(tmp_path, drill)


def test_the_key_itself_is_as_good_as_a_session(tmp_path):
    async def drill(app, client):
        bearer = {"authorization": "Bearer lcb_reader"}
        assert (await client.get("/page/dashboard/charts", headers=bearer)).status_code == 200
        assert (await client.post("/page/dashboard/retrain", json={}, headers=bearer)).status_code == 403

    asking(tmp_path, drill)


def test_a_sign_in_to_another_service_of_the_host_ends_no_session(tmp_path):
    async def main():
        async with (
            inside(front(tmp_path / "one"), keys=KEYS) as (_, one),
            inside(front(tmp_path / "other"), keys=KEYS) as (_, other),
        ):
            other._cookies = one.cookies  # those of one browser, which sends them to every port
            for client, port in ((one, 8001), (other, 8002)):
                answered = await client.post(f"http://localhost:{port}/page/login", json={"key": "lcb_admin"})
                assert answered.status_code == 204
            for client, port in ((one, 8001), (other, 8002)):
                assert (await client.get(f"http://localhost:{port}/page/session")).json()["role"] == "admin"
            assert (await one.post("http://localhost:8001/page/logout")).status_code == 204
            assert (await one.get("http://localhost:8001/v1/models")).status_code == 401
            assert (await other.get("http://localhost:8002/v1/models")).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("key", ["", "lcb_nobody", "lcb_reader ", "ünï"])
def test_a_wrong_key_opens_nothing(tmp_path, key):
    async def drill(app, client):
        answered = await client.post("/page/login", json={"key": key})
        assert answered.status_code == (204 if key.strip() == "lcb_reader" else 401)

    asking(tmp_path, drill)


def test_a_session_ends_with_its_key_with_its_day_and_by_signing_out(tmp_path, monkeypatch):
    async def drill(app, client):
        await sign_in(client, "admin")
        ask = cookie_of(client)
        assert app.pages.operator.is_allowed(ask, "admin")
        now = time.time()
        with monkeypatch.context() as patch:
            patch.setattr(app.service, "now", lambda: now + 24 * 3600 + 5)
            assert not app.pages.operator.is_allowed(ask, "reader")
        assert not app.pages.operator.is_allowed(ask, "reader")  # it stays ended, whatever the clock says
        await sign_in(client, "admin")
        ask = cookie_of(client)
        app.keyring.keys = [key._replace(revoked=now) if key.scope == "admin" else key for key in KEYS]
        assert not app.pages.operator.is_allowed(ask, "reader")
        app.keyring.keys = KEYS
        assert app.pages.operator.is_allowed(ask, "admin")
        out = await client.post("/page/logout")
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert not app.pages.operator.is_allowed(ask, "reader")
        assert (await client.get("/page/session")).json()["needs_key"]

    asking(tmp_path, drill)


def test_the_stream_tells_all_at_first_then_what_has_changed_and_ends_with_its_key(tmp_path, monkeypatch):
    monkeypatch.setattr("lcb.serve.pages.operator._EVERY", 0.01)

    async def drill(app, client):
        await sign_in(client, "reader")
        stream = app.pages.operator._stream(cookie_of(client))

        async def event():
            text = (await anext(stream)).decode()
            assert text.startswith("event: state\ndata: {")
            assert text.endswith("}\n\n")
            return json.loads(text.partition("data: ")[2])

        first = await event()
        assert {"seq", "models", "trial", "store", "classes", "retraining", "requests"} <= set(first)
        second = await event()
        assert "models" not in second
        assert "classes" not in second
        assert second["seq"] == first["seq"]
        await app.service.activate(0, "a test")
        third = await event()
        assert third["classes"] is None
        assert [row["active"] for row in third["models"]] == [False]
        app.keyring.keys = [key._replace(revoked=1.0) for key in KEYS]
        with pytest.raises(StopAsyncIteration):
            await event()

    asking(tmp_path, drill)


def test_the_stream_ends_when_the_service_does(tmp_path):
    async def drill(app, client):
        app.draining = True
        parts = [part async for part in app.pages.operator._stream(Ask(b"", {"headers": []}, {}))]
        assert parts == []

    asking(tmp_path, drill, keys=[])


def test_a_story_is_the_log_of_one_user(tmp_path):
    async def drill(app, client):
        seen = await read(client, SPORT, 5)
        told = (await client.get(f"/page/users/{seen['visitor']}/story")).json()
        assert (told["user"], told["recommender"], told["model"]) == (seen["visitor"], "reader", 1)
        assert [row["reward"] for row in told["decisions"]] == [*(float(s["opened"]) for s in seen["past"]), None]
        assert [row["posterior"] for row in told["decisions"][:5]] == [step["posterior"] for step in seen["past"]]
        assert all(row["arm"] in row["arms"] and len(row["arms"]) == 170 for row in told["decisions"])
        assert told["chart"]["description"]
        verified = (await client.post(f"/page/users/{seen['visitor']}/verify", json={})).json()
        assert verified == {"checked": 6, "equal": 6, "erased": 0, "differences": []}
        assert (await client.get("/page/users/nobody/story")).status_code == 404

    asking(tmp_path, drill, keys=[])


def test_a_story_shows_the_rules_of_a_decision(tmp_path):
    async def drill(app, client):
        ids = list(app.service.world.state.catalogue.items)
        first = (await client.post("/v1/decisions", json={"user": "ann"})).json()
        given = {"user": "ann", "seen": "exclude", "exclude": [id for id in ids if id != first["arm"]][:2]}
        await client.post("/v1/decisions", json=given)
        told = (await client.get("/page/users/ann/story")).json()
        wanted = f"{len(ids) - 3} left: not 2 that the caller excluded, nothing shown before"
        assert [row["rules"] for row in told["decisions"]] == [None, wanted]
        verified = (await client.post("/page/users/ann/verify", json={})).json()
        assert verified["equal"] == verified["checked"] == 2
        measured = (await client.get("/metrics")).text
        assert 'lcb_rules_total{rule="seen"} 1.0' in measured

    asking(tmp_path, drill, keys=[])


def test_a_story_says_of_thompson_sampling_that_articles_are_drawn_from_the_posterior(tmp_path):
    models = LatentModels([0.5, 0.5], np.full((2, len(CATEGORIES)), 0.5), [0.1, 0.1])
    save_models(models, tmp_path / "models", feature_map=fit_features("one-hot", CATEGORIES, []))

    async def main():
        settings = front(tmp_path, recommenders=(RecommenderSpec("lcb", "thompson", uniform=0.0),))
        async with inside(settings, keys=[]) as (_, client):
            seen = await read(client, (), 3)
            told = (await client.get(f"/page/users/{seen['visitor']}/story")).json()
            assert [row["reason"] for row in told["decisions"]] == ["drawn"] * len(told["decisions"])

    asyncio.run(main())


def test_a_story_and_the_page_say_why_a_rule_with_a_bonus_took_an_article(tmp_path):
    beta = np.full((2, len(CATEGORIES)), 0.05)
    beta[:, 0], beta[:, 1] = 0.5, (0.02, 0.9)  # all like the first category; about the second they disagree
    models = LatentModels([0.5, 0.5], beta, [0.1, 0.1])
    save_models(models, tmp_path / "models", feature_map=fit_features("one-hot", CATEGORIES, []))

    async def main():
        settings = front(tmp_path, recommenders=(RecommenderSpec("lcb", "learned-classes", uniform=0.0),))
        async with inside(settings, keys=[]) as (_, client):
            seen = await read(client, (), 8)
            told = (await client.get(f"/page/users/{seen['visitor']}/story")).json()
            assert {row["reason"] for row in told["decisions"]} == {"liked", "informative"}
            assert all(row["model"] == 1 for row in told["decisions"])
            last = {"liked": "expected to like this one most", "informative": "tells most about what you like"}
            assert last[told["decisions"][-1]["reason"]] in seen["beliefs"]["why"]
            verified = (await client.post(f"/page/users/{seen['visitor']}/verify", json={})).json()
            assert verified["differences"] == []

    asyncio.run(main())


@pytest.mark.parametrize(("version", "status"), [(0, 200), (1, 200), (7, 404), (-1, 404)])
def test_a_version_is_activated_if_there_is_one(tmp_path, version, status):
    async def drill(app, client):
        answered = await client.post("/page/dashboard/activate", json={"version": version})
        assert answered.status_code == status
        assert app.service.world.state.active == (version if status == 200 else 1)

    asking(tmp_path, drill, keys=[])


def test_the_drawing_module_is_sent_once_and_compressed_where_that_is_understood(tmp_path):
    async def drill(app, client):
        plain = await client.get("/static/vega.js", headers={"accept-encoding": "identity"})
        packed = await client.get("/static/vega.js", headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text == plain.text
        assert int(packed.headers["content-length"]) < 0.5 * len(plain.content)
        again = await client.get("/static/vega.js", headers={"if-none-match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    asking(tmp_path, drill, keys=[])
