"""Problems small enough to be worked by hand, for the bandits over any set of policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from lcb.bandits.bandit import choose_uniformly


@dataclass(frozen=True)
class Fixed:
    """Policies that say the same (N, K) in every context."""

    table: tuple[tuple[float, ...], ...]

    @property
    def n_policies(self):
        return len(self.table)

    def __call__(self, context):
        return np.array(self.table)


@dataclass
class Says:
    """A generator whose next number is known; a second number is one too many."""

    number: float | None

    def random(self):
        number, self.number = self.number, None
        assert number is not None, "more than one uniform number for a decision"
        return number


MIXED = Fixed(((0.5, 0.25, 0.0, 0.25), (0.0, 0.0, 1.0, 0.0)))
CONTEXT = np.arange(8.0).reshape(4, 2)


def expected_step(bandit, state, rewards, n_cells=64, at_random=False):
    """E[update(state)] - state over all that can happen, exactly.

    Every probability must be a multiple of 1 / n_cells: then a uniform number from the middle of each of n_cells cells
    meets every outcome as often as its probability says.
    """
    total = np.zeros_like(state)
    for i in range(n_cells):
        uniform = (i + 0.5) / n_cells
        if at_random:
            decision = choose_uniformly(bandit, CONTEXT, uniform)
        else:
            decision = bandit.choose(state, CONTEXT, Says(uniform))
        total += bandit.update(state, decision, rewards[decision.arm]) - state
    return total / n_cells


def play_random_rewards(bandit, n_steps, rng):
    """Contexts of 4 arms and 2 features, rewards from -2 to 6 whatever is chosen, and the decisions."""
    contexts, state, decisions = rng.standard_normal((n_steps, 4, 2)), bandit.start(), []
    rewards = rng.uniform(-2, 6, n_steps)
    for context, reward in zip(contexts, rewards, strict=True):
        decisions.append(bandit.choose(state, context, rng))
        state = bandit.update(bandit.count_decision(state, decisions[-1]), decisions[-1], reward)
    return contexts, rewards, decisions


MEANS = np.array([0.2, 0.8, 0.4])
CONSTANT = Fixed(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))  # of three arms, each policy takes one


def regret_at(bandit, checkpoints, seed):
    """Expected regret against the best policy of CONSTANT after so many 0/1 rewards."""
    rng, state, context = np.random.default_rng(seed), bandit.start(), np.eye(3)
    regret, kept = 0.0, []
    for t in range(1, max(checkpoints) + 1):
        decision = bandit.choose(state, context, rng)
        regret += MEANS.max() - decision.distribution @ MEANS
        reward = float(rng.random() < MEANS[decision.arm])
        state = bandit.update(bandit.count_decision(state, decision), decision, reward)
        if t in checkpoints:
            kept.append(regret)
    return kept


def steepest_slope(times, regrets):
    """The upper end of a 99.9 % interval, over seeds, of the log-log slope of `regrets` (seeds, times)."""
    slopes = np.polyfit(np.log(times), np.log(np.transpose(regrets)), 1)[0]
    return slopes.mean() + student.ppf(0.9995, len(slopes) - 1) * slopes.std(ddof=1) / np.sqrt(len(slopes))
