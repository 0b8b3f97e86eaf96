"""Compiled Epoch-Greedy for many users at once; makes the same choices as `EpochGreedy`."""

from __future__ import annotations

import numpy as np

from lcb.bandits._kernels_numba import pick
from lcb.bandits.over_policies import epoch_greedy
from lcb.bandits.over_policies.epoch_greedy import EXPLORED, REWARDED, SINCE, SUMS
from lcb.runtime.compiled import EXACT, njit

exploit_steps = njit(**EXACT)(epoch_greedy.exploit_steps)


@njit(**EXACT)
def serve_epoch_greedy(  # type: ignore[no-untyped-def]
    states, advice, rewards, uniforms, arms, first, n_uniform, low, width, c, by_bound
):
    """Run the steps of `advice` (B, steps, N, K), from `first` on; updates `states` and fills `arms` (B, T)."""
    n_users, n_steps, n_policies, n_arms = advice.shape
    p = np.empty(n_arms)
    for u in range(n_users):
        state = states[u]
        sums = state[SUMS:]
        for i in range(n_steps):
            t = first + i
            explores = t < n_uniform or state[EXPLORED] == 0
            if not explores:
                n = state[REWARDED] if by_bound else state[EXPLORED]
                explores = state[SINCE] >= exploit_steps(n, sums, n_arms, c, by_bound)
            if explores:
                arm = int(uniforms[u, t] * n_arms)
                arms[u, t] = arm
                state[SINCE] = 0
                state[EXPLORED] += 1
                state[REWARDED] += 1
                share = (rewards[u, t, arm] - low) / width * n_arms
                for h in range(n_policies):
                    sums[h] += share * advice[u, i, h, arm]
                continue
            best = sums.max()
            p[:] = 0.0
            for h in range(n_policies):
                if sums[h] == best:
                    p += advice[u, i, h]
            arms[u, t] = pick(p, uniforms[u, t] * p.sum())
            state[SINCE] += 1
