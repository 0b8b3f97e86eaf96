"""Table 2: the user study, with simulated visitors.

Visitors of a generated news front are assigned at random to one of the recommenders, which shows them 20 articles, one
at a time, each chosen among 170 with features of 21 categories.  All recommenders have learned from the same log of
past readers, and their settings are tuned on other visitors, once for each size of study.  LCB keeps its classes;
Population LinUCB continues to learn from every visitor.  Visitors come one after another, as in the paper's Algorithm
1; in `linucb-at-once`, Population LinUCB serves all visitors in parallel, as on a web site.  The paper had 5 visitors
per recommender; here there are studies of 5 and of 1000, and the study of 5 is repeated to see what so few visitors can
show.  How far kinds of readers differ is an assumption of the simulation: compare directions, not sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lcb import charts
from lcb.arrays import Floats
from lcb.evaluate.two_groups import Group, compare_rates
from lcb.experiments import user_study
from lcb.experiments.claims import Claim
from lcb.experiments.user_study import AT_ONCE, OTHER, OURS, Tuned
from lcb.progress import Progress, silent

PAPER = {"linucb-population": Group(5, 0.196, 0.096), "lcb": Group(5, 0.380, 0.076)}


@dataclass(frozen=True, eq=False)
class Table2:
    about: dict[str, Any]
    tuned: dict[int, Tuned]  # by number of visitors per recommender
    few: dict[str, Floats]  # small studies: click rates by recommender, (seeds, studies, 5)
    many: dict[str, Floats]  # the large study: click rates by recommender, (seeds, 1000)

    def list_first_studies(self) -> list[tuple[str, dict[str, Group]]]:
        """Return the paper's study, then the first small and the large study of the first seed, with titles."""
        few = {name: Group.of_rates(rates[0, 0]) for name, rates in self.few.items()}
        many = {name: Group.of_rates(rates[0]) for name, rates in self.many.items()}
        titles = ("the paper", "simulated", "simulated")
        return [(f"{t}, {g[OURS].n:,} visitors each", g) for t, g in zip(titles, (PAPER, few, many), strict=True)]

    def gains(self, rates: Mapping[str, Floats], other: str = OTHER) -> Floats:
        """Return the relative gain in CTR of lcb over `other` for each seed; `rates` is `few` or `many`."""
        ours, theirs = (rates[name].reshape(len(rates[name]), -1).mean(axis=1) for name in (OURS, other))
        return np.asarray(ours / theirs - 1)


@dataclass(frozen=True)
class RepeatedStudies:
    """How often the repeated small studies find that lcb is better than Population LinUCB, as shares of the studies."""

    n_studies: int
    ahead: float  # share in which lcb has the higher mean
    told_apart: float  # share in which the interval of the difference is above 0
    misled: float  # share in which it is below 0
    covered: float  # share in which it contains the mean difference of all studies
    low: float  # 95 % of the differences are between low and high
    high: float


def summarize_repeats(result: Table2) -> RepeatedStudies:
    """Compare lcb with Population LinUCB in every small study."""
    ours, other = (result.few[name].reshape(-1, result.few[name].shape[-1]) for name in (OURS, OTHER))
    intervals = [compare_rates(a, b) for a, b in zip(ours, other, strict=True)]
    mean, low, high = np.array([interval for interval in intervals if interval is not None]).T
    ends = np.quantile(mean, [0.025, 0.975])
    return RepeatedStudies(
        n_studies=len(mean),
        ahead=float((mean > 0).mean()),
        told_apart=float((low > 0).mean()),
        misled=float((high < 0).mean()),
        covered=float(((low <= mean.mean()) & (mean.mean() <= high)).mean()),
        low=float(ends[0]),
        high=float(ends[1]),
    )


