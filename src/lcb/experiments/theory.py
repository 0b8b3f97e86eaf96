"""Theorems 1 and 2, measured: how regret grows with the number of users and of interactions, beside the bounds.

Simulated are the theorems' schedules, with EXP4.P and EXP3 (Theorem 1) and Epoch-Greedy (Theorem 2).  In the paper's
simulated world, the number of users U grows, or the number of steps per user T_u; in a world of two opposite classes
and 5 arms, where bandits find a user's class sooner, T_u grows.  Regret is that of phase 2, against each user's true
policy.  A part of it is the models' error: the regret of the best learned policy for that user.  Growth is the slope of
a least-squares line through (log size, log regret), one per run.  The bounds' slopes are 1 in U, and in T_u 1/2
(Theorem 1) and about 0 (Theorem 2).

The theorems assume Spectral Experts; EM, the default, is more exact at the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from lcb import charts, theory
from lcb.arrays import Floats
from lcb.evaluate.simulation.growth import Slope, fit_slopes, mean_slope
from lcb.evaluate.simulation.schedules import BANDITS, BanditName, Learner, ScheduleRun, play_schedules
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes, paper_classes
from lcb.experiments.claims import Claim
from lcb.progress import Progress, count_up, silent
from lcb.runtime import parallel


@dataclass(frozen=True, eq=False)
class Sweep:
    """The sizes of one experiment in a world: the number of users or of steps grows, the other one is fixed."""

    where: str  # describes the world
    world: SimulatedWorld = field(repr=False)
    size: Literal["users", "steps"]  # which number grows
    at: tuple[int, ...]  # its values
    fixed: int  # the other number

    def list_sizes(self) -> list[tuple[int, int]]:
        """Return (users, steps per user) at each size."""
        return [(n, self.fixed) if self.size == "users" else (self.fixed, n) for n in self.at]

    def build_runs(self, seed: int, run: int, learner: Learner) -> list[ScheduleRun]:
        """Return the simulations of run number `run`.

        If users grow, one simulation is enough: regret is read off after each number of users.  If steps grow, each
        number of steps needs its own.
        """
        if self.size == "users":
            return [ScheduleRun(self.world, self.fixed, self.at, seed, run, learner)]
        return [ScheduleRun(self.world, n_steps, (self.fixed,), seed, run, learner) for n_steps in self.at]

    def __str__(self) -> str:
        names = ("users U", "T_u") if self.size == "users" else ("steps per user T_u", "U")
        return f"against {names[0]}, at {names[1]} = {self.fixed}; {self.where}"


PAPERS = SimulatedWorld(paper_classes(), n_arms=20)
APART = SimulatedWorld(equal_classes(paper_classes().beta[0] * np.array([[1.0], [-1.0]])), n_arms=5)
SWEEPS = (
    Sweep("the paper's 5 classes, 20 arms", PAPERS, "users", (50, 100, 200, 400, 800), 100),
    Sweep("the paper's 5 classes, 20 arms", PAPERS, "steps", (100, 400, 1600, 6400, 25600, 102400), 2),
    Sweep("2 opposite classes, 5 arms", APART, "steps", (100, 400, 1600, 6400, 25600, 102400), 2),
)


@dataclass(frozen=True, eq=False)
class Growth:
    """The measurements of one bandit at growing sizes, (runs, sizes), and the bound."""

    bandit: str
    at: tuple[int, ...]
    regret: Floats = field(repr=False)  # of phase 2
    models_error: Floats = field(repr=False)
    phase_1: Floats = field(repr=False)
    bound: Floats = field(repr=False)  # (sizes,) the bound of phase 2, up to a constant
    plans: tuple[theory.TheoremSchedule, ...]

    @property
    def slope(self) -> Slope:
        return mean_slope(self.at, self.regret)

    @property
    def last_slope(self) -> Slope:
        """The slope between the two largest sizes."""
        return mean_slope(self.at[-2:], self.regret[:, -2:])

    @property
    def bound_slope(self) -> float:
        return float(fit_slopes(self.at, self.bound))

    @property
    def last_bound_slope(self) -> float:
        return float(fit_slopes(self.at[-2:], self.bound[-2:]))


@dataclass(frozen=True, eq=False)
class TheoryResult:
    settings: dict[str, Any]
    sweeps: tuple[tuple[Sweep, tuple[Growth, ...]], ...]


def run(
    n_runs: int = 10, seed: int = 0, progress: Progress = silent, learner: Learner = "em", n_workers: int | None = None
) -> TheoryResult:
    """Simulate all sweeps and bandits in parallel; the bandits of a run serve the same users in phase 2."""
    runs = [part for sweep in SWEEPS for run in range(n_runs) for part in sweep.build_runs(seed, run, learner)]
    order = sorted(range(len(runs)), key=lambda i: -runs[i].n_steps * max(runs[i].users))  # longest first
    report = count_up(progress, "simulations", len(runs))
    done = parallel.processes(play_schedules, [runs[i] for i in order], n_workers, report)
    outcomes = iter([outcome for _, outcome in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])])
    found = []
    for sweep in SWEEPS:
        n_parts = len(sweep.build_runs(seed, 0, learner))
        by_run = [np.concatenate([next(outcomes) for _ in range(n_parts)], axis=2) for _ in range(n_runs)]
        measured = np.array(by_run)  # (runs, bandits, 3, sizes)
        found.append((sweep, tuple(_build_growth(sweep, bandit, measured[:, i]) for i, bandit in enumerate(BANDITS))))
    return TheoryResult({"runs": n_runs, "seed": seed, "learner": learner}, tuple(found))


def draw(outcome: TheoryResult) -> Any:
    panels = []
    for sweep, growths in outcome.sweeps:
        curves = [_build_curve(growth) for growth in growths]
        bounds = [growth.bound.tolist() for growth in growths]
        texts = [f"slope {growth.slope}" for growth in growths]
        x_title = "users of phase 2, U" if sweep.size == "users" else "interactions per user, T_u"
        fixed = f"T_u = {sweep.fixed}" if sweep.size == "users" else f"U = {sweep.fixed}"
        panels.append(charts.GrowthPanel(f"{sweep.where}; {fixed}", x_title, curves, bounds, texts))
    title = f"Regret under the schedules of Theorems 1 and 2 ({outcome.settings['runs']} runs)"
    return charts.growth(panels, "regret of phase 2", title)


def to_json(outcome: TheoryResult) -> dict[str, Any]:
    sweeps = []
    for sweep, growths in outcome.sweeps:
        world, models = sweep.world, sweep.world.models
        sizes = {"where": sweep.where, "against": sweep.size, "at": list(sweep.at), "fixed": sweep.fixed}
        classes = {"arms": world.n_arms, "classes": models.n_classes, "features": models.n_features}
        grown = {"gap": theory.smallest_gap(models), "growth": [_describe_growth(growth) for growth in growths]}
        sweeps.append({**sizes, **classes, **grown})
    return {"settings": outcome.settings, "sweeps": sweeps}


def check_claims(outcome: TheoryResult) -> list[Claim]:
    """Check the claim that regret grows no faster than the bound between the two largest sizes."""
    found = []
    for sweep, growths in outcome.sweeps:
        for growth in growths:
            slope, bound = growth.last_slope, growth.last_bound_slope
            low = slope.mean - (0.0 if np.isnan(slope.half) else slope.half)
            found.append(
                Claim(
                    what=f"{growth.bandit}, {sweep}: slope over the last two sizes",
                    paper=f"at most {bound:.2f}",
                    ours=f"{slope}",
                    holds=low <= bound + 0.02,
                    why="A bound allows any constant: regret is linear until a bandit has learned, which takes long.",
                )
            )
    return found


def summarise(outcome: TheoryResult) -> list[str]:
    """Return, per sweep and bandit, slopes and regret per user; per schedule, the parts of regret, tau and J."""
    about = outcome.settings
    lines = [f"regret of phase 2 against each user's true policy; {about['runs']} runs, learned by {about['learner']}"]
    for sweep, growths in outcome.sweeps:
        heads = ("slope, 95 %", "bound", "last two", "bound")
        lines += ["", str(sweep), _format_row("regret per user", heads, [f"{n:,}" for n in sweep.at])]
        n_users = np.array([n for n, _ in sweep.list_sizes()])
        for growth in growths:
            ours, bounds = (growth.slope, growth.last_slope), (growth.bound_slope, growth.last_bound_slope)
            slopes = (str(ours[0]), f"{bounds[0]:.2f}", str(ours[1]), f"{bounds[1]:.2f}")
            lines.append(_format_row(growth.bandit, slopes, _format_numbers(growth.regret.mean(axis=0) / n_users)))
        for growth in growths:
            times = growth.regret.mean(axis=0) / growth.bound
            lines.append(_format_row(f"{growth.bandit}: regret / bound, constants 1", (), _format_numbers(times)))
        for alike in (growths[:2], growths[2:]):
            lines += _format_schedule(alike, n_users)
    marks = [mark for mark in _MARKS if any(line.endswith(mark) or f"{mark} " in line for line in lines)]
    return [*lines, "", *(f"{mark} {_MARKS[mark]}" for mark in marks)]


def _build_growth(sweep: Sweep, bandit: BanditName, measured: Floats) -> Growth:
    """Combine `measured` (runs, 3, sizes) with the bound and the schedule at each size."""
    world, plans, bounds = sweep.world, [], []
    for n_users, n_steps in sweep.list_sizes():
        plan = ScheduleRun(world, n_steps, (n_users,), 0, 0).schedule(bandit)
        sizes = theory.Sizes.of_equal_users(
            n_users=n_users,
            steps_per_user=n_steps,
            n_arms=world.n_arms,
            n_classes=world.models.n_classes,
            n_features=world.models.n_features,
            gap=theory.smallest_gap(world.models),
            n_warmup_users=plan.n_warmup_users,
        )
        phases = theory.theorem_2(sizes) if plan.bandit == "epoch-greedy" else theory.theorem_1(sizes, plan.bandit)
        plans.append(plan)
        bounds.append(phases.phase_2)
    regret, models_error, phase_1 = np.moveaxis(measured, 1, 0)
    return Growth(bandit, sweep.at, regret, models_error, phase_1, np.array(bounds), tuple(plans))


def _build_curve(growth: Growth) -> charts.Curve:
    runs = len(growth.regret)
    error = growth.regret.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(growth.at), np.nan)
    return charts.Curve(growth.bandit, growth.at, growth.regret.mean(axis=0), error)


def _describe_growth(growth: Growth) -> dict[str, Any]:
    measured = {"regret": growth.regret, "models_error": growth.models_error, "phase_1": growth.phase_1}
    return {
        "bandit": growth.bandit,
        **{name: values.tolist() for name, values in measured.items()},
        "slope": _describe_slope(growth.slope),
        "last_slope": _describe_slope(growth.last_slope),
        "bound": growth.bound.tolist(),
        "bound_slope": growth.bound_slope,
        "last_bound_slope": growth.last_bound_slope,
        "schedules": [{**plan.settings(), "applied": plan.applied} for plan in growth.plans],
    }


def _describe_slope(slope: Slope) -> dict[str, float | None]:
    return {"mean": slope.mean, "half": None if np.isnan(slope.half) else slope.half}


def _format_row(name: str, slopes: Sequence[str], values: Sequence[str]) -> str:
    head = "{:16} {:>12} {:>6} {:>13} {:>6}".format(name, *slopes) if slopes else f"{name:57}"
    return head + "".join(f" {value:>9}" for value in values)


def _format_numbers(values: Floats) -> list[str]:
    return [f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:.2f}" for value in values]


_MARKS = {
    "*": "J is what the learner needs, more than the theorem's",
    "°": "J is the most that are simulated, fewer than the theorem's",
}


def _format_schedule(growths: Sequence[Growth], n_users: Floats) -> list[str]:
    """Format the models' error, the regret of phase 1, tau and J of bandits that share a schedule."""
    names, plans = ", ".join(growth.bandit for growth in growths), growths[0].plans
    n_warmup = np.array([plan.n_warmup_users for plan in plans])
    error = np.mean([growth.models_error for growth in growths], axis=(0, 1)) / n_users
    phase_1 = growths[0].phase_1.mean(axis=0) / n_warmup
    marks = [
        "*" if "as the learner needs" in plan.applied else "°" if "the most" in plan.applied else "" for plan in plans
    ]
    return [
        _format_row(f"{names}: of regret, the models' error", (), _format_numbers(error)),
        _format_row(f"{names}: regret per user of phase 1", (), _format_numbers(phase_1)),
        _format_row(f"{names}: tau", (), [f"{plan.n_uniform_steps:,}" for plan in plans]),
        _format_row(f"{names}: J", (), [f"{n:,}{mark}" for n, mark in zip(n_warmup, marks, strict=True)]),
    ]
