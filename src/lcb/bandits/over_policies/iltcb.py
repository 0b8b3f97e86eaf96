"""ILOVETOCONBANDITS over a set of policies (Agarwal, Hsu, Kale, Langford, Li & Schapire 2014, ICML; arXiv:1402.0555).

    p_a     = (1 - K mu) sum_h Q_h [a is policy h's arm] + mu
    R_h     = mean of [a is policy h's arm] r / p_a                      of the arms a taken: unbiased for its reward
    mu      = min(1 / (2 K), sqrt(ln(16 t^2 N / delta) / (K t)))         t decisions made

At the end of an epoch (after 1, 2, 4, 8, ... decisions, or after every `epoch`) coordinate descent (Algorithm 2) finds
new weights Q such that

    (OP)    sum_h Q_h b_h <= 2 K                                         b_h = (max R - R_h) / (100 mu)
            mean over contexts of 1 / p_(policy h's arm) <= 2 K + b_h    for every policy h

and the policies with the highest R share 1 - sum Q (Algorithm 1).  Regret grows as sqrt(K T ln(T N / delta)); T need
not be known.  If mu is 1 / (2 K), Q = 0 solves (OP): half uniform, half the best policy so far.

The state keeps, for the last `n_kept` contexts, which policies agreed; the publication keeps all contexts.  R is over
all rewards.  A policy must choose one arm, as `Greedy` does.  Arms that the same policies choose are one choice, played
with equal probability; a policy whose best arms are in several choices takes the one that most policies take, of those
the one that the first policies take.  If contexts differ in size, K of (OP) is the largest so far.

A decision costs O(N K) beside the policies' own cost, an update O(N), an epoch's end O(N n_kept) per step of the
descent, of which there are at most 4 ln(1 / (K mu)) / mu (Theorem 3) and usually some tens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.bandits.over_policies import _policy_set
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context
from lcb.errors import InputError
from lcb.policies import Policies

COUNT, RENEWED, N_ARMS, MU, REWARDED, WEIGHTS = 0, 1, 2, 3, 4, 5  # places in the state
_LEAST_MU = 1e-6


@dataclass(frozen=True)
class ILTCB:
    """Settings only; None for `mu` is the theory's value, None for `epoch` doubling epochs.

    The state is [decisions, decisions at the last epoch's end, most arms, mu, rewards, weights (N), sums (N), kept
    contexts (n_kept, N)], flattened: 655 numbers for 5 policies.

    >>> from lcb.models import LatentModels
    >>> from lcb.policies import ClassPolicies
    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = ILTCB(ClassPolicies(models), mu=0.2), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> decision = bandit.choose(state, np.eye(2), rng)
    >>> decision.arm, decision.distribution
    (1, array([0.5, 0.5]))
    >>> state = bandit.update(bandit.count_decision(state, decision), decision, reward=0.75)
    >>> bandit.weights(state)               # Q = [5.925, 6] / 30 from b = [0.075, 0], the rest to the second policy
    array([0.1975, 0.8025])
    >>> bandit.choose(state, np.eye(2), rng).distribution
    array([0.3185, 0.6815])
    """

    traits: ClassVar[Traits] = Traits(
        "policies", state="5 + (2 + n_kept) N", cost="N K d", needs_reward_range=True, needs_propensity_of_chosen=True
    )

    policies: Policies = field(repr=False)
    delta: float = 0.05
    mu: float | None = None
    epoch: int | None = None
    n_kept: int = 128
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        _policy_set.check_set(self.policies, self.reward_range)
        if not 0 < self.delta < 1:
            raise InputError(f"delta={self.delta}; the probability of a worse regret must lie inside (0, 1)")
        if self.mu is not None and not _LEAST_MU <= self.mu <= 1:
            raise InputError(f"mu={self.mu}; an arm's least probability lies in [{_LEAST_MU:g}, 1 / K], or is None")
        if self.epoch is not None and self.epoch < 1:
            raise InputError(f"epoch={self.epoch}; it is a number of decisions, or None for 1, 2, 4, 8, ...")
        if self.n_kept < 1:
            raise InputError(f"n_kept={self.n_kept}; at least 1 context must be kept")

    def start(self) -> Floats:
        n = self.policies.n_policies
        state = np.zeros(WEIGHTS + 2 * n + self.n_kept * n)
        state[MU] = self.mu or 0.5
        state[WEIGHTS : WEIGHTS + n] = 1 / n
        return state

    def weights(self, state: Floats) -> Floats:
        """Return the probability of each policy in the next decision, (N,)."""
        return self._renew_if_due(state)[WEIGHTS : WEIGHTS + self.policies.n_policies]

    def note(self, n_arms: int) -> str | None:
        """Return a warning if the settings make most decisions uniform, else None."""
        n_policies = self.policies.n_policies
        if self.mu is not None:
            share = min(self.mu * n_arms, 1.0)
            return f"at K {n_arms} mu={self.mu:g} makes {share:.0%} of the decisions uniform" if share >= 0.5 else None
        if n_arms == 1:
            return None
        t = self.epoch or 1
        while math.log(16 * t * t * n_policies / self.delta) / (n_arms * t) >= 1 / (2 * n_arms) ** 2:
            t += self.epoch or t
        return (
            f"at K {n_arms}, N {n_policies} the theory's mu makes half of the first {t} decisions uniform and gives "
            "the other half to the best policy so far"
        )

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        from lcb.bandits.over_policies._iltcb_numba import decide

        context = to_context(context)
        xi, p, advice = self._ask_policies(context), np.empty(len(context)), np.empty(self._n_advice)
        state = self._renew_if_due(state)
        arm = decide(state, xi, 0.5 if self.mu is None else 1.0, rng.random(), p, advice)
        if arm < 0:
            raise _build_spread_error()
        return Decision(arm, p[arm], context[arm], p, advice=advice)

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        from lcb.bandits.over_policies._iltcb_numba import count_decision

        after = self._renew_if_due(state).copy()
        count_decision(after, _policy_set.read_advice(decision, self._n_advice, "ILTCB"))
        return after

    def add_advice(self, decision: Decision, context: Floats) -> Decision:
        """Return a copy of a decision made elsewhere, with the policies' advice."""
        from lcb.bandits.over_policies._iltcb_numba import advise

        advice = np.empty(self._n_advice)
        if not advise(self._ask_policies(context), decision.arm, advice):
            raise _build_spread_error()
        return replace(decision, advice=advice)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        from lcb.bandits.over_policies._iltcb_numba import count_reward

        share, after = _policy_set.scale(reward, self.reward_range, "ILTCB"), state.copy()
        count_reward(after, _policy_set.read_advice(decision, self._n_advice, "ILTCB"), share / decision.propensity)
        return after

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` are updated in place."""
        from lcb.bandits.over_policies._iltcb_numba import serve_iltcb

        arms, (low, high) = np.empty(uniforms.shape, np.int64), self.reward_range
        settings = n_uniform, low, high - low, self.mu or 0.0, self.delta, self.epoch or 0
        for first, advice in _policy_set.iterate_advice(self.policies, contexts):
            if not serve_iltcb(states, advice, rewards, uniforms, arms, first, *settings):
                raise _build_spread_error()
        _policy_set.check_taken(rewards, arms, self.reward_range, "ILTCB")
        return arms

    @property
    def _n_advice(self) -> int:
        return 1 + 2 * self.policies.n_policies

    def _ask_policies(self, context: Floats) -> Floats:
        return np.ascontiguousarray(_policy_set.ask_policies(self.policies, context), np.float64)

    def _renew_if_due(self, state: Floats) -> Floats:
        """Return the state for the next decision, with new weights if the last decision ended an epoch."""
        from lcb.bandits.over_policies._iltcb_numba import is_due, renew

        if not is_due(state, self.epoch or 0):
            return state
        after = state.copy()
        renew(after, self.policies.n_policies, self.mu or 0.0, self.delta)
        return after


def _build_spread_error() -> InputError:
    return InputError(
        "a policy gives arms unequal probabilities, but ILTCB needs policies that choose one arm, as Greedy does; "
        "use such policies, or EXP4 or EXP4.P"
    )
