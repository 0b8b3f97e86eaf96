"""Epoch-Greedy over a set of policies (Langford & Zhang 2007, NIPS, Algorithm 1).

    an epoch    one step explores: a uniform arm; then s steps exploit: the policy with the highest sum
    sum_h      += xi_h(a) r / p_a            of explored arms only, p_a = 1 / K; unbiased for sum_b xi_h(b) r_b

s is 1 / (a bound on the regret of one exploit step), so that exploring and exploiting cost the same:

    schedule="sqrt"     s = floor(c sqrt(n / (K ln N)))                         n explored: the publication's worst case
    schedule="bound"    s = floor(c / min(1, slack, wrong))                     from the samples: its unknown reward gap
                        slack = 4 sqrt(K ln N / (3 n)) (1 + 1 / (2 ln N))       the expected loss is never above this
                        wrong = N exp(-n lead^2 / (4 K (1 + lead / 3)))         the best and the next are `lead` apart

The publication leaves the constants open; those of `bound` come from Bernstein's inequality (a policy's n samples
differ from the best one's by at most K in size and 2 K in variance), with c = 1 for the bound itself.  s is at least 1.
Regret grows as T^(2/3) at worst, as log T with `bound` and a gap.  T need not be known.  Tied policies share
equally.  A decision costs O(N K) beside the policies' own cost, an update O(N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_index
from lcb.bandits.over_policies import _policy_set
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context
from lcb.errors import InputError
from lcb.policies import Policies

SCHEDULES = ("sqrt", "bound")
SINCE, EXPLORED, REWARDED, SUMS = 0, 1, 2, 3  # places in the state
_LONGEST = 2.0**53  # exploit steps; a float cannot count further


@dataclass(frozen=True)
class EpochGreedy:
    """Settings only; the state is [decisions since the last explored, explored, rewards of explored, sums], (3 + N,).

    >>> from lcb.models import LatentModels
    >>> from lcb.policies import ClassPolicies
    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> bandit, rng = EpochGreedy(ClassPolicies(models), c=3.0), np.random.default_rng(0)
    >>> state = bandit.start()
    >>> decision = bandit.choose(state, np.eye(2), rng)                   # explores
    >>> decision.arm, decision.distribution, decision.advice
    (1, array([0.5, 0.5]), array([0., 1.]))
    >>> state = bandit.update(bandit.count_decision(state, decision), decision, reward=0.75)
    >>> state                                                             # 0.75 / (1 / 2) for the second policy
    array([0. , 1. , 1. , 0. , 1.5])
    >>> bandit.n_exploit(state, n_arms=2)                                 # floor(3 sqrt(1 / (2 ln 2))) = floor(2.54)
    2
    >>> bandit.choose(state, np.eye(2), rng).distribution
    array([0., 1.])
    """

    traits: ClassVar[Traits] = Traits("policies", state="3 + N", cost="N K d", needs_reward_range=True)

    policies: Policies = field(repr=False)
    schedule: Literal["sqrt", "bound"] = "sqrt"
    c: float = 1.0
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        _policy_set.check_set(self.policies, self.reward_range)
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule={self.schedule!r}; there are: {', '.join(SCHEDULES)}")
        if not (math.isfinite(self.c) and self.c > 0):
            raise InputError(f"c={self.c}; it must be a positive number (a larger one explores less)")

    def start(self) -> Floats:
        return np.zeros(SUMS + self.policies.n_policies)

    def n_exploit(self, state: Floats, n_arms: int) -> int:
        """Return s, the number of exploit steps after the last explored one."""
        n = state[REWARDED] if self.schedule == "bound" else state[EXPLORED]
        return int(exploit_steps(n, state[SUMS:], n_arms, self.c, self.schedule == "bound"))

    def note(self, n_arms: int) -> str | None:
        """Return a warning if the schedule explores every other step for long, else None."""
        n_policies = self.policies.n_policies
        log_n = math.log(max(n_policies, 2))
        slack = 4 / math.sqrt(3) * (1 + 1 / (2 * log_n)) if self.schedule == "bound" else 1.0
        n = math.ceil((2 * slack / self.c) ** 2 * n_arms * log_n)  # explored when s reaches 2
        if n_policies == 1 or n <= 2 or (self.schedule == "bound" and self.c >= 2):
            return None
        unless = ", unless one policy leads clearly" if self.schedule == "bound" else ""
        return f"at K {n_arms}, N {n_policies} every other one of the first {2 * (n - 1)} decisions is uniform{unless}"

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        xi, uniform, n_arms = _policy_set.ask_policies(self.policies, context), rng.random(), len(context)
        if state[EXPLORED] == 0 or state[SINCE] >= self.n_exploit(state, n_arms):
            decision = Decision.uniform(context, uniform)
            return replace(decision, advice=xi[:, decision.arm].copy())
        sums = state[SUMS:]
        best = (sums == sums.max()).nonzero()[0]
        p = xi[best[0]] if len(best) == 1 else xi[best].mean(axis=0)
        arm = draw_index(p, uniform)[0]
        return Decision(arm, p[arm], context[arm], p)

    def count_decision(self, state: Floats, decision: Decision) -> Floats:
        after = state.copy()
        if decision.at_random:
            after[SINCE] = 0
            after[EXPLORED] += 1
        else:
            after[SINCE] += 1
        return after

    def add_advice(self, decision: Decision, context: Floats) -> Decision:
        """Return a copy of a decision made elsewhere, with each policy's probability of its arm."""
        return replace(decision, advice=_policy_set.ask_policies(self.policies, context)[:, decision.arm].copy())

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        share = _policy_set.scale(reward, self.reward_range, "EpochGreedy")
        if not decision.at_random:
            return state
        after, advice = state.copy(), _policy_set.read_advice(decision, self.policies.n_policies, "EpochGreedy")
        after[REWARDED] += 1
        after[SUMS:] += share / decision.propensity * advice
        return after

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, 3 + N) are updated in place."""
        from lcb.bandits.over_policies._epoch_greedy_numba import serve_epoch_greedy

        arms = np.empty(uniforms.shape, np.int64)
        by_bound, (low, high) = self.schedule == "bound", self.reward_range
        for first, advice in _policy_set.iterate_advice(self.policies, contexts):
            serve_epoch_greedy(
                states, advice, rewards, uniforms, arms, first, n_uniform, low, high - low, self.c, by_bound
            )
        _policy_set.check_taken(rewards, arms, self.reward_range, "EpochGreedy")
        return arms


def exploit_steps(n: float, sums: Floats, n_arms: int, c: float, by_bound: bool) -> float:
    """Return s after n explored samples; `_epoch_greedy_numba` compiles this function too."""
    n_policies = len(sums)
    log_n = math.log(max(n_policies, 2))
    if not by_bound:
        return max(1.0, math.floor(c * math.sqrt(n / (n_arms * log_n))))
    if n == 0:
        return 1.0
    if n_policies == 1:
        return _LONGEST
    best, second = -1.0, -1.0
    for total in sums:
        if total > best:
            best, second = total, best
        elif total > second:
            second = total
    lead = (best - second) / n
    slack = 4 * math.sqrt(n_arms * log_n / (3 * n)) * (1 + 1 / (2 * log_n))
    wrong = n_policies * math.exp(-min(n * lead * lead / (4 * n_arms * (1 + lead / 3)), 700.0))
    return min(max(1.0, math.floor(c / min(1.0, slack, wrong))), _LONGEST)
