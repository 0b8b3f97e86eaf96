"""The schedules of the theorems, as keyword arguments of `Latent`.

>>> schedule_1(n_steps=400, n_needed_by_learner=50).settings()
{'n_uniform_steps': 20, 'n_warmup_users': 50, 'warmup': 'individual', 'train_on': 'uniform'}
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from lcb.errors import InputError
from lcb.theory.theorems import Theorem1Bandit


@dataclass(frozen=True)
class TheoremSchedule:
    """The tau, J and bandit B of a theorem; `applied` explains how J was chosen."""

    n_uniform_steps: int  # tau
    n_warmup_users: int  # J
    bandit: Literal["exp4p", "exp3", "epoch-greedy"]
    applied: str

    def settings(self) -> dict[str, Any]:
        """Return keyword arguments of `Latent`: one LinUCB per user in phase 1, learning from uniform steps alone."""
        return {
            "n_uniform_steps": self.n_uniform_steps,
            "n_warmup_users": self.n_warmup_users,
            "warmup": "individual",
            "train_on": "uniform",
        }


def schedule_1(
    n_steps: int, longest: int | None = None, n_needed_by_learner: int = 1, bandit: Theorem1Bandit = "exp4p"
) -> TheoremSchedule:
    """Return the schedule of Theorem 1: tau = sqrt(T_u) and J = sqrt(L), both rounded up, with EXP4.P or EXP3.

    `n_steps` is a user's T_u, `longest` is L (default T_u).  J is at least `n_needed_by_learner`.

    >>> schedule_1(n_steps=20, n_needed_by_learner=50).applied
    'J = 50 users, as the learner needs (sqrt(L) would be 5)'
    """
    longest = n_steps if longest is None else longest
    if not 1 <= n_steps <= longest:
        raise InputError(f"n_steps={n_steps}, longest={longest}; a user has from 1 to `longest` steps")
    if bandit not in ("exp4p", "exp3"):
        raise InputError(f"bandit={bandit!r}; Theorem 1 has 'exp4p' and 'exp3', Theorem 2 Epoch-Greedy")
    n_warmup_users, applied = _choose_n_warmup_users(_round_up_root(longest), "sqrt(L)", n_needed_by_learner)
    return TheoremSchedule(_round_up_root(n_steps), n_warmup_users, bandit, applied)


def schedule_2(longest: int, n_needed_by_learner: int = 1) -> TheoremSchedule:
    """Return the schedule of Theorem 2: tau = 3 and J = L^2, with Epoch-Greedy.

    >>> schedule_2(longest=20, n_needed_by_learner=50)
    TheoremSchedule(n_uniform_steps=3, n_warmup_users=400, bandit='epoch-greedy',
                    applied='J = L^2 = 400 users (the learner needs 50)')
    """
    if not longest >= 1:
        raise InputError(f"longest={longest}; a user has at least 1 step")
    n_warmup_users, applied = _choose_n_warmup_users(int(longest) ** 2, "L^2", n_needed_by_learner)
    return TheoremSchedule(3, n_warmup_users, "epoch-greedy", applied)


def _choose_n_warmup_users(of_theorem: int, formula: str, needed: int) -> tuple[int, str]:
    if not needed >= 1:
        raise InputError(f"n_needed_by_learner={needed}; a learner needs at least 1 user")
    if needed > of_theorem:
        return needed, f"J = {needed} users, as the learner needs ({formula} would be {of_theorem})"
    return of_theorem, f"J = {formula} = {of_theorem} users (the learner needs {needed})"


def _round_up_root(n: int) -> int:
    """Return the square root rounded up, exact for integers."""
    return math.isqrt(int(n) - 1) + 1
