"""EXP4 over a set of policies (Auer, Cesa-Bianchi, Freund & Schapire 2002, SIAM J. Comput. 32, section 7).

    p_a    = (1 - gamma) sum_h w_h xi_h(a) + gamma / K          xi_h(a): the share that policy h gives to arm a
    Y_h   += xi_h(a) r / p_a                                    at the arm taken; unbiased for sum_b xi_h(b) r_b
    w_h    = exp(gamma Y_h / K) / sum_g exp(gamma Y_g / K)
    gamma  = min(1, sqrt(K ln N / ((e - 1) T)))                 by Theorem 7.1 (and Corollary 3.2) with g = T

r is the reward scaled from the declared range to [0, 1].  The theorem needs one policy of the set to be uniform.  With
T <= K ln N / (e - 1) gamma is 1 and all decisions are uniform: `note` warns of it.  A decision costs O(N K) beside the
policies' own cost, an update O(N).
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
class EXP4(GammaSettings):
    """Settings only; the state is [decisions, Y], (1 + N,).

    `horizon` is T, the number of decisions (None: doubled as needed).  None for `gamma` and the learning rate `eta`
    stands for the theory's values, gamma as above and eta = gamma / K.

    >>> from lcb.policies import ClassPolicies
    >>> from lcb.models import LatentModels
    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = EXP4(ClassPolicies(models), gamma=0.5), np.random.default_rng(0)
    >>> state, context = bandit.start(), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
    >>> decision = bandit.choose(state, context, rng)          # p = 0.5 * [1/2, 1/2, 0, 0] + 0.5 / 4
    >>> decision.arm, decision.distribution, decision.advice
    (1, array([0.375, 0.375, 0.125, 0.125]), array([0.        , 2.66666667]))
    >>> bandit.update(bandit.count_decision(state, decision), decision, reward=0.75)
    array([1., 0., 2.])
    """

    def _gamma(self, state: Floats, n_arms: int) -> float:
        """Return gamma, the share of uniform decisions."""
        if self.gamma is not None:
            return self.gamma
        return min(1.0, math.sqrt(self._least(n_arms) / get_horizon(self.horizon, state[0])))

    def weights(self, state: Floats, n_arms: int) -> Floats:
        """Return the probability of each policy, (N,)."""
        return self._weights(state, self._gamma(state, n_arms) / n_arms)

    def note(self, n_arms: int) -> str | None:
        """Return a warning if the settings make most decisions uniform, else None."""
        if self.gamma is not None:
            return "gamma=1 makes this the uniform policy" if self.gamma == 1 else None
        sizes = f"K {n_arms}, N {self.policies.n_policies}"
        return describe_chance("gamma", sizes, self._least(n_arms), self.horizon, "the uniform policy", "uniform")

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        check_arms(context)
        n_arms, uniform, xi = len(context), rng.random(), self.policies(context)
        gamma = self._gamma(state, n_arms)
        p = self._weights(state, gamma / n_arms) @ xi
        p *= 1 - gamma
        p += gamma / n_arms
        arm = draw_index(p, uniform)[0]
        return Decision(arm, p[arm], context[arm], p, advice=xi[:, arm] / p[arm])

    def _weights(self, state: Floats, rate: float) -> Floats:
        return softmax((rate if self.eta is None else self.eta) * state[1:])

    def _least(self, n_arms: int) -> float:
        """Return the largest T at which the theory's gamma is 1."""
        return n_arms * math.log(self.policies.n_policies) / (math.e - 1)
