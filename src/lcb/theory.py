"""The regret bounds of Zhou & Brunskill 2016 (Table 1, Theorems 1 and 2) and the two schedules of the theorems.

    J, U   users of phase 1 and of phase 2       U~ = J + U       K   arms        d   features
    S, T   interactions of each phase, in TOTAL  T~ = S + T       N   classes     C   contexts
    L      the longest user's interactions                        gap = min ||beta_h - beta_h'||

A bound is what stands inside O(.), its constants read as 1: a growth, to be compared with itself at other sizes.
`TABLE_1` is the paper's table, row by row; `theorem_1` and `theorem_2` are the theorems, phase by phase; `schedule_1`
and `schedule_2` are what they set, as keyword arguments of `Latent`:

>>> schedule_1(n_steps=400, n_needed_by_learner=50).settings()
{'n_uniform_steps': 20, 'n_warmup_users': 50, 'warmup': 'individual', 'train_on': 'uniform'}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import Any, Literal

import numpy as np

from lcb.errors import InputError
from lcb.models import LatentModels

Theorem1Bandit = Literal["exp4p", "exp3"]
RegretType = Literal["problem-independent", "problem-dependent"]

_LETTERS = {
    "n_warmup_users": "J", "n_warmup_steps": "S", "n_users": "U", "n_steps": "T", "longest": "L", "n_arms": "K",
    "n_classes": "N", "n_features": "d", "n_contexts": "C", "gap": "gap",
}  # fmt: skip


_SMALLEST_GAP, _LARGEST = 1e-9, 1e30


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem.  Steps are totals: phase 2 of U users of T_u steps each has T = U T_u.

    >>> sizes = Sizes.of_equal_users(n_users=950, steps_per_user=20, n_arms=20, n_classes=5, n_features=10, gap=0.8)
    >>> sizes.n_steps, sizes.n_warmup_steps, sizes.all_users, sizes.all_steps, sizes.longest
    (19000, 1000, 1000, 20000, 20)
    """

    n_users: int  # U, of phase 2
    n_steps: int  # T, of phase 2
    n_warmup_users: int  # J
    n_warmup_steps: int  # S
    longest: int  # L
    n_arms: int  # K
    n_classes: int  # N
    n_features: int  # d
    gap: float
    n_contexts: float = math.inf  # C

    def __post_init__(self) -> None:
        for name, letter in _LETTERS.items():
            value = getattr(self, name)
            least = 0 if letter in "JS" else 1
            if name not in ("gap", "n_contexts") and value > _LARGEST and not math.isinf(value):
                raise InputError(f"{name} ({letter}) is above {_LARGEST:g}; give a smaller size")
            if name != "gap" and not value >= least:
                raise InputError(f"{name}={value} ({letter}); it must be at least {least}")
            if math.isinf(value) and name not in ("gap", "n_contexts"):
                raise InputError(f"{name}={value} ({letter}); only the gap and the number of contexts can be infinite")
        if not self.gap >= _SMALLEST_GAP:
            raise InputError(
                f"gap={self.gap}, the smallest distance between two classes; it must be at least {_SMALLEST_GAP:g}"
            )
        for users, steps in (("n_users", "n_steps"), ("n_warmup_users", "n_warmup_steps")):
            most = getattr(self, users) * self.longest
            if getattr(self, steps) > most:
                came = f"{steps}={getattr(self, steps)} of {users}={getattr(self, users)}"
                raise InputError(f"{came} who have at most longest={self.longest} each; that makes {most}")

    @classmethod
    def of_equal_users(
        cls,
        *,
        n_users: int,
        steps_per_user: int,
        n_arms: int,
        n_classes: int,
        n_features: int,
        gap: float,
        n_warmup_users: int = 50,
        n_contexts: float = math.inf,
    ) -> Sizes:
        """Every user, of either phase, has T_u = `steps_per_user` = L interactions."""
        return cls(
            n_users, n_users * steps_per_user, n_warmup_users, n_warmup_users * steps_per_user, steps_per_user,
            n_arms, n_classes, n_features, gap, n_contexts,
        )  # fmt: skip

    @property
    def all_users(self) -> int:
        """U~"""
        return self.n_warmup_users + self.n_users

    @property
    def all_steps(self) -> int:
        """T~"""
        return self.n_warmup_steps + self.n_steps

    def to_json(self) -> dict[str, float | None]:
        """By name; None for what is infinite."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: None if math.isinf(value) else value for name, value in values.items()}


def smallest_gap(models: LatentModels) -> float:
    """The smallest Euclidean distance between two classes; infinite for a single class.

    >>> round(smallest_gap(LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[1.0, 1.0])), 3)
    1.414
    """
    return min((float(np.linalg.norm(a - b)) for a, b in combinations(models.beta, 2)), default=math.inf)


# The rows of Table 1


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
        return 0.0  # one arm, one policy, also where contexts have no end
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

TABLE_1: tuple[Bound, ...] = (
    Bound("Population EXP4.P", "sqrt(T~ K ln N)", _GIVEN, _INDEPENDENT, population_exp4p),
    Bound("Individual EXP4.P", "sqrt(U~ T~ K ln N)", _GIVEN, _INDEPENDENT, individual_exp4p),
    Bound(
        "Population LinUCB", "d sqrt(T~ ln(1+T~))", _AVERAGE, _INDEPENDENT, population_linucb,
        ("under its own assumption, one class for all; where there are latent classes it is linear, O(T~)",),
    ),
    Bound("Individual LinUCB", "d sqrt(U~ T~ ln(1+T~))", _TRUE, _INDEPENDENT, individual_linucb),
    Bound(
        "EXP4.P enum-policies", "sqrt(U~ T~ K C ln K)", _TRUE, _INDEPENDENT, enumerated_exp4p,
        ("of all K^C maps from contexts to arms; infinite where contexts are continuous",),
    ),
    Bound(
        "LCB (Theorem 1)", "sqrt(U T min{K,N} ln N)", _TRUE, _INDEPENDENT, lcb_1,
        (
            "as U T >> max(1, d^2/K) J S: K with EXP4.P, N with EXP3; the phases are in `theorem_1`",
            "the learned models' error, a part of 3 sqrt(U T), shrinks as 1/sqrt(u) with the u-th user of phase 2",
        ),
    ),
    Bound(
        "CLUB", "N + U~ sqrt(N d) + U~ d/gap^2 ln(T~+1) + d N sqrt(T~)", _TRUE, _DEPENDENT, club,
        ("a user's regret is linear while T_u is below a constant of the order d/gap^2",),
    ),
    Bound(
        "LCB (Theorem 2)", "3 L^2 + d L sqrt(S) + U K/gap^2 (ln N + ln(T+1))", _TRUE, _DEPENDENT, lcb_2,
        ("Theorem 2 has d L sqrt(S ln(L+1)) where the table has d L sqrt(S); `theorem_2` is the theorem",),
    ),
)  # fmt: skip


# The theorems


@dataclass(frozen=True)
class Phases:
    """A theorem's bound, phase by phase."""

    phase_1: float
    phase_2: float

    @property
    def total(self) -> float:
        return self.phase_1 + self.phase_2


