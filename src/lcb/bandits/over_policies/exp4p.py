"""EXP4.P over a set of policies (Beygelzimer et al. 2011, AISTATS; arXiv:1002.4058, Algorithm 1).

    p_a    = (1 - K p_min) sum_h w_h xi_h(a) + p_min            xi_h(a): the share that policy h gives to arm a
    Y_h   += xi_h(a) r / p_a                                    at the arm taken; unbiased for sum_b xi_h(b) r_b
    V_h   += sum_b xi_h(b) / p_b                                bounds the variance of Y_h
    w_h proportional to exp(p_min / 2 (Y_h + V_h sqrt(ln(N / delta) / (K T))))
    p_min  = sqrt(ln N / (K T))

With probability 1 - delta its regret is at most 6 sqrt(K T ln(N / delta)) (Theorem 2), if ln(N / delta) <= K T and one
policy of the set is uniform.  r is the reward scaled from the declared range to [0, 1].  K p_min is at most 1: with T
<= K ln N all decisions are uniform, and `note` warns of it.  A decision costs O(N K) beside the policies' own cost, an
update O(N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import draw_index
from lcb.bandits.over_policies._exponential import add_decision, check_settings, describe_chance, get_horizon, softmax
from lcb.bandits.over_policies._policy_set import check_arms, read_advice, scale
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context
from lcb.errors import InputError
from lcb.policies import Policies


@dataclass(frozen=True)
class EXP4P:
    """Settings only; the state is [decisions, Y, V], (1 + 2 N,).

    `horizon` is T, the number of decisions (None: doubled as needed).  None for `p_min` and the learning rate `eta`
    stands for the theory's values, p_min as above and eta = p_min / 2.

    >>> from lcb.policies import ClassPolicies
    >>> from lcb.models import LatentModels
    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = EXP4P(ClassPolicies(models), p_min=0.125), np.random.default_rng(0)
    >>> state, context = bandit.start(), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    >>> decision = bandit.choose(state, context, rng)          # p = 0.5 * [1/2, 1/2, 0, 0] + 0.125
    >>> decision.arm, decision.distribution, decision.advice
    (1, array([0.375, 0.375, 0.125, 0.125]), array([0.        , 2.66666667, 2.66666667, 2.66666667]))
    >>> bandit.update(bandit.count_decision(state, decision), decision, reward=0.75)
    array([1.        , 0.        , 2.        , 2.66666667, 2.66666667])
    >>> EXP4P(ClassPolicies(models), horizon=2).note(n_arms=4)
    "at K 4, N 2, T 2 the theory's p_min makes this the uniform policy; it needs T above 3"
    """

    traits: ClassVar[Traits] = Traits(
        "policies", state="1 + 2 N", cost="N K d", needs_reward_range=True, needs_propensity_of_every_arm=True
    )

    policies: Policies = field(repr=False)
    reward_range: tuple[float, float] = (0.0, 1.0)
    horizon: int | None = None
    p_min: float | None = None
    delta: float = 0.1
    eta: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.policies, self.reward_range, self.horizon, self.eta, p_min=self.p_min)
        if not 0 < self.delta < 1:
            raise InputError(f"delta={self.delta}; the probability of a worse regret must lie inside (0, 1)")

    def start(self) -> Floats:
        return np.zeros(1 + 2 * self.policies.n_policies)

    def _p_min(self, state: Floats, n_arms: int) -> float:
        """Return p_min, the least probability of an arm."""
        p_min = self.p_min
        if p_min is None:
            p_min = math.sqrt(math.log(self.policies.n_policies) / (n_arms * get_horizon(self.horizon, state[0])))
        return min(p_min, 1 / n_arms)

    def weights(self, state: Floats, n_arms: int) -> Floats:
        """Return the probability of each policy, (N,)."""
        return self._weights(state, n_arms, self._p_min(state, n_arms))

    def note(self, n_arms: int) -> str | None:
        """Return a warning if the settings make most decisions uniform, else None."""
        if self.p_min is not None:
            all_uniform = f"at K {n_arms} p_min={self.p_min:g} makes this the uniform policy"
            return all_uniform if self.p_min * n_arms >= 1 else None
        n_policies = self.policies.n_policies
        least, sizes = n_arms * math.log(n_policies), f"K {n_arms}, N {n_policies}"
        return describe_chance("p_min", sizes, least, self.horizon, "the uniform policy", "uniform")

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        check_arms(context)
        n_arms, uniform, xi = len(context), rng.random(), self.policies(context)
        p_min = self._p_min(state, n_arms)
        p = self._weights(state, n_arms, p_min) @ xi
        p *= 1 - n_arms * p_min
        p += p_min
        arm = draw_index(p, uniform)[0]
        return Decision(arm, p[arm], context[arm], p, advice=_advice(xi, arm, p))

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        return add_decision(state)

    def add_advice(self, decision: Decision, context: Floats) -> Decision:
        """Return a copy of a decision made elsewhere, with the policies' advice."""
        assert decision.distribution is not None
        return replace(decision, advice=_advice(self.policies(context), decision.arm, decision.distribution))

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        share, n = scale(reward, self.reward_range, "EXP4P"), self.policies.n_policies
        advice, after = read_advice(decision, 2 * n, "EXP4P"), state.copy()
        after[1 : n + 1] += share * advice[:n]
        after[n + 1 :] += advice[n:]
        return after

    def _weights(self, state: Floats, n_arms: int, p_min: float) -> Floats:
        n = self.policies.n_policies
        bonus = math.sqrt(math.log(n / self.delta) / (n_arms * get_horizon(self.horizon, state[0])))
        log_weights = bonus * state[n + 1 :]
        log_weights += state[1 : n + 1]
        log_weights *= p_min / 2 if self.eta is None else self.eta
        return softmax(log_weights)


def _advice(xi: Floats, arm: int, p: Floats) -> Floats:
    """Return [xi_h(arm) / p_arm, sum_b xi_h(b) / p_b] for every policy, (2 N,); arms with p_b = 0 count as 0."""
    n = len(xi)
    advice = np.empty(2 * n)
    np.divide(xi[:, arm], p[arm], advice[:n])
    np.matmul(xi, 1 / p if p.all() else np.divide(1, p, out=np.zeros(len(p)), where=p > 0), advice[n:])
    return advice
