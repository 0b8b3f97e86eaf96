"""Drill 7: rewards come in any order, up to 30 days late, across three versions; user states do not depend on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.bandits.registry import BANDITS
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Settings
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.storage.models.folder import pack_models
from support.harness import LONG, classes
from support.inside import Inside, fold_log, sqlite

DAY = 86_400.0
ORDERS = 10 if LONG else 3
OVER_CLASSES = [name for name, kind in BANDITS.items() if kind.traits.needs_classes]
SETTINGS: dict[str, dict[str, Any]] = {"coarse-fine": {"n_coarse": 2}}


def session(
    path: Path, spec: RecommenderSpec, order: int | None, broken: Callable[[Service], None] | None = None
) -> Any:
    """Make the same decisions for users of three versions and of the warm-up, and for one who comes back under each.

    Send the rewards in the given order, and return the final states of the users.
    """
    learning = Learning(pin=spec.pin)
    given = Settings(recommenders=(spec,), reward_range=(0.0, 1.0), pages=False, learning=learning)
    chance = random.Random(0)
    with Inside(sqlite(path), given, broken=broken) as inside:
        rewards: list[tuple[str, float]] = []
        for version in range(4):
            if version:
                made = classes(version, version + 1, 3)
                made = made.with_covariance(np.tile(0.01 * np.eye(3), (version + 1, 1, 1)))
                manifest, tensors = pack_models(made)
                inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=1))
            for name in [*(f"u{n}.{version}" if n < version else f"u{n}" for n in range(version + 1)), "again"]:
                for _ in range(6):
                    arms = [{"id": f"a{i}", "x": [chance.gauss(0, 1) for _ in range(3)]} for i in range(4)]
                    if spec.traits.fixed_arms:
                        arms = [{"id": f"a{i}", "x": np.eye(3)[i].tolist()} for i in range(3)]
                    answer = inside.decide(name, arms=arms)
                    rewards.append((answer["decision_id"], float(chance.random() < 0.5)))
        if order is not None:
            random.Random(order).shuffle(rewards)
        for id, reward in rewards:
            inside.pass_time(chance.random() * 30 * DAY / len(rewards))
            inside.reward(id, reward)
        assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
        assert verify(inside.store).differences == []
        users = {name: inside.service.world.user(name) for name in inside.store.users()}
        models = {name: user.model for name, user in users.items() if user is not None}
        assert set(models.values()) == {0, 1, 2, 3}
        assert models["again"] == (0 if spec.pin else 3)
        states = {name: user.state for name, user in users.items() if user is not None and user.state is not None}
        return states, dict(inside.service.world.shared.states)


def drill(folder: Path, spec: RecommenderSpec, broken: Callable[[Service], None] | None = None) -> None:
    expected, shared = session(folder / "first.db", spec, None)
    for order in range(ORDERS):
        states, also = session(folder / f"{order}.db", spec, order, broken)
        assert states.keys() == expected.keys()
        for name, state in states.items():
            np.testing.assert_allclose(state, expected[name], rtol=1e-9, atol=1e-9, err_msg=f"{name} in order {order}")
        for name, state in also.items():
            np.testing.assert_allclose(state, shared[name], rtol=1e-9, atol=1e-9, err_msg=f"{name} in order {order}")


@pytest.mark.parametrize("bandit", OVER_CLASSES if LONG else ["thompson", "posterior-mean", "exp4", "iltcb"])
def test_the_order_of_rewards_does_not_matter(tmp_path: Path, bandit: str) -> None:
    drill(tmp_path, RecommenderSpec("lcb", bandit, settings=SETTINGS.get(bandit, {})))


@pytest.mark.parametrize("pin", [True, False])
def test_it_does_not_matter_whether_users_are_pinned_or_follow_the_newest_version(tmp_path: Path, pin: bool) -> None:
    drill(tmp_path, RecommenderSpec("lcb", "learned-classes", pin=pin))


def test_rewards_applied_under_the_version_of_the_day_give_another_user(tmp_path: Path) -> None:
    def of_the_day(service: Service) -> None:
        kept = service.world.state.bandit
        service.world.state.bandit = lambda recommender, model, n_features=None: kept(  # type: ignore[method-assign]
            recommender, min(model, 1) and service.world.state.active, n_features
        )

    with pytest.raises((AssertionError, Problem)):
        drill(tmp_path, RecommenderSpec("lcb"), of_the_day)


def test_a_state_that_forgets_with_every_reward_depends_on_the_order(tmp_path: Path) -> None:
    def forgetting(service: Service) -> None:
        kept = service.world.fold.step

        def step(user: Any, row: Any, body: Any, reward: float) -> None:
            kept(user, row, body, reward)
            if row.kind == "reward" and user.state is not None:
                user.state = 0.9 * user.state

        service.world.fold.step = step  # type: ignore[method-assign]

    with pytest.raises(AssertionError):
        drill(tmp_path, RecommenderSpec("lcb"), forgetting)
