"""EXP3 with the policies as its arms (Auer, Cesa-Bianchi, Freund & Schapire 2002, SIAM J. Comput. 32, section 3).

    q_h    = (1 - gamma) w_h + gamma / N                        draw a policy h from q, then an arm from xi_h
    Y_h   += r / q_h                                            at the policy drawn; unbiased for sum_b xi_h(b) r_b
    w_h    = exp(gamma Y_h / N) / sum_g exp(gamma Y_g / N)
    gamma  = min(1, sqrt(N ln N / ((e - 1) T)))                 by Corollary 3.2 with g = T

xi_h(a) is policy h's probability of arm a, so an arm is chosen with probability p_a = sum_h q_h xi_h(a); one uniform
number draws both policy and arm.  For an arm that was drawn uniformly, without a policy, every policy adds Y_h +=
xi_h(a) r / p_a with p_a = 1 / K, which is unbiased too.  r is the reward scaled from the declared range to [0, 1].
With T <= N ln N / (e - 1) gamma is 1 and all policies stay equally likely: `note` warns of it.  A decision costs O(N K)
beside the policies' own cost, an update O(N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import draw_index
from lcb.bandits.over_policies._exponential import GammaSettings, describe_chance, get_horizon, softmax
from lcb.bandits.over_policies._policy_set import check_arms
from lcb.decision import Decision, to_context


@dataclass(frozen=True)
class EXP3(GammaSettings):
    """Settings only; the state is [decisions, Y], (1 + N,).

    `horizon` is T, the number of decisions (None: doubled as needed).  None for `gamma` and the learning rate `eta`
    stands for the theory's values, gamma as above and eta = gamma / N.

    >>> from lcb.policies import ClassPolicies
    >>> from lcb.models import LatentModels
    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = EXP3(ClassPolicies(models), gamma=0.5), np.random.default_rng(0)
    >>> state, context = bandit.start(), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> decision = bandit.choose(state, context, rng)          # the second policy, whose best arm is the second
    >>> decision.arm, decision.distribution, decision.advice
    (1, array([0.5, 0.5, 0. ]), array([0., 2.]))
    >>> bandit.update(bandit.count_decision(state, decision), decision, reward=0.75)
    array([1. , 0. , 1.5])
    """

    def _gamma(self, state: Floats) -> float:
        """Return gamma, the share of decisions in which the policy is drawn uniformly."""
        if self.gamma is not None:
            return self.gamma
        return min(1.0, math.sqrt(self._least / get_horizon(self.horizon, state[0])))

    def weights(self, state: Floats) -> Floats:
        """Return the probability w of each policy before gamma is mixed in, (N,)."""
        return self._weights(state, self._gamma(state))

    def note(self, n_arms: int) -> str | None:
        """Return a warning if the settings draw most policies uniformly, else None; `n_arms` is not used."""
        alike = "draw every policy with the same probability, whatever the rewards"
        if self.gamma is not None:
            return f"gamma=1 makes this {alike}" if self.gamma == 1 else None
        does = "draw any policy with the same probability"
        return describe_chance("gamma", f"N {self.policies.n_policies}", self._least, self.horizon, alike, does)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        check_arms(context)
        uniform, xi, gamma = rng.random(), self.policies(context), self._gamma(state)
        q = self._weights(state, gamma)
        q *= 1 - gamma
        q += gamma / len(q)
        h, rest = draw_index(q, uniform)
        arm, advice, p = draw_index(xi[h], rest)[0], np.zeros(len(q)), q @ xi
        advice[h] = 1 / q[h]
        return Decision(arm, p[arm], context[arm], p, advice=advice)

    def _weights(self, state: Floats, gamma: float) -> Floats:
        return softmax((gamma / self.policies.n_policies if self.eta is None else self.eta) * state[1:])

    @property
    def _least(self) -> float:
        """The largest T at which the theory's gamma is 1."""
        return self.policies.n_policies * math.log(self.policies.n_policies) / (math.e - 1)