def theorem_1(sizes: Sizes, bandit: Theorem1Bandit = "exp4p") -> Phases:
    """Theorem 1, no term dropped; n is K for EXP4.P and N for EXP3.

        phase 1   sqrt(J S) + d sqrt(J S ln(1+S))
        phase 2   3 sqrt(U T) + sqrt(U T n ln N)

    >>> sizes = Sizes.of_equal_users(n_users=100, steps_per_user=400, n_arms=4, n_classes=2, n_features=3, gap=1,
    ...                              n_warmup_users=25)
    >>> round(theorem_1(sizes, "exp4p").phase_2)  # 3 * 2000 + 2000 * sqrt(4 ln 2)
    9330
    """
    js, ut = sizes.n_warmup_users * sizes.n_warmup_steps, sizes.n_users * sizes.n_steps
    warmup = math.sqrt(js) + sizes.n_features * math.sqrt(js * math.log1p(sizes.n_warmup_steps))
    return Phases(warmup, 3 * math.sqrt(ut) + math.sqrt(ut * _width(sizes, bandit) * math.log(sizes.n_classes)))


def theorem_1_margin(sizes: Sizes, bandit: Theorem1Bandit = "exp4p") -> float:
    """How many times U T is max(1, d^2/n) J S: Theorem 1's last line, without phase 1, wants many.

    The condition leaves out that phase 1 has an ln(1+S) and phase 2 an ln N under their roots.
    """
    wanted = max(1.0, sizes.n_features**2 / _width(sizes, bandit)) * sizes.n_warmup_users * sizes.n_warmup_steps
    return sizes.n_users * sizes.n_steps / wanted if wanted else math.inf


def theorem_1_applies(sizes: Sizes, bandit: Theorem1Bandit = "exp4p", times: float = 10.0) -> bool:
    """Whether U T >> max(1, d^2/n) J S, with >> read as `times` as large."""
    return theorem_1_margin(sizes, bandit) >= times