def run(n_runs: int = 10, seed: int = 0, progress: Progress = silent, n_workers: int | None = None) -> Table2:
    """Run the studies with `n_runs` seeds, each with its own articles, past readers, classes and visitors."""
    tuned = user_study.tune_recommenders(seed, progress, n_workers)
    n_studies = -(-user_study.N_STUDIES // n_runs)
    plays = [partial(user_study.run_studies, (seed, i), tuned, n_studies) for i in range(n_runs)]
    done = user_study.run_each(plays, "seeds", progress, n_workers)
    few = {name: np.array([small[name] for small, _ in done]) for name in user_study.GRIDS}
    many = {name: np.array([large[name] for _, large in done]) for name in user_study.GRIDS}
    about = {
        "steps": user_study.N_STEPS,
        "offered": user_study.N_OFFERED,
        "articles": user_study.N_ARTICLES,
        "past_readers": user_study.N_PAST,
        "few_visitors": user_study.N_FEW,
        "many_visitors": user_study.N_MANY,
        "studies_of_few": n_studies * n_runs,
        "seeds": n_runs,
        "seed": seed,
    }
    return Table2(about, tuned, few, many)


def draw(result: Table2) -> Any:
    panels = [
        charts.StudyPanel(title, [(name, _require(one.mean), one.deviation) for name, one in groups.items()])
        for title, groups in result.list_first_studies()
    ]
    return charts.studies(panels, "click-through rate", "CTR of the user study, mean and deviation over visitors")


def to_json(result: Table2) -> dict[str, Any]:
    def describe(groups: Mapping[str, Group]) -> dict[str, Any]:
        return {"recommenders": {name: vars(one) for name, one in groups.items()}, "difference": _compare(groups)}

    return {
        "settings": result.about,
        "tuned": result.tuned,
        "studies": [{"study": title, **describe(groups)} for title, groups in result.list_first_studies()],
        "many": [describe(groups) for groups in _group_by_seed(result)],
        "repeated": vars(summarize_repeats(result)),
    }


def check_claims(result: Table2) -> list[Claim]:
    intervals = [_compare(groups) for groups in _group_by_seed(result)]
    n_above = sum(interval["low"] > 0 for interval in intervals)
    mean, shown = np.mean([one["mean"] for one in intervals]), summarize_repeats(result)
    few, many = result.gains(result.few), result.gains(result.many)
    paper, share = _compare(PAPER), f"{100 * _compute_ratio(PAPER):+.0f} %"
    n_few, n_many = user_study.N_FEW, user_study.N_MANY
    return [
        Claim(
            what=f"CTR of lcb above Population LinUCB, {n_many:,} visitors each",
            paper=f"{paper['mean']:+.3f}, 5 visitors each",
            ours=f"{mean:+.3f}; 95 % interval above 0 with {n_above} of {len(intervals)} seeds",
            holds=n_above == len(intervals),
            why="Even a study of so many visitors does not tell the two apart.",
        ),
        Claim(
            what=f"the same as a share of Population LinUCB's, {n_many:,} visitors each",
            paper=share,
            ours=_format_share(many),
            holds=many.mean() >= _compute_ratio(PAPER),
            why="Over many visitors Population LinUCB, tuned to a wide bonus, repeats what was just clicked, and so "
            "adapts to the present visitor while visitors come one after another. When they come at the same time, "
            f"lcb is {_format_share(result.gains(result.many, AT_ONCE))} above it.",
        ),
        Claim(
            what=f"the same, {n_few} visitors each, mean of {shown.n_studies:,} studies",
            paper=share,
            ours=_format_share(few),
            holds=few.mean() >= _compute_ratio(PAPER),
            why="The kinds of readers are generated; the gain depends on how far they differ.",
        ),
        Claim(
            what=f"lcb ahead in a study of {n_few} visitors each",
            paper="in its one study",
            ours=f"in {100 * shown.ahead:.1f} % of {shown.n_studies:,}; 95 % interval above 0 in "
            f"{100 * shown.told_apart:.0f} %",
            holds=shown.ahead >= 0.95,
            why="Few visitors are of few kinds, so the deviation of Population LinUCB over visitors is large.",
        ),
    ]


def summarise(result: Table2) -> list[str]:
    """Return our numbers beside the paper's, what small studies show, and the claims."""
    studies = result.list_first_studies()
    lines = [f"{'visitors each':19}" + "".join(f"{groups[OURS].n:>20,}" for _, groups in studies)]
    lines[0] += "   (the first the paper's)"
    for name in result.many:
        cells = [_format_group(groups[name]) if name in groups else "-" for _, groups in studies]
        lines.append(f"{name:19}" + "".join(f"{cell:>20}" for cell in cells))
    found = [_compare(groups) for _, groups in studies]
    lines.append(f"{'lcb above':19}" + "".join(f"{one['mean']:>+20.3f}" for one in found))
    lines.append(f"{'  95 %, Welch':19}" + "".join(f"{_format_interval(one['low'], one['high']):>20}" for one in found))
    lines.append(f"{'  as a share':19}" + "".join(f"{100 * _compute_ratio(groups):>+18.0f} %" for _, groups in studies))
    shown = summarize_repeats(result)
    lines += [
        f"{shown.n_studies:,} studies of {user_study.N_FEW} visitors each: lcb ahead in {100 * shown.ahead:.1f} %, "
        f"its 95 % interval above 0 in {100 * shown.told_apart:.1f} %, below 0 in {100 * shown.misled:.1f} %;",
        f"  the difference is {_format_interval(shown.low, shown.high)} in 95 % of them; their intervals contain its "
        f"mean in {100 * shown.covered:.1f} %",
    ]
    for n, tuned in result.tuned.items():
        words = [f"{name} {' '.join(f'{key} {value:g}' for key, value in s.items())}" for name, s in tuned.items() if s]
        lines.append(f"tuned for {n:,} visitors each: {', '.join(words)}")
    return lines + [claim.format_line() for claim in check_claims(result)]


def _group_by_seed(result: Table2) -> list[dict[str, Group]]:
    """Return the groups of the large study of each seed."""
    n_seeds = len(result.many[OURS])
    return [{name: Group.of_rates(rates[i]) for name, rates in result.many.items()} for i in range(n_seeds)]


def _compare(groups: Mapping[str, Group]) -> dict[str, float]:
    """Return the CTR of lcb minus that of Population LinUCB, with Welch's 95 % interval."""
    found = groups[OURS].difference_to(groups[OTHER])
    assert found is not None
    return dict(zip(("mean", "low", "high"), found, strict=True))


def _compute_ratio(groups: Mapping[str, Group]) -> float:
    return _require(groups[OURS].mean) / _require(groups[OTHER].mean) - 1


def _require(value: float | None) -> float:
    assert value is not None
    return value


def _format_group(one: Group) -> str:
    return f"{_require(one.mean):.3f} ± {_require(one.deviation):.3f}"


def _format_interval(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}"


def _format_share(shares: Floats) -> str:
    """Format the mean over seeds, with its 95 % interval if there are several."""
    error = 196 * shares.std(ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else None
    return f"{100 * shares.mean():+.0f} %" + ("" if error is None else f" ± {error:.0f} %")
