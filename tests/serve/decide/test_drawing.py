"""The draw of one arm with a uniform share, held bit for bit to its definition: logs are verified by drawing again."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.bandit import add_advice
from lcb.bandits.registry import BANDITS, build_bandit
from lcb.decision import Decision, rescale
from lcb.models import LatentModels
from lcb.serve.decide.drawing import OneNumber, choose_arm

SHARE = 0.25


@pytest.mark.parametrize("name", BANDITS)
def test_the_mixture_is_the_bandits_distribution_and_the_uniform_one(name):
    rng = np.random.default_rng(5)
    models = LatentModels(np.full(3, 1 / 3), rng.normal(size=(3, 4)), np.full(3, 0.5))
    models = models.with_covariance(np.tile(np.eye(4), (3, 1, 1)))
    bandit = build_bandit(name, {}, models=models, n_features=4, reward_range=(0.0, 1.0))
    context = np.eye(4) if bandit.traits.fixed_arms else rng.normal(size=(6, 4))
    state, n_arms = bandit.start(), len(context)
    weighs = bandit.traits.needs_propensity_of_chosen or bandit.traits.needs_propensity_of_every_arm
    for number in (0.0, 0.1, 0.2499, 0.25, 0.4, 0.7, 0.999):
        own = bandit.choose(state, context, OneNumber(rescale(number, SHARE)))
        p = (1 - SHARE) * own.distribution + SHARE / n_arms
        arm = int(number / SHARE * n_arms) if number < SHARE else own.arm
        wanted = Decision(arm, p[arm], context[arm], p, own.at_random)
        if number < SHARE or weighs:
            wanted = add_advice(bandit, wanted, context)
        advice = wanted.advice if number < SHARE or weighs else own.advice
        got = choose_arm(bandit, state, context, SHARE, number)
        assert (got.arm, got.propensity, got.at_random) == (arm, p[arm], wanted.at_random)
        assert got.x.tobytes() == context[arm].tobytes()
        assert got.distribution.tobytes() == p.tobytes()
        assert (got.advice is None) == (advice is None)
        assert advice is None or got.advice.tobytes() == advice.tobytes()
