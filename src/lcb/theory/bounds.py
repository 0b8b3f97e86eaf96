"""Table 1 of the paper, row by row.

A bound is the expression inside O(.), with all constants taken as 1.  It shows how regret grows: compare a
bound with itself at other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from lcb.theory.sizes import Sizes
from lcb.theory.theorems import theorem_2

RegretType = Literal["problem-independent", "problem-dependent"]


@dataclass(frozen=True)
class Bound:
    """A row of Table 1; `growth(sizes)` is its value with all constants 1."""

    algorithm: str
    formula: str
    against: str  # the policy its regret is measured against
    type: RegretType
    growth: Callable[[Sizes], float] = field(repr=False)
    notes: tuple[str, ...] = ()


def population_exp4p(sizes: Sizes) -> float:
    return math.sqrt(sizes.all_steps * sizes.n_arms * math.log(sizes.n_classes))


def individual_exp4p(sizes: Sizes) -> float:
    return math.sqrt(sizes.all_users * sizes.all_steps * sizes.n_arms * math.log(sizes.n_classes))


def population_linucb(sizes: Sizes) -> float:
    return sizes.n_features * math.sqrt(sizes.all_steps * math.log1p(sizes.all_steps))


def individual_linucb(sizes: Sizes) -> float:
    return sizes.n_features * math.sqrt(sizes.all_users * sizes.all_steps * math.log1p(sizes.all_steps))


def enumerated_exp4p(sizes: Sizes) -> float:
    if sizes.n_arms == 1:
        return 0.0  # a single policy, also with infinitely many contexts
    per_context = sizes.n_arms * sizes.n_contexts * math.log(sizes.n_arms)
    return math.sqrt(sizes.all_users * sizes.all_steps * per_context)


def lcb_1(sizes: Sizes) -> float:
    fewer = min(sizes.n_arms, sizes.n_classes)
    return math.sqrt(sizes.n_users * sizes.n_steps * fewer * math.log(sizes.n_classes))


def club(sizes: Sizes) -> float:
    n, d, users = sizes.n_classes, sizes.n_features, sizes.all_users
    log_steps = math.log1p(sizes.all_steps)
    return n + users * math.sqrt(n * d) + users * d / sizes.gap**2 * log_steps + d * n * math.sqrt(sizes.all_steps)


def lcb_2(sizes: Sizes) -> float:
    warmup = 3 * sizes.longest**2 + sizes.n_features * sizes.longest * math.sqrt(sizes.n_warmup_steps)
    return warmup + theorem_2(sizes).phase_2


_GIVEN, _AVERAGE, _TRUE = (
    "best policy in pre-defined policy set",
    "best average policy of all users",
    "true policy of each user",
)
_INDEPENDENT: RegretType = "problem-independent"
_DEPENDENT: RegretType = "problem-dependent"

_POPULATION_LINUCB = ("assumes one class for all users; with several latent classes its regret is linear, O(T~)",)
_ENUMERATED = ("over all K^C maps from contexts to arms; infinite if contexts are continuous",)
_LCB_1 = (
    "if U T >> max(1, d^2/K) J S: K with EXP4.P, N with EXP3; `theorem_1` has the bound phase by phase",
    "the error of the learned models, a part of 3 sqrt(U T), shrinks as 1/sqrt(u) with the u-th user of phase 2",
)
_CLUB = ("a user's regret is linear while T_u is below a constant of the order d/gap^2",)
_LCB_2 = ("Theorem 2 has d L sqrt(S ln(L+1)), the table d L sqrt(S); see `theorem_2`",)
_CLUB_FORMULA = "N + U~ sqrt(N d) + U~ d/gap^2 ln(T~+1) + d N sqrt(T~)"
_LCB_2_FORMULA = "3 L^2 + d L sqrt(S) + U K/gap^2 (ln N + ln(T+1))"

TABLE_1: tuple[Bound, ...] = (
    Bound("Population EXP4.P", "sqrt(T~ K ln N)", _GIVEN, _INDEPENDENT, population_exp4p),
    Bound("Individual EXP4.P", "sqrt(U~ T~ K ln N)", _GIVEN, _INDEPENDENT, individual_exp4p),
    Bound("Population LinUCB", "d sqrt(T~ ln(1+T~))", _AVERAGE, _INDEPENDENT, population_linucb, _POPULATION_LINUCB),
    Bound("Individual LinUCB", "d sqrt(U~ T~ ln(1+T~))", _TRUE, _INDEPENDENT, individual_linucb),
    Bound("EXP4.P enum-policies", "sqrt(U~ T~ K C ln K)", _TRUE, _INDEPENDENT, enumerated_exp4p, _ENUMERATED),
    Bound("LCB (Theorem 1)", "sqrt(U T min{K,N} ln N)", _TRUE, _INDEPENDENT, lcb_1, _LCB_1),
    Bound("CLUB", _CLUB_FORMULA, _TRUE, _DEPENDENT, club, _CLUB),
    Bound("LCB (Theorem 2)", _LCB_2_FORMULA, _TRUE, _DEPENDENT, lcb_2, _LCB_2),
)
