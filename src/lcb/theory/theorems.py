"""The bounds of Theorems 1 and 2 by phase, and the bound on the models' error in the proof of Theorem 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lcb.errors import InputError
from lcb.theory.sizes import Sizes

Theorem1Bandit = Literal["exp4p", "exp3"]


@dataclass(frozen=True)
class Phases:
    """The bound of a theorem for each phase."""

    phase_1: float
    phase_2: float

    @property
    def total(self) -> float:
        return self.phase_1 + self.phase_2


def theorem_1(sizes: Sizes, bandit: Theorem1Bandit = "exp4p") -> Phases:
    """Return the bound of Theorem 1 with all its terms; n is K for EXP4.P and N for EXP3.

        phase 1   sqrt(J S) + d sqrt(J S ln(1+S))
        phase 2   3 sqrt(U T) + sqrt(U T n ln N)

    >>> sizes = Sizes.of_equal_users(n_users=100, steps_per_user=400, n_arms=4, n_classes=2, n_features=3, gap=1,
    ...                              n_warmup_users=25)
    >>> round(theorem_1(sizes, "exp4p").phase_2)  # 3 * 2000 + 2000 * sqrt(4 ln 2)
    9330
    """
    js, ut = sizes.n_warmup_users * sizes.n_warmup_steps, sizes.n_users * sizes.n_steps
    warmup = math.sqrt(js) + sizes.n_features * math.sqrt(js * math.log1p(sizes.n_warmup_steps))
    return Phases(warmup, 3 * math.sqrt(ut) + math.sqrt(ut * _n_choices(sizes, bandit) * math.log(sizes.n_classes)))


def theorem_1_margin(sizes: Sizes, bandit: Theorem1Bandit = "exp4p") -> float:
    """Return U T / (max(1, d^2/n) J S), which must be large for the last line of Theorem 1, where phase 1 is dropped.

    The condition ignores the ln(1+S) of phase 1 and the ln N of phase 2.
    """
    wanted = max(1.0, sizes.n_features**2 / _n_choices(sizes, bandit)) * sizes.n_warmup_users * sizes.n_warmup_steps
    return sizes.n_users * sizes.n_steps / wanted if wanted else math.inf


def theorem_2(sizes: Sizes) -> Phases:
    """Return the bound of Theorem 2, with the ln(L+1) that Table 1 drops.

        phase 1   3 L^2 + d L sqrt(S ln(L+1))
        phase 2   U K/gap^2 (ln N + ln(T+1))

    The proof has ln(N (T_u+1)) for each user of phase 2, which is smaller; the models' error in it, 2 T_u/sqrt(u-1), is
    at most 2 per user.
    """
    longest, per_user = sizes.longest, math.log(sizes.n_classes) + math.log1p(sizes.n_steps)
    linucb = sizes.n_features * longest * math.sqrt(sizes.n_warmup_steps * math.log1p(longest))
    return Phases(3 * longest**2 + linucb, sizes.n_users * sizes.n_arms / sizes.gap**2 * per_user)


def _n_choices(sizes: Sizes, bandit: Theorem1Bandit) -> int:
    if bandit not in ("exp4p", "exp3"):
        raise InputError(f"bandit={bandit!r}; Theorem 1 has 'exp4p' and 'exp3', Theorem 2 Epoch-Greedy")
    return sizes.n_arms if bandit == "exp4p" else sizes.n_classes
