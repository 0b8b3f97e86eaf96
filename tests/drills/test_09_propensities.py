"""Drill 9: arms are drawn as often as the propensity says, for every bandit the service offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit, count_decision
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.registry import BANDITS
from lcb.decision import Decision
from lcb.serve.chance import draw_number
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.decide.drawing import OneNumber
from support.harness import LONG, classes

DRAWS = 200_000 if LONG else 3_000
SIGMAS = 4.0
N_ARMS = N_FEATURES = 5
SLOW = ("iltcb",)  # an optimisation at every decision
SETTINGS: dict[str, dict[str, Any]] = {"thompson": {"gamma": 0.1}, "coarse-fine": {"n_coarse": 2}}


def bandit_of(name: str) -> Bandit:
    models = classes(3, 4, N_FEATURES).with_covariance(np.tile(0.05 * np.eye(N_FEATURES), (4, 1, 1)))
    return RecommenderSpec("x", name, settings=SETTINGS.get(name, {})).make(models, N_FEATURES, (0.0, 1.0))


def contexts(seed: int, n: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, N_ARMS, N_FEATURES))


def after(bandit: Bandit, past: Floats) -> Floats:
    """Return the state of a user after decisions in these contexts."""
    state = bandit.start()
    for i, context in enumerate(past):
        decision = bandit.choose(state, context, OneNumber(draw_number(b"seed", f"past{i}")))  # type: ignore[arg-type]
        state = bandit.update(count_decision(bandit, state, decision), decision, float(i % 3 == 0))
    return state


def drill(bandit: Bandit, n_past: int, *, fixed: bool = False, n_draws: int = DRAWS) -> None:
    """Draw many decisions from one state and context, with different ids, and compare frequencies with propensities."""
    given = contexts(2, n_past + 1) if not fixed else np.tile(np.eye(N_ARMS), (n_past + 1, 1, 1))
    state, context = after(bandit, given[1:]), given[0]
    first = bandit.choose(state, context, OneNumber(0.5))  # type: ignore[arg-type]
    assert first.distribution is not None
    expected = np.array(first.distribution)
    assert abs(expected.sum() - 1) <= 1e-12, "the propensities do not sum to 1"
    assert (expected >= 0).all()
    counts = np.zeros(N_ARMS)
    for i in range(n_draws):
        one = bandit.choose(state, context, OneNumber(draw_number(b"a seed", f"d{i}")))  # type: ignore[arg-type]
        assert one.distribution is not None
        assert one.propensity == one.distribution[one.arm] > 0, "an arm was taken that could not be"
        assert np.array_equal(one.distribution, expected), "the propensities depend on the draw"
        counts[one.arm] += 1
    deviation = np.sqrt(expected * (1 - expected) / n_draws)
    wrong = np.abs(counts / n_draws - expected) > SIGMAS * deviation + 1e-12
    assert not wrong.any(), f"frequencies {counts / n_draws}, propensities {expected}"


@pytest.mark.parametrize("name", BANDITS)
@pytest.mark.parametrize("n_past", [0, 40])
def test_arms_are_drawn_as_often_as_the_propensity_says(name: str, n_past: int) -> None:
    n_draws = 400 if name in SLOW and not LONG else DRAWS
    drill(bandit_of(name), n_past, fixed=BANDITS[name].traits.fixed_arms, n_draws=n_draws)


@dataclass(frozen=True)
class Softened:
    """A wrong bandit: plays the best arm, but logs the softmax of the scores as its propensity."""

    bandit: LinUCB

    def start(self) -> Floats:
        return self.bandit.start()

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return self.bandit.update(state, decision, reward)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        one = self.bandit.choose(state, context, rng)
        scores = context @ self.bandit.theta(state)
        p = np.exp(scores - scores.max())
        p /= p.sum()
        return Decision(one.arm, p[one.arm], one.x, p)


def test_a_softmax_logged_as_the_propensity_of_the_best_arm_is_found() -> None:
    with pytest.raises(AssertionError, match="frequencies"):
        drill(Softened(LinUCB(N_FEATURES)), 40)
