"""Shared by the tests of Epoch-Greedy and ILOVETOCONBANDITS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcb.bandits.bandit import serve
from lcb.models import LatentModels
from lcb.policies import ClassPolicies

TWO = ClassPolicies(LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[1.0, 1.0]))


@dataclass(frozen=True)
class Cyclic:
    """A set of policies without classes: policy h takes the arm (first feature of the first arm + h) mod K."""

    n_policies: int

    def __call__(self, context):
        return np.eye(len(context))[(int(context[0, 0]) + np.arange(self.n_policies)) % len(context)]


class Fixed:
    """A generator whose next number is known."""

    def __init__(self, uniform):
        self.uniform = uniform

    def random(self):
        return self.uniform


def runs(bandit, n_users, n_steps, gap, n_arms=2, seed=0):
    """Cumulative regret (users, steps): the first policy's arm pays 0.5 + gap / 2, all others 0.5 - gap / 2."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n_users, n_steps, n_arms, 2))
    x[:, :, 0, 0] = x[:, :, 1, 1] = 1
    swapped = rng.random((n_users, n_steps)) < 0.5
    x[swapped] = x[swapped][:, ::-1]
    means = 0.5 - gap / 2 + gap * x[..., 0]
    rewards = (rng.random(means.shape) < means).astype(float)
    _, arms = serve(bandit, np.tile(bandit.start(), (n_users, 1)), x, rewards, rng)
    return (0.5 + gap / 2 - np.take_along_axis(means, arms[..., None], 2)[..., 0]).cumsum(axis=1)


def check_every_distribution(bandit, contexts, uniforms, shares, expected):
    """Decide with these uniform numbers; fail where a distribution is not the expected one; the last state."""
    state = bandit.start()
    for t, context in enumerate(contexts):
        decision = bandit.choose(state, context, Fixed(uniforms[t]))
        np.testing.assert_allclose(decision.distribution, expected[t], atol=1e-12, err_msg=f"step {t}")
        state = bandit.update(bandit.count_decision(state, decision), decision, 4 * shares[t, decision.arm] - 1)
    return state
