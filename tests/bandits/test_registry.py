"""A bandit is added by a line of the registry: the command line, the service and the docs find it there."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from lcb import bandits
from lcb.arrays import Floats
from lcb.bandits.registry import (
    BANDITS,
    build_bandit,
    describe_bandits,
    format_markdown_table,
    is_revisable,
    list_settings,
)
from lcb.bandits.traits import Traits, keeps_posterior
from lcb.cli.main import main
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.serve.config.recommenders import RecommenderSpec
from support.running import running

ROOT = Path(__file__).parents[2]
MODELS = LatentModels([0.5, 0.5], np.eye(2), np.ones(2)).with_covariance(np.tile(np.eye(2), (2, 1, 1)))


@dataclass(frozen=True)
class FirstArm:
    """The first arm; the state counts rewards."""

    traits: ClassVar = Traits("n_features", state="1", cost="1")

    n_features: int
    patience: float = 1.0

    def start(self) -> Floats:
        return np.zeros(1)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        return Decision(0, 1.0, context[0], np.eye(len(context))[0])

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return state + 1


@pytest.fixture
def first_arm(monkeypatch):
    monkeypatch.setitem(BANDITS, "first-arm", FirstArm)


def build(name: str) -> object:
    return build_bandit(name, {}, models=MODELS, n_features=2, reward_range=(0.0, 2.0))


def test_every_public_bandit_is_registered_and_every_registered_one_is_public():
    public = [getattr(bandits, name) for name in bandits.__all__]
    assert {kind for kind in public if isinstance(getattr(kind, "traits", None), Traits)} == set(BANDITS.values())


@pytest.mark.parametrize("name", BANDITS)
def test_the_traits_are_true(name):
    bandit, traits = build(name), BANDITS[name].traits
    assert type(bandit) is BANDITS[name]
    assert traits.needs_reward_range == ("reward_range" in list_settings(name))
    assert getattr(bandit, "reward_range", (0.0, 2.0)) == (0.0, 2.0)
    assert hasattr(bandit, "revise") == is_revisable(name)
    if keeps_posterior(bandit):
        np.testing.assert_allclose(bandit.weights(bandit.start()), MODELS.pi)
    if not traits.needs_classes:
        build_bandit(name, {}, models=None, n_features=2)


@pytest.mark.parametrize("name", BANDITS)
def test_the_state_has_as_many_numbers_as_the_traits_say(name):
    sizes = {"N": 2, "K": 2, "d": 2, "n_kept": 128}
    formula = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", BANDITS[name].traits.state)
    assert len(build(name).start()) == eval(formula, {}, sizes)


@pytest.mark.parametrize("name", BANDITS)
def test_every_setting_that_is_listed_is_taken_and_no_other(name):
    bandit = build(name)
    for setting in set(list_settings(name)) - {"n_coarse"}:
        build_bandit(name, {setting: getattr(bandit, setting)}, models=MODELS, n_features=2)
    with pytest.raises(InputError, match=f"{name} does not take .*its settings are {', '.join(list_settings(name))}"):
        RecommenderSpec("lcb", name, settings={"magic": 1})


def test_a_specification_is_kept_as_it_is():
    kept = b'{"bandit":"exp4","name":"lcb","scope":"user","settings":{"eta":0.5},"uniform":0.1,"warmup":{"width":0.5}}'
    assert RecommenderSpec.from_json(kept).to_json() == kept


@pytest.mark.parametrize(
    ("bandit", "settings", "uniform"),
    [("thompson", {"gamma": 0.2, "eta": 0.5}, 0.2), ("posterior-mean", {"uniform": 0.3}, 0.3), ("linucb", {}, 0.0)],
)
def test_a_log_without_a_uniform_share_is_read_with_the_share_it_was_written_under(bandit, settings, uniform):
    """Once it was a setting of some bandits, named gamma by Thompson, and the warm-up had none."""
    old = {"bandit": bandit, "name": "lcb", "scope": "user", "settings": settings, "warmup": {"width": 0.5}}
    known = RecommenderSpec.from_json(json.dumps(old).encode())
    assert known.get_uniform(in_warmup=False) == uniform
    assert known.get_uniform(in_warmup=True) == (0.0 if known.over_classes else uniform)
    assert RecommenderSpec("lcb", bandit).complete(known) == known  # the same service, started again
    assert RecommenderSpec("lcb", bandit, uniform=0.5).complete(known) != known


@pytest.mark.parametrize("bandit", BANDITS)
def test_a_new_recommender_writes_all_its_settings_out(bandit):
    spec = RecommenderSpec("lcb", bandit).complete(None)
    assert spec.uniform == 0.01
    assert set(spec.settings) == set(list_settings(bandit)) - {"policy", "uniform", "reward_range"}
    assert RecommenderSpec.from_json(spec.to_json()) == spec
    assert spec.get_uniform(in_warmup=True) == 0.01
    spec.make(MODELS, 2, (0.0, 1.0))


def test_a_share_that_is_no_share_is_refused():
    for wrong in ({"uniform": 1.5}, {"warmup": {"uniform": -1}}, {"settings": {"gamma": 2}}):
        with pytest.raises(InputError, match=r"uniform is .* must lie in \[0, 1\]"):
            RecommenderSpec("lcb", **wrong)


def test_a_new_bandit_is_listed_by_the_command_line(first_arm, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lcb", "algorithms", "--bandits", "--json", "-"])
    with pytest.raises(SystemExit):
        main()
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["bandit"] == "first-arm"]
    assert (row["class"], row["settings"], row["needs"]) == ("FirstArm", ["patience"], [])


def test_a_new_bandit_is_in_the_list_of_an_error(first_arm):
    with pytest.raises(InputError, match=r"the bandits are thompson, .*, first-arm"):
        RecommenderSpec("lcb", "magic")


@pytest.mark.parametrize("scope", ["user", "everyone"])
def test_a_new_bandit_serves(first_arm, tmp_path, scope):
    arms = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]

    async def drive() -> None:
        spec = RecommenderSpec("one", "first-arm", scope, {"patience": 2.0}, uniform=0.0)
        async with running(tmp_path, recommenders=(spec,)) as service:
            for _ in range(3):
                made = await service.decide("ann", arms)
                assert made["arm"] == "a"
                await service.reward(made["decision_id"], 1.0)
            state = service.world.shared.states["one"] if scope == "everyone" else service.world.user("ann").state
            assert state.tolist() == [3.0]

    asyncio.run(drive())


def test_a_new_bandit_is_in_the_table_of_the_docs(first_arm):
    assert "| `first-arm`: `FirstArm(patience)` |" in format_markdown_table()


def test_the_table_of_the_docs_is_of_today():
    page = (ROOT / "docs/bandits.md").read_text()
    assert format_markdown_table() in page, "rewrite it with: scripts/write-bandits-table"


def test_every_bandit_has_a_line_of_its_own():
    lines = [row["line"] for row in describe_bandits()]
    assert all(lines)
    assert len(set(lines)) == len(lines)
