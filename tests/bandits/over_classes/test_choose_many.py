"""Decisions for many users at once have the bits of those for each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.models.item_effects import ArmEffects
from lcb.policies import Softmax

BANDITS = {
    "thompson": GeneralizedThompson,
    "thompson, some at random": lambda models: GeneralizedThompson(models, uniform=0.2),
    "thompson, softmax": lambda models: GeneralizedThompson(models, policy=Softmax(0.5)),
    "posterior mean": PosteriorMean,
    "posterior mean, bonus": lambda models: PosteriorMean(models, bonus=0.5, uniform=0.2),
    "learned classes": LearnedClasses,
}
SHAPES = [(1, 1, 1, 1), (2, 3, 2, 7), (5, 6, 20, 33), (9, 2, 1, 4), (33, 4, 70, 5), (12, 11, 130, 2)]  # N, d, K, users


class OneNumber:
    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


def make_states(bandit: Any, context: Any, n_users: int, rng: np.random.Generator) -> Any:
    """Return the states of users with up to three rewards."""
    states = []
    for _ in range(n_users):
        state = bandit.start()
        for _ in range(int(rng.integers(4))):
            arm = int(rng.integers(len(context)))
            state = bandit.update(state, Decision(arm, 1.0, context[arm]), float(rng.normal()))
        states.append(state)
    return np.array(states)


@pytest.mark.parametrize("make", BANDITS.values(), ids=BANDITS)
@pytest.mark.parametrize("ties", [False, True])
def test_many_decisions_have_the_bits_of_each(make: Any, ties: bool) -> None:
    rng = np.random.default_rng(0)
    for n_classes, d, n_arms, n_users in SHAPES:
        models = LatentModels(
            rng.dirichlet(np.ones(n_classes)), rng.normal(size=(n_classes, d)), np.full(n_classes, 0.3)
        )
        bandit, context = make(models), rng.normal(size=(n_arms, d))
        context = np.repeat(context, 2, axis=0)[:n_arms] if ties else context  # each arm twice
        states, numbers = make_states(bandit, context, n_users, rng), rng.random(n_users)
        effects = ArmEffects(rng.normal(size=n_arms), rng.random(n_arms))
        for more in [(), (effects,)] if bandit.traits.takes_effects else [()]:
            found = bandit.choose_many(states, context, numbers, *more)
            for i, number in enumerate(numbers.tolist()):
                alone = bandit.choose(states[i], context, OneNumber(number), *more)
                assert found.arms[i] == alone.arm
                assert found.distributions[i].tobytes() == alone.distribution.tobytes()
                assert found.distributions[i, found.arms[i]] == alone.propensity
                assert not more or found.means[i].tobytes() == alone.means.tobytes()


@pytest.mark.parametrize("make", [BANDITS["thompson"], BANDITS["posterior mean, bonus"]])
def test_a_state_that_is_not_a_number_is_refused(make: Any) -> None:
    models = LatentModels([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], [0.1, 0.1])
    bandit = make(models)
    states = np.array([bandit.start(), np.full(len(bandit.start()), np.nan)])
    with pytest.raises(InputError, match="NaN"):
        bandit.choose_many(states, np.eye(2), np.array([0.3, 0.6]))
