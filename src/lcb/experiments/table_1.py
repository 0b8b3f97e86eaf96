"""Table 1: the expected regret bounds of LCB and its baselines, as numbers.

The sizes are those of the paper's simulation unless others are given.  Constants inside O(.) are taken as 1, so a
number shows how a bound grows, not the regret of an algorithm: several bounds exceed the number of interactions, but
regret cannot if rewards are in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lcb import charts
from lcb.evaluate.worlds.paper import paper_classes
from lcb.experiments.claims import Claim
from lcb.progress import Progress, silent
from lcb.theory import (
    TABLE_1,
    Bound,
    Phases,
    Sizes,
    TheoremSchedule,
    schedule_1,
    schedule_2,
    smallest_gap,
    theorem_1,
    theorem_1_margin,
    theorem_2,
)

N_USERS, N_WARMUP_USERS, STEPS_PER_USER, N_ARMS = 1000, 50, 20, 20
_SHORT = {
    "best policy in pre-defined policy set": "best given policy",
    "best average policy of all users": "best average policy",
    "true policy of each user": "each user's true policy",
}


@dataclass(frozen=True)
class Table1:
    sizes: Sizes
    rows: tuple[tuple[Bound, float], ...]


def paper_sizes() -> Sizes:
    """Return the sizes of the simulation: 1000 users of 20 steps, 50 of them in phase 1, infinitely many contexts."""
    classes = paper_classes()
    return Sizes.of_equal_users(
        n_users=N_USERS - N_WARMUP_USERS,
        n_warmup_users=N_WARMUP_USERS,
        steps_per_user=STEPS_PER_USER,
        n_arms=N_ARMS,
        n_classes=classes.n_classes,
        n_features=classes.n_features,
        gap=smallest_gap(classes),
    )


def run(n_runs: int = 1, seed: int = 0, progress: Progress = silent, sizes: Sizes | None = None) -> Table1:
    """Compute the eight rows at these sizes; nothing is random."""
    sizes = paper_sizes() if sizes is None else sizes
    return Table1(sizes, tuple((bound, bound.growth(sizes)) for bound in TABLE_1))


def draw(table: Table1) -> Any:
    """Draw the finite rows above 0 on a log axis, with a rule at the number of interactions."""
    drawn = [(bound.algorithm, value) for bound, value in table.rows if 0 < value < math.inf]
    title, x_title = "Regret bounds of Table 1, constants taken as 1", "growth of the bound (dashed: interactions, T~)"
    return charts.bars(drawn, x_title, title=title, reference=float(table.sizes.all_steps), log=True)


def to_json(table: Table1) -> dict[str, Any]:
    sizes, rows, theorems = table.sizes, [], []
    for bound, value in table.rows:
        words = {"formula": bound.formula, "against": bound.against, "type": bound.type, "notes": list(bound.notes)}
        rows.append({"algorithm": bound.algorithm, "growth": None if math.isinf(value) else value, **words})
    for theorem, plan, phases, margin in _list_theorems(sizes):
        found = {"theorem": theorem, "bandit": plan.bandit, "phase_1": phases.phase_1, "phase_2": phases.phase_2}
        finite = None if margin is None or math.isinf(margin) else margin
        theorems.append({**found, "margin": finite, "schedule": {**plan.settings(), "applied": plan.applied}})
    about = {**sizes.to_json(), "all_users": sizes.all_users, "all_steps": sizes.all_steps}
    return {"sizes": about, "rows": rows, "theorems": theorems}


def check_claims(table: Table1) -> list[Claim]:
    """Return no claims: nothing is measured."""
    return []


def summarise(table: Table1) -> list[str]:
    sizes = table.sizes
    contexts, gap = ("infinite" if math.isinf(x) else f"{x:,.4g}" for x in (sizes.n_contexts, sizes.gap))
    lines = [
        f"J = {sizes.n_warmup_users:,}  U = {sizes.n_users:,}  S = {sizes.n_warmup_steps:,}  T = {sizes.n_steps:,}  "
        f"L = {sizes.longest:,}  K = {sizes.n_arms:,}  N = {sizes.n_classes:,}  d = {sizes.n_features:,}  "
        f"C = {contexts}  gap = {gap}",
        f"constants taken as 1; no regret can exceed T~ = {sizes.all_steps:,}",
    ]
    notes: list[str] = []
    for kind in ("problem-independent", "problem-dependent"):
        lines += ["", f"{kind + ' regret':28} {'growth':>12}  against"]
        for bound, value in table.rows:
            if bound.type != kind:
                continue
            notes += bound.notes
            marks = "".join(f" [{len(notes) - len(bound.notes) + i}]" for i in range(1, len(bound.notes) + 1))
            growth = "infinite" if math.isinf(value) else f"{value:,.0f}"
            lines += [f"{bound.algorithm + marks:28} {growth:>12}  {_SHORT[bound.against]:24} {bound.formula}"]
    return [*lines, "", *(f"[{i}] {note}" for i, note in enumerate(notes, start=1)), "", *_format_theorems(sizes)]


def _list_theorems(sizes: Sizes) -> Sequence[tuple[int, TheoremSchedule, Phases, float | None]]:
    """Return, for each theorem and bandit, its schedule, its phases, and the margin of its condition."""
    steps, needed = sizes.longest, sizes.n_classes
    return (
        (1, schedule_1(steps, None, needed, "exp4p"), theorem_1(sizes, "exp4p"), theorem_1_margin(sizes, "exp4p")),
        (1, schedule_1(steps, None, needed, "exp3"), theorem_1(sizes, "exp3"), theorem_1_margin(sizes, "exp3")),
        (2, schedule_2(steps, needed), theorem_2(sizes), None),
    )


def _format_theorems(sizes: Sizes) -> list[str]:
    lines = [
        f"phases with J = {sizes.n_warmup_users:,} and S = {sizes.n_warmup_steps:,}, not with a theorem's own schedule",
        f"{'theorem':28} {'phase 1':>12} {'phase 2':>12}  its schedule",
    ]
    for theorem, plan, phases, margin in _list_theorems(sizes):
        name = f"Theorem {theorem}, {plan.bandit}"
        sets = f"tau = {plan.n_uniform_steps}, {plan.applied}"
        lines.append(f"{name:28} {phases.phase_1:12,.0f} {phases.phase_2:12,.0f}  {sets}")
        if margin is not None:
            width = "K" if plan.bandit == "exp4p" else "N"
            lines.append(f"{'':28} {'':12} {'':12}  U T is {margin:,.4g} times max(1, d^2/{width}) J S; >> 1 wanted")
    return lines