def shrinking_term(steps_per_user: float, place: int) -> float:
    """What the proof of Theorem 1 bounds by 3 sqrt(T_u), for the user at `place` 1, 2, ... of phase 2.

        3 sqrt(T_u) / sqrt(1 + (place - 1) / sqrt(T_u))

    It shrinks as 1/sqrt(place), as the paper's footnote says.  Two thirds of it, the error of the learned models, do so
    by the proof; the sqrt(T_u) uniform steps are a user's own and stay.
    """
    if not (steps_per_user >= 1 and place >= 1):
        raise InputError(f"steps_per_user={steps_per_user}, place={place}; both must be at least 1")
    return 3 * math.sqrt(steps_per_user) / math.sqrt(1 + (place - 1) / math.sqrt(steps_per_user))


def theorem_2(sizes: Sizes) -> Phases:
    """Theorem 2, with the ln(L+1) that Table 1 drops.

        phase 1   3 L^2 + d L sqrt(S ln(L+1))
        phase 2   U K/gap^2 (ln N + ln(T+1))

    The proof has ln(N (T_u+1)) for each user of phase 2, which is smaller; its models' error, 2 T_u/sqrt(u-1), is at
    most 2 a user.
    """
    longest, per_user = sizes.longest, math.log(sizes.n_classes) + math.log1p(sizes.n_steps)
    linucb = sizes.n_features * longest * math.sqrt(sizes.n_warmup_steps * math.log1p(longest))
    return Phases(3 * longest**2 + linucb, sizes.n_users * sizes.n_arms / sizes.gap**2 * per_user)


def _width(sizes: Sizes, bandit: Theorem1Bandit) -> int:
    if bandit not in ("exp4p", "exp3"):
        raise InputError(f"bandit={bandit!r}; Theorem 1 has 'exp4p' and 'exp3', Theorem 2 Epoch-Greedy")
    return sizes.n_arms if bandit == "exp4p" else sizes.n_classes


# The schedules


@dataclass(frozen=True)
class Schedule:
    """What a theorem sets: tau, J and the bandit B; `applied` says which J applied, in words."""

    n_uniform_steps: int  # tau
    n_warmup_users: int  # J
    bandit: Literal["exp4p", "exp3", "epoch-greedy"]
    applied: str

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `Latent`: one LinUCB per user in phase 1, trained on the uniform steps alone."""
        return {
            "n_uniform_steps": self.n_uniform_steps,
            "n_warmup_users": self.n_warmup_users,
            "warmup": "individual",
            "train_on": "uniform",
        }


def schedule_1(
    n_steps: int, longest: int | None = None, n_needed_by_learner: int = 1, bandit: Theorem1Bandit = "exp4p"
) -> Schedule:
    """Theorem 1: tau = sqrt(T_u) and J = sqrt(L), both rounded up, and EXP4.P or EXP3.

    `n_steps` is a user's T_u, `longest` L (T_u when not given).  Phase 1 lasts the larger of J and what the learner
    needs.

    >>> schedule_1(n_steps=20, n_needed_by_learner=50).applied
    'J = 50 users, as the learner needs (sqrt(L) would be 5)'
    """
    longest = n_steps if longest is None else longest
    if not 1 <= n_steps <= longest:
        raise InputError(f"n_steps={n_steps}, longest={longest}; a user has from 1 to `longest` steps")
    if bandit not in ("exp4p", "exp3"):
        raise InputError(f"bandit={bandit!r}; Theorem 1 has 'exp4p' and 'exp3', Theorem 2 Epoch-Greedy")
    n_warmup_users, applied = _phase_1(_root(longest), "sqrt(L)", n_needed_by_learner)
    return Schedule(_root(n_steps), n_warmup_users, bandit, applied)


def schedule_2(longest: int, n_needed_by_learner: int = 1) -> Schedule:
    """Theorem 2: tau = 3 and J = L^2, and Epoch-Greedy.

    >>> schedule_2(longest=20, n_needed_by_learner=50)
    Schedule(n_uniform_steps=3, n_warmup_users=400, bandit='epoch-greedy',
             applied='J = L^2 = 400 users (the learner needs 50)')
    """
    if not longest >= 1:
        raise InputError(f"longest={longest}; a user has at least 1 step")
    n_warmup_users, applied = _phase_1(int(longest) ** 2, "L^2", n_needed_by_learner)
    return Schedule(3, n_warmup_users, "epoch-greedy", applied)


def _phase_1(of_theorem: int, formula: str, needed: int) -> tuple[int, str]:
    if not needed >= 1:
        raise InputError(f"n_needed_by_learner={needed}; a learner needs at least 1 user")
    if needed > of_theorem:
        return needed, f"J = {needed} users, as the learner needs ({formula} would be {of_theorem})"
    return of_theorem, f"J = {formula} = {of_theorem} users (the learner needs {needed})"


def _root(n: int) -> int:
    """The square root, rounded up, exact for whole numbers."""
    return math.isqrt(int(n) - 1) + 1
