"""Algorithm 1 through HTTP: no models at first, learned while serving, judged, switched, rolled back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from lcb.demo.readers import NewsFront, draw_articles
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning
from lcb.serve.learn import supervisor
from lcb.serve.web.keys import Keyring, sha256
from lcb.storage.models.folder import save_models
from lcb.storage.store.base import Key
from support.learning import build_command, learn_here
from support.running import Running, arms_of, running

WORLD = SimulatedWorld(paper_classes(n_classes=3, n_features=6), n_arms=8)
SOME = Learning(n_warmup_users=30, retrain_every=None, n_classes=3)


@pytest.fixture
def learning_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "run_job", learn_here)


async def rewarded(service: Running, n_users: int, n_steps: int = 2, prefix: str = "u", seed: int = 0) -> None:
    await service.visits(prefix, WORLD.draw(n_users, n_steps, np.random.default_rng(seed)))


@pytest.mark.usefixtures("learning_here")
def test_a_service_without_models_learns_and_serves_newcomers_better(tmp_path: Path) -> None:
    """Algorithm 1, and a trial of it beside one LinUCB for all, as in the paper's user study."""
    recommenders = (RecommenderSpec("population", "linucb", scope="everyone"), RecommenderSpec("lcb"))
    rng = np.random.default_rng(0)
    angle = np.arange(3)[:, None] * 2 * np.pi / 3
    world = SimulatedWorld(
        equal_classes(np.hstack([np.cos(angle), np.sin(angle), np.zeros((3, 1))])), n_arms=8
    )  # mean: 0

    async def drive() -> None:
        learning = Learning(n_warmup_users=60, retrain_every=None)
        async with running(tmp_path, recommenders=recommenders, learning=learning) as service:
            assert (await service.models())["active"] == 0
            await service.visits("first", world.draw(60, 12, rng), at_once=1)  # in one order: no chance
            answer = await service.learned()
            assert answer["active"] == 1, answer
            (version,) = answer["versions"]
            assert version["status"] == "active"
            assert version["n_classes"] == 3
            assert version["score"] is not None
            assert version["provenance"]["likelihood"] == "gaussian"
            assert {service.world.user(f"first{i}").model for i in range(60)} == {0}

            users = world.draw(80, 12, rng)
            regret = users.regret(await service.visits("second", users))
            of = np.array([service.world.user(f"second{i}").recommender for i in range(80)])
            assert {service.world.user(f"second{i}").model for i in np.flatnonzero(of == "lcb")} == {1}
            assert regret[of == "lcb"].mean() < 0.4 * regret[of == "population"].mean()
            assert {service.world.user(f"first{i}").model for i in range(60)} == {0}
            trial = (await service.http.get("/v1/trials")).json()
            (difference,) = trial["differences"]
            assert (difference["of"], difference["to"]) == ("lcb", "population")
            assert 0 < difference["low"] < difference["mean"] < difference["high"]

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
def test_clicks_of_readers_are_learned_as_clicks_and_no_later_reward_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    world = NewsFront(draw_articles(30, rng), n_arms=8)

    async def drive() -> None:
        learning = Learning(n_warmup_users=20, retrain_every=None, n_classes=2)
        async with running(tmp_path, learning=learning, reward_range=(0.0, 1.0)) as service:
            await service.visits("u", world.draw(20, 5, rng))
            (version,) = (await service.learned())["versions"]
            assert version["provenance"]["likelihood"] == "bernoulli"
            made = await service.decide("new", arms_of(world.draw(1, 1, rng).contexts[0, 0]))
            assert made["model"] == 1
            await service.reward(made["decision_id"], 0.75)
            known = (await service.http.get("/v1/users/new")).json()
            assert known["reward_sum"] == 0.75
            again = await service.decide("other", arms_of(world.draw(1, 1, rng).contexts[0, 0]))
            await service.reward(again["decision_id"], 1.0)
            assert sum(known["posterior"]) == pytest.approx(1)

    asyncio.run(drive())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A store of either kind."""
    return tmp_path if request.param == "sqlite" else str(request.getfixturevalue("postgres_database"))


def test_learning_begins_on_demand_one_at_a_time(place: Path | str) -> None:
    async def drive() -> None:
        async with running(place, learning=replace(SOME, n_warmup_users=1000)) as service:
            refused = await service.http.post("/v1/models/retrain")
            assert refused.status_code == 409
            assert "no user has given a reward yet" in refused.json()["detail"]
            await rewarded(service, 30)
            begun = await service.http.post("/v1/models/retrain")
            assert begun.status_code == 202
            assert begun.json()["running"]
            twice = await service.http.post("/v1/models/retrain")
            assert twice.status_code == 409
            assert "already running" in twice.json()["detail"]
            answer = await service.learned()
            assert answer["active"] == 1
            assert not answer["retraining"]["running"]

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
def test_learning_comes_again_after_as_many_new_users_also_across_a_restart(place: Path | str) -> None:
    every = Learning(n_warmup_users=20, retrain_every=10, n_classes=2, held_out=0.0)

    async def drive() -> None:
        async with running(place, learning=every) as service:
            await rewarded(service, 20)
            assert (await service.learned())["active"] == 1
            assert service.world.started_at_training == 20
            await rewarded(service, 9, prefix="v")
            assert not service.app.retraining.running
            assert (await service.models())["retraining"]["next_at"] == 30
        async with running(place, learning=every) as service:
            assert service.world.started_at_training == 20
            assert not service.app.retraining.running
            assert service.world.user("u3").model == 0
            assert service.world.user("v3").model == 1
            await rewarded(service, 1, prefix="w")
            assert (await service.learned())["active"] == 2
            assert service.world.started_at_training == 30
        async with running(place, learning=replace(every, retrain_every=1)) as service:
            assert (await service.learned())["active"] == 2

    asyncio.run(drive())


def test_what_was_due_when_the_service_stopped_is_learned_when_it_is_back(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, learning=replace(SOME, n_warmup_users=1000)) as service:
            await rewarded(service, 30)
        async with running(tmp_path, learning=SOME) as service:
            assert service.app.retraining.running
            assert (await service.learned())["active"] == 1

    asyncio.run(drive())


def test_the_count_of_new_users_begins_where_learning_began(tmp_path: Path) -> None:
    """Who comes while models are learned is not in them, and counts for the next."""
    every = Learning(n_warmup_users=20, retrain_every=10, n_classes=2, held_out=0.0)

    async def drive() -> None:
        async with running(tmp_path, learning=every) as service:
            await rewarded(service, 20)
            assert service.app.retraining.running
            await rewarded(service, 4, n_steps=1, prefix="late")
            await service.learned()
            assert service.world.started_at_training == 20
            assert service.world.n_started == 24

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
def test_a_version_that_scores_worse_is_kept_aside_until_somebody_activates_it(tmp_path: Path) -> None:
    save_models(WORLD.models, tmp_path / "truth")
    one = Learning(retrain_every=None, n_classes=1)  # class, where there are three

    async def drive() -> None:
        given = {"models": str(tmp_path / "truth"), "recommenders": (RecommenderSpec("lcb", "thompson"),)}
        async with running(tmp_path, **given, learning=one) as service:
            await rewarded(service, 40, n_steps=6)
            assert (await service.http.post("/v1/models/retrain")).status_code == 202
            answer = await service.learned()
            assert answer["active"] == 1
            aside, given = answer["versions"]
            assert (aside["version"], aside["status"], given["status"]) == (2, "aside", "active")
            assert aside["score"] < aside["baseline"]
            assert aside["reason"].startswith("kept aside: ")
            assert (await service.decide("new", arms_of(np.eye(6))))["model"] == 1
            done = await service.http.post("/v1/models/2/activate", json={"reason": "a look at it"})
            assert done.json() == {"active": 2}
            assert (await service.decide("newer", arms_of(np.eye(6))))["model"] == 2
            assert (await service.decide("new", arms_of(np.eye(6))))["model"] == 1
            assert [one["status"] for one in (await service.models())["versions"]] == ["active", "kept"]
            assert (await service.models())["versions"][0]["reason"] == "activated by hand: a look at it"

    asyncio.run(drive())


def test_too_little_to_learn_from_is_no_failure_and_is_not_tried_again_at_once(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, learning=Learning(n_warmup_users=2, retrain_every=5)) as service:
            await rewarded(service, 2)
            answer = await service.learned()
            assert answer["versions"] == []
            assert answer["retraining"]["n_failed"] == 0
            assert answer["retraining"]["error"] is None
            assert answer["retraining"]["note"]
            assert answer["retraining"]["next_at"] == 7
            await rewarded(service, 1, prefix="v")
            assert not service.app.retraining.running

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
@pytest.mark.parametrize(
    ("bandit", "learner"), [("mmts", "em"), ("personal-classes", "em"), ("personal-classes", "personal")]
)
def test_a_bandit_that_needs_the_uncertainty_of_the_weights_can_be_served_by_what_is_learned(
    tmp_path: Path, bandit: str, learner: str
) -> None:
    async def drive() -> None:
        learning = replace(SOME, learner=learner)
        async with running(tmp_path, recommenders=(RecommenderSpec("lcb", bandit),), learning=learning) as service:
            await rewarded(service, 40)
            assert (await service.learned())["active"] == 1
            made = await service.decide("new", arms_of(np.eye(6)))
            assert (made["model"], made["policy"]) == (1, bandit)

    asyncio.run(drive())


def test_models_that_a_recommender_cannot_use_are_refused_at_the_start(tmp_path: Path) -> None:
    save_models(WORLD.models, tmp_path / "models")

    async def drive() -> None:
        given = {"models": str(tmp_path / "models"), "recommenders": (RecommenderSpec("lcb", "mmts"),)}
        with pytest.raises(InputError, match=r"recommender lcb cannot use the models of .* no covariance"):
            async with running(tmp_path, **given):
                pass

    asyncio.run(drive())


def test_a_service_without_classes_to_learn_for_does_not_learn_by_itself(tmp_path: Path) -> None:
    async def drive() -> None:
        population = (RecommenderSpec("population", "linucb", scope="everyone"),)
        async with running(tmp_path, recommenders=population, learning=Learning(n_warmup_users=5)) as service:
            await rewarded(service, 10)
            answer = await service.models()
            assert not answer["retraining"]["running"]
            assert answer["retraining"]["next_at"] is None

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
def test_rolling_back_to_zero_serves_newcomers_as_before_there_were_classes(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, learning=SOME) as service:
            await rewarded(service, 30)
            assert (await service.learned())["active"] == 1
            assert (await service.http.post("/v1/models/0/activate")).json() == {"active": 0}
            made = await service.decide("new", arms_of(np.eye(6)))
            assert (made["model"], made["policy"]) == (0, "linucb")

    asyncio.run(drive())


@pytest.mark.parametrize("version", ["7", "-1", "one", "1.5", "٣", "9" * 40])
def test_a_version_that_is_not_there_cannot_be_activated(tmp_path: Path, version: str) -> None:
    async def drive() -> None:
        async with running(tmp_path) as service:
            answer = await service.http.post(f"/v1/models/{version}/activate")
            assert answer.status_code == 404
            assert answer.json()["field"] == "version"

    asyncio.run(drive())


def test_only_an_admin_may_learn_and_activate_and_a_reader_may_look(tmp_path: Path) -> None:
    keyring = Keyring([Key(scope, scope, sha256(scope), 0.0, None) for scope in ("reader", "writer", "admin")])

    async def status(http: httpx.AsyncClient, method: str, path: str, key: str) -> int:
        return (await http.request(method, path, headers={"authorization": f"Bearer {key}"})).status_code

    async def drive() -> None:
        async with running(tmp_path, keyring=keyring) as service:
            for path in ("/v1/models", "/v1/trials", "/v1/trials/lcb"):
                assert (await service.http.get(path)).status_code == 401
                assert await status(service.http, "GET", path, "reader") == 200
            for path, wanted in (("/v1/models/retrain", 409), ("/v1/models/0/activate", 200)):
                assert await status(service.http, "POST", path, "writer") == 403
                assert await status(service.http, "POST", path, "admin") == wanted

    asyncio.run(drive())


def test_a_body_that_activation_does_not_know_is_refused(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path) as service:
            answer = await service.http.post("/v1/models/0/activate", json={"why": "?"})
            assert answer.status_code == 422

    asyncio.run(drive())


def test_another_replica_that_learns_keeps_this_one_from_it(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, learning=replace(SOME, n_warmup_users=1000)) as service:
            await rewarded(service, 10)
            service.service.store.lead = lambda name: None  # type: ignore[method-assign]
            answer = await service.http.post("/v1/models/retrain")
            assert answer.status_code == 409
            assert "another replica" in answer.json()["detail"]
            assert service.app.metrics.n_failed_trainings == 0

    asyncio.run(drive())


@pytest.mark.usefixtures("learning_here")
def test_of_two_replicas_one_learns_and_both_serve_what_it_learned(postgres_database: str) -> None:
    """Both meet users enough; the lead decides, and whoever has not heard of the version yet does not make another."""

    async def drive() -> None:
        async with running(postgres_database, learning=SOME) as one, running(postgres_database, learning=SOME) as two:
            users = WORLD.draw(40, 2, np.random.default_rng(0))
            for i in range(40):
                await (one, two)[i % 2].visit(f"u{i}", users, i)
            await asyncio.gather(one.learned(), two.learned())
            for service in (one, two):
                for i in range(3):
                    await service.decide(f"{id(service)} {i}", arms_of(np.eye(6)))
                await service.learned()
                answer = await service.models()
                assert answer["active"] == 1
                assert [version["version"] for version in answer["versions"]] == [1]
                assert (await service.decide(f"{id(service)} new", arms_of(np.eye(6))))["model"] == 1

    asyncio.run(drive())


def test_the_lead_is_given_back_whatever_comes_of_it(tmp_path: Path) -> None:
    async def drive() -> None:
        given_back = []
        async with running(tmp_path, learning=replace(SOME, n_warmup_users=1000)) as service:
            await rewarded(service, 10)
            service.service.store.lead = lambda name: lambda: given_back.append(name)  # type: ignore[method-assign]
            for command in (build_command(), ["false"]):
                service.app.retraining.command = lambda command=command: command
                assert (await service.http.post("/v1/models/retrain")).status_code == 202
                await service.learned()
            assert given_back == ["retrain", "retrain"]
            assert service.app.metrics.n_failed_trainings == 1

    asyncio.run(drive())


def test_learning_is_ended_with_the_service_and_no_command_line_names_the_store(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, learning=SOME) as service:
            await rewarded(service, 30)
            while service.app.retraining.process is None:
                await asyncio.sleep(0.01)
            process = service.app.retraining.process
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"lcb.serve.learn.worker" in line
            assert b"lcb.db" not in line
        assert process.returncode is not None

    asyncio.run(drive())
