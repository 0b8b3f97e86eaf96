"""Runs every learner on the same log: how well each predicts held-out users, and at what cost.

30 % of the users are held out.  Each learner runs in its own process, so that its memory can be measured, and is
scored by the log likelihood of the held-out users' rewards, their classes unknown: Bernoulli for two-valued rewards
(even if the learner assumed Gaussian ones), else Gaussian.  Differences to the best learner are paired by user.  A
script must call `compare_learners` under `if __name__ == "__main__":`, because processes are spawned.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import TimeoutError as MultiprocessingTimeout
from multiprocessing import get_context
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate._memory import peak_megabytes
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.registry import LEARNERS, get_learner
from lcb.models import LatentModels
from lcb.progress import Progress, silent
from lcb.words import format_count

_HELD_OUT = 0.3


@dataclass(frozen=True)
class Contender:
    """A learner with its settings."""

    name: str
    learner: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LearnerScore:
    """The held-out scores of one learner and what it cost."""

    name: str
    n_classes: int = 0
    scores: Floats = field(default_factory=lambda: np.empty(0), repr=False)  # (held-out users,)
    seconds: float = 0.0
    megabytes: float = 0.0  # increase of the peak
    note: str = ""  # why it does not apply, or its first warning

    @property
    def score(self) -> float:
        return float(self.scores.mean())

    @property
    def se(self) -> float:
        return float(self.scores.std(ddof=1) / np.sqrt(len(self.scores)))


def compare_learners(
    log: EventLog,
    n_classes: int | None = None,
    *,
    learners: Sequence[str] = (),
    budget: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[LearnerScore]:
    """Run all learners, or those named, on the same users; return them best first, then those that do not apply.

    A learner that takes longer than `budget` seconds is stopped and left out, with a note.
    """
    if log.n_users < 10:
        raise InputError(f"only {format_count(log.n_users, 'user')}, too few to hold some out; give at least 10")
    if log.rows is None:
        raise InputError("comparing learners needs the rows; read_log with keep_rows=True")
    order = np.random.default_rng(seed).permutation(log.n_users)
    n_held_out = round(_HELD_OUT * log.n_users)
    parts = log.take(order[n_held_out:]), log.take(order[:n_held_out])
    for name in learners:
        get_learner(name)
    contenders = [one for one in list_contenders(log.two_valued) if not learners or one.learner in learners]
    outcomes = []
    for done, contender in enumerate(contenders):
        progress(f"learning by {contender.name}", done, len(contenders))
        with get_context("spawn").Pool(1) as pool:  # leaving the block ends its process
            running = pool.apply_async(run_contender, (contender, *parts, n_classes, seed))
            try:
                outcomes.append(running.get(budget))
            except MultiprocessingTimeout:
                note = f"left out: it takes longer than {budget:g} s; raise --budget"
                outcomes.append(LearnerScore(contender.name, note=note))
    progress("learned", len(contenders), len(contenders))
    return sorted(outcomes, key=lambda outcome: -outcome.score if len(outcome.scores) else np.inf)


def list_contenders(two_valued: bool) -> list[Contender]:
    """List every learner with each of its settings to compare; the Bernoulli likelihood only for two-valued rewards."""
    found = [
        Contender(name, learner, dict(settings))
        for learner in LEARNERS
        for name, settings in (get_learner(learner).compared or {learner: {}}).items()
    ]
    return [one for one in found if two_valued or one.settings.get("likelihood") != "bernoulli"]


def measure_gaps(outcomes: Sequence[LearnerScore]) -> dict[str, tuple[float, float]]:
    """Return by how much each learner's score is below the best, and the standard error of that difference."""
    found = [outcome for outcome in outcomes if len(outcome.scores)]
    if not found:
        raise InputError(f"no learner applies to this log: {outcomes[0].note}")
    best = max(found, key=lambda outcome: outcome.score)
    gaps = {}
    for outcome in found:
        behind = best.scores - outcome.scores
        gaps[outcome.name] = float(behind.mean()), float(behind.std(ddof=1) / np.sqrt(len(behind)))
    return gaps


def run_contender(
    contender: Contender, learning: EventLog, held_out: EventLog, n_classes: int | None, seed: int
) -> LearnerScore:
    """Fit one learner and score it, in this process."""
    before, began = peak_megabytes(), time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            rng = np.random.default_rng(seed)
            result = fit(learning, n_classes, rng=rng, learner=contender.learner, **contender.settings)
        except InputError as error:
            return LearnerScore(contender.name, note=str(error))
    seconds, note = time.monotonic() - began, "; ".join(str(warning.message) for warning in caught[:1])
    scores = _set_likelihood(result.models, held_out).user_scores(held_out)
    return LearnerScore(contender.name, result.models.n_classes, scores, seconds, peak_megabytes() - before, note)


def _set_likelihood(models: LatentModels, held_out: EventLog) -> LatentModels:
    """Return the models with the likelihood that all learners are scored by."""
    if held_out.clicks is None:
        return models
    levels = held_out.clicks.low, held_out.clicks.high
    return replace(models.without_spread(), likelihood="bernoulli", levels=levels)
