"""Comparison of recommenders, shadow mode, and a share of users with uniform decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from lcb.bandits.registry import BANDITS
from lcb.errors import InputError
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.storage.models.folder import save_models
from support.harness import classes, models_folder
from support.running import Running, arms_of, running

LCB = RecommenderSpec("lcb")
POPULATION = RecommenderSpec("population", "linucb", scope="everyone")
UNIFORM = RecommenderSpec("uniform", "uniform")
ARMS = arms_of(np.eye(6))


async def seen(service: Running, n_users: int, prefix: str = "u") -> dict[str, str]:
    """The recommender of each of these users."""
    made = await asyncio.gather(*(service.decide(f"{prefix}{i}", ARMS) for i in range(n_users)))
    return {f"{prefix}{i}": one["recommender"] for i, one in enumerate(made)}


async def trial(service: Running, name: str = "") -> dict[str, Any]:
    answer = await service.http.get(f"/v1/trials{name}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_users_are_split_by_share_and_stay_where_they_are(tmp_path: Path) -> None:
    given = {"recommenders": (POPULATION, LCB), "models": models_folder(tmp_path)}

    async def drive() -> None:
        async with running(tmp_path, shares={"population": 0.25, "lcb": 0.75}, **given) as service:
            first = await seen(service, 400)
            share = np.mean([name == "lcb" for name in first.values()])
            assert abs(share - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 400)
            assert await seen(service, 400) == first
            assert [one["share"] for one in (await trial(service))["recommenders"]] == [0.25, 0.75]
        async with running(tmp_path, shares={"population": 1.0}, **given) as service:
            assert await seen(service, 400) == first  # by the log, whatever the shares are now
            assert set((await seen(service, 50, "new")).values()) == {"population"}
        async with running(tmp_path, recommenders=(LCB,), models=given["models"]) as service:
            assert await seen(service, 50) == {name: first[name] for name in list(first)[:50]}
            names = [(one["name"], one["share"]) for one in (await trial(service))["recommenders"]]
            assert names == [("lcb", 1.0), ("population", 0.0)]

    asyncio.run(drive())


def test_the_assignment_does_not_depend_on_the_order_in_which_users_come(tmp_path: Path) -> None:
    given = {"recommenders": (POPULATION, LCB), "models": models_folder(tmp_path)}

    async def drive() -> None:
        async with running(tmp_path, **given) as service:
            assignment = service.service.assignment
            before = [assignment.assign(f"u{i}") for i in range(50)]
            await seen(service, 20, "others")
            assert [assignment.assign(f"u{i}") for i in range(50)] == before

    asyncio.run(drive())


def test_mean_deviation_and_the_interval_of_the_difference_are_those_of_the_users_rates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    async def drive() -> None:
        given = {"recommenders": (POPULATION, LCB, UNIFORM), "models": models_folder(tmp_path)}
        async with running(tmp_path, rewards="last", **given) as service:
            rates: dict[str, list[float]] = {"population": [], "lcb": [], "uniform": []}
            n_decisions = dict.fromkeys(rates, 0)
            for i in range(60):
                got, n = [], int(rng.integers(1, 6))
                for _ in range(n):
                    made = await service.decide(f"u{i}", ARMS)
                    if rng.random() < 0.8:  # of some nothing comes
                        for value in rng.integers(0, 2, int(rng.integers(1, 3))):  # and some are changed
                            await service.reward(made["decision_id"], float(value))
                        got.append(float(value))
                rates[made["recommender"]].append(sum(got) / n)
                n_decisions[made["recommender"]] += n
            answer = await trial(service)
            for one in answer["recommenders"]:
                of = np.array(rates[one["name"]])
                assert one["n_users"] == len(of)
                assert one["n_decisions"] == n_decisions[one["name"]]
                assert one["mean"] == pytest.approx(of.mean())
                assert one["deviation"] == pytest.approx(of.std(ddof=1))
            assert [(one["of"], one["to"]) for one in answer["differences"]] == [
                ("lcb", "population"), ("uniform", "population"),
            ]  # fmt: skip
            for one in answer["differences"]:
                check_difference(one, rates)
            mine = await trial(service, "/uniform")
            assert [one["name"] for one in mine["recommenders"]] == ["uniform"]
            assert [(one["of"], one["to"]) for one in mine["differences"]] == [
                ("uniform", "population"), ("uniform", "lcb"),
            ]  # fmt: skip
            for one in mine["differences"]:
                check_difference(one, rates)

    asyncio.run(drive())


def check_difference(one: dict[str, Any], rates: dict[str, list[float]]) -> None:
    test = ttest_ind(rates[one["of"]], rates[one["to"]], equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert one["mean"] == pytest.approx(np.mean(rates[one["of"]]) - np.mean(rates[one["to"]]))
    assert (one["low"], one["high"]) == (pytest.approx(low), pytest.approx(high))


def test_a_trial_without_users_has_no_means_and_no_differences(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, recommenders=(POPULATION, UNIFORM)) as service:
            answer = await trial(service)
            assert [(one["name"], one["mean"], one["deviation"]) for one in answer["recommenders"]] == [
                ("population", None, None), ("uniform", None, None),
            ]  # fmt: skip
            assert answer["differences"] == []
            missing = await service.http.get("/v1/trials/nobody")
            assert missing.status_code == 404
            assert missing.json()["field"] == "recommender"

    asyncio.run(drive())


def test_who_is_erased_leaves_the_trial(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, recommenders=(POPULATION, UNIFORM)) as service:
            await seen(service, 20)
            before = await trial(service)
            made = await service.decide("gone", ARMS)
            await service.reward(made["decision_id"], 1.0)
            assert (await service.http.delete("/v1/users/gone")).status_code == 200
            assert await trial(service) == before

    asyncio.run(drive())


# The uniform slice


def test_a_uniform_slice_draws_every_arm_alike_and_says_so(tmp_path: Path) -> None:
    async def drive() -> None:
        given = {"recommenders": (LCB, UNIFORM), "models": models_folder(tmp_path)}
        async with running(tmp_path, shares={"lcb": 0.8, "uniform": 0.2}, **given) as service:
            shown = np.zeros(6)
            made = await asyncio.gather(*(service.decide(f"u{i}", ARMS) for i in range(1500)))
            slice = [one for one in made if one["recommender"] == "uniform"]
            assert abs(len(slice) - 300) < 4.5 * np.sqrt(1500 * 0.2 * 0.8)
            for one in slice:
                assert one["propensity"] == pytest.approx(1 / 6)
                assert one["distribution"] == pytest.approx([1 / 6] * 6)
                assert (one["model"], one["policy"]) == (0, "uniform")
                shown[int(one["arm"])] += 1
            n = len(slice)
            assert np.abs(shown - n / 6).max() < 4.5 * np.sqrt(n * 5 / 36)
            for one in slice[:20]:
                await service.reward(one["decision_id"], 1.0)

    asyncio.run(drive())


def test_a_uniform_users_state_survives_a_restart(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, recommenders=(UNIFORM,)) as service:
            made = await service.decide("u", ARMS)
            await service.reward(made["decision_id"], 1.0)
        async with running(tmp_path, recommenders=(UNIFORM,)) as service:
            assert (await service.decide("u", ARMS))["recommender"] == "uniform"
            assert (await service.http.get("/v1/users/u")).json()["n_rewards"] == 1

    asyncio.run(drive())


# The shadow


def test_a_shadow_answers_the_callers_choice_and_logs_what_it_would_have_done(tmp_path: Path) -> None:
    async def drive() -> None:
        given = {"models": models_folder(tmp_path)}
        async with running(str(tmp_path / "a.db"), **given) as plain:
            wanted = await plain.decide("u", ARMS, decision_id="d1")
            seed = plain.world.state.settings.seed
        async with running(str(tmp_path / "b.db"), shadow=True, **given) as service:
            service.world.state.settings.seed = seed
            other = next(arm["id"] for arm in ARMS if arm["id"] != wanted["arm"])
            made = await service.decide("u", ARMS, decision_id="d1", chosen=other, chosen_propensity=0.25)
            assert (made["arm"], made["propensity"], made["would"]) == (other, 0.25, wanted["arm"])
            assert made["distribution"] == wanted["distribution"]
            body = events.decode("decision", service.service.store.event("d1").body)
            assert body.taken[0].id == wanted["arm"]
            assert (body.chosen.id, body.chosen.propensity, body.own) == (other, 0.25, True)
            assert await service.decide("u", ARMS, decision_id="d1", chosen=other, chosen_propensity=0.25) == made

    asyncio.run(drive())


def test_a_shadow_compares_no_recommenders_by_what_callers_chose(tmp_path: Path) -> None:
    async def drive() -> None:
        given = {"recommenders": (POPULATION, UNIFORM), "categories": ("a", "b", "c", "d", "e", "f")}
        async with running(tmp_path, shadow=True, **given) as service:
            for i in range(20):
                made = await service.decide(f"u{i}", ARMS, chosen="1", chosen_propensity=0.5)
                await service.reward(made["decision_id"], float(i % 2))
            for name in ("", "/uniform"):
                told = await trial(service, name)
                assert told["differences"] == []
                assert told["why"].startswith("in shadow mode callers choose the arms")
        async with running(tmp_path, shadow=False, **given) as service:
            told = await trial(service)
            assert len(told["differences"]) == 1
            assert told["why"] is None

    asyncio.run(drive())
    with pytest.raises(InputError, match=r"shadow is true and learning.canary is 0\.1: callers choose"):
        Settings(shadow=True, learning=Learning(canary=0.1))


def test_a_shadow_learns_of_the_arm_that_was_shown_and_not_of_its_own(tmp_path: Path) -> None:
    models = classes()

    async def drive() -> None:
        async with running(tmp_path, shadow=True, models=models_folder(tmp_path)) as service:
            made = await service.decide("u", ARMS, chosen="4")
            assert made["propensity"] is None  # nobody told
            await service.reward(made["decision_id"], 0.7)
            answer = (await service.http.get("/v1/users/u")).json()
            log_w = np.log(models.pi) + models.log_density(np.eye(6)[4], 0.7)
            assert answer["posterior"] == pytest.approx(np.exp(log_w - np.logaddexp.reduce(log_w)))

    asyncio.run(drive())


def test_classes_are_learned_from_what_a_shadows_caller_showed(tmp_path: Path) -> None:
    async def drive() -> None:
        async with running(tmp_path, shadow=True, learning=Learning(20, None, n_classes=1, held_out=0.0)) as service:
            for i in range(20):
                made = await service.decide(f"u{i}", ARMS, chosen="2")
                await service.reward(made["decision_id"], 0.5 + 0.01 * (i % 2))
            assert (await service.learned())["active"] == 1
            beta = service.world.state.versions[1].models().beta[0]
            assert beta[2] == pytest.approx(0.505, abs=0.01)
            np.testing.assert_allclose(np.delete(beta, 2), 0, atol=1e-9)

    asyncio.run(drive())


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "chosen"),
        ({"chosen": "nothing"}, "chosen"),
        ({"chosen_propensity": 0.5}, "chosen"),
        ({"chosen": "1", "k": 2}, "k"),
        ({"chosen": "1", "chosen_propensity": 0}, "chosen_propensity"),
        ({"chosen": "1", "chosen_propensity": 1.5}, "chosen_propensity"),
    ],
)
def test_a_shadow_wants_the_arm_that_was_taken(tmp_path: Path, request_: dict[str, Any], field: str) -> None:
    async def drive() -> None:
        async with running(tmp_path, shadow=True, models=models_folder(tmp_path)) as service:
            answer = await service.http.post("/v1/decisions", json={"user": "u", "arms": ARMS, **request_})
            assert answer.status_code == 422
            assert answer.json()["field"] == field
            assert service.world.n_started == 0

    asyncio.run(drive())


@pytest.mark.parametrize("bandit", ["exp3", "exp4", "iltcb"])
def test_a_bandit_that_weighs_by_propensity_wants_the_callers(tmp_path: Path, bandit: str) -> None:
    async def drive() -> None:
        given = {"recommenders": (RecommenderSpec("lcb", bandit),), "models": models_folder(tmp_path)}
        async with running(tmp_path, shadow=True, **given) as service:
            answer = await service.http.post("/v1/decisions", json={"user": "u", "arms": ARMS, "chosen": "1"})
            assert answer.status_code == 422
            assert answer.json()["field"] == "chosen_propensity"
            made = await service.decide("u", ARMS, chosen="1", chosen_propensity=0.5)
            await service.reward(made["decision_id"], 1.0)

    asyncio.run(drive())


def test_a_bandit_that_needs_every_arms_probability_is_no_shadow(tmp_path: Path) -> None:
    recommenders = (RecommenderSpec("lcb", "exp4p"),)
    with pytest.raises(InputError, match="callers in shadow mode do not send"):
        Settings(shadow=True, recommenders=recommenders)

    async def drive() -> None:
        async with running(tmp_path, recommenders=recommenders, models=models_folder(tmp_path)) as service:
            answer = await service.http.post("/v1/decisions", json={"user": "u", "arms": ARMS, "chosen": "1"})
            assert answer.status_code == 422
            assert answer.json()["field"] == "chosen"

    asyncio.run(drive())


def test_a_shadow_of_every_bandit_takes_decisions_and_rewards(tmp_path: Path) -> None:
    names = [name for name in BANDITS if name != "exp4p"]
    uncertain = classes().with_covariance(np.tile(0.01 * np.eye(6), (5, 1, 1)))
    save_models(uncertain, tmp_path / "uncertain")

    async def drive() -> None:
        recommenders = tuple(RecommenderSpec(name, name) for name in names)
        models = str(tmp_path / "uncertain")
        async with running(tmp_path, shadow=True, recommenders=recommenders, models=models) as service:
            for i in range(10 * len(names)):
                made = await service.decide(f"u{i % 40}", ARMS, chosen=str(i % 6), chosen_propensity=1 / 6)
                await service.reward(made["decision_id"], float(i % 2))
            answer = await trial(service)
            assert sum(one["n_decisions"] for one in answer["recommenders"]) == 10 * len(names)

    asyncio.run(drive())


# Arriving


def test_two_first_decisions_of_one_person_have_one_version_though_models_are_switched_between(tmp_path: Path) -> None:
    """The second would otherwise be made under version 2 for somebody whom the first one pins to version 1."""

    async def drive() -> None:
        pinned = (RecommenderSpec("lcb", "thompson"),)
        async with running(tmp_path, models=models_folder(tmp_path, 0), recommenders=pinned) as service:
            body = service.world.state.versions[1].body
            await service.service.add_model(body.manifest, body.tensors, active=False, reason="", n_users=1)
            for i in range(40):
                switch = service.service.activate(1 + i % 2, "a swap")
                made = await asyncio.gather(
                    switch, service.decide(f"u{i}", ARMS), later(service.decide(f"u{i}", ARMS)),
                    later(service.decide(f"u{i}", ARMS), 3),
                )  # fmt: skip
                met = {one["model"] for one in made[1:]}
                assert met == {service.world.user(f"u{i}").model}

    async def later(work: Any, n: int = 1) -> Any:
        for _ in range(n):
            await asyncio.sleep(0)
        return await work

    asyncio.run(drive())
