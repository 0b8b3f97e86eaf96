"""`fit`: learns latent classes from a log with any learner.

If the likelihood or the number of classes is not given, it is chosen, and `Fit.why` explains the choice.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from lcb.errors import ConvergenceWarning, InputError, LikelihoodWarning
from lcb.event_log import EventLog, TableColumns
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import RatedItems
from lcb.learners.likelihood import choose_likelihood
from lcb.learners.registry import Learner, get_learner
from lcb.learners.shared.n_classes import MOST_USERS, HeldOut, NumberOfClasses, choose_n_classes
from lcb.learners.shared.starts import MANY_CLASSES
from lcb.learners.shared.users import Users, find_users, map_here
from lcb.models import Fit, LatentModels, Likelihood
from lcb.progress import Progress, silent
from lcb.stats import UserStats
from lcb.words import format_count

_TRIAL_STEPS = 200
_TRIAL_STARTS, _TRIAL_STARTS_ON_CLICKS = 4, 2
_TRIAL_TOL = 1e-5  # gain per user at which a trial on clicks ends; at 1e-4 too many classes seem better


class Place(Protocol):
    """Other machines that can hold users."""

    def hold(self, log: EventLog, progress: Progress) -> AbstractContextManager[Users]:
        """Send a log there, for the time of the block."""

    def hold_items(self, rows: ItemRows, progress: Progress) -> AbstractContextManager[RatedItems]:
        """Send rewards of items there, for the time of the block."""


def fit(
    data: UserStats | EventLog | Users | Any,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator | int,
    learner: str = "em",
    likelihood: Likelihood | None = None,
    user: str = "user",
    item: str | None = None,
    reward: str = "reward",
    features: Sequence[str] = (),
    on: Place | None = None,
    count_on: EventLog | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Fit:
    """Learn the classes; without `n_classes`, the number that predicts held-out users best, or that the sampler finds.

    `rng` is a generator or a seed, `learner` a name of `lcb.learners.registry`; `settings` are that learner's
    (docs/learners/index.md lists them).  `data` may be a DataFrame or a dictionary of columns, whose columns `user`,
    `item`, `reward` and `features` name as in `EventLog.from_table`.  `on` is a cluster (`lcb.connect`) whose machines
    then hold the users; data that is on a cluster already (`Cluster.read_log`) is learned from there.  The number is
    chosen on the users of `count_on`, if given: some of `data` with their rows, where `data` has statistics only.

    Without `likelihood` it is Bernoulli if the log has counts of two-valued rewards and the learner supports it, else
    Gaussian.  `UserStats` has no counts, so 0/1 rewards given as `UserStats` are Gaussian, with a warning.

    >>> stats = UserStats.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[0.9, 0.9, 0.1, 0.1])
    >>> fit(stats, 2, rng=np.random.default_rng(0)).models.n_classes
    2
    """
    rng = np.random.default_rng(rng)
    if isinstance(on, str):
        raise InputError(f"on={on!r} is an address; give the cluster there: on=lcb.connect({on!r})")
    if not isinstance(data, Users):
        data = TableColumns(user, item, reward, features).read(data)
    task = _Task.plan(data, learner, likelihood, settings, elsewhere=on is not None)
    log, own, why, likelihood = task.log, task.settings, task.why, task.likelihood
    found: NumberOfClasses | None = None
    asked = n_classes is not None
    if n_classes is None and log.constant is not None:
        n_classes, why = 1, describe_constant(log.constant)
    if n_classes is None and not task.learner.finds_n_classes:
        found, own = task.count(count_on or log, rng, progress)
        n_classes = found.n_classes
        if log.n_users > MOST_USERS and task.can_start_from_models:
            own = {"start": found.models, **own}
            if n_classes < MANY_CLASSES or not task.starts_by_number:
                own["n_starts"] = 0  # new starts take long and hardly find better classes
    with nullcontext(log) if on is None or not isinstance(log, EventLog) else on.hold(log, progress) as users:
        result = task.run(users, n_classes, rng=rng, progress=progress, **own)
    by = None if asked or log.constant is not None else "held-out users" if found else "the sampler"
    provenance = {
        **result.models.provenance,
        "learner": learner,
        "likelihood": likelihood,
        "n_users": log.n_users,
        "n_events": log.n_events,
        "n_steps": result.n_steps,
        "converged": result.converged,
        **({"n_classes_chosen_by": by} if by else {}),
        **{
            name: value
            for name, value in settings.items()
            if isinstance(value, str | int | float) and name != "n_threads"  # does not change the result
        },
    }
    models = result.models.with_provenance(provenance)
    if found is not None:
        return replace(result, models=models, held_out=found.scores, why=(why, found.why))
    reasons = () if by is None else (f"{format_count(models.n_classes, 'class')}, as the sampler found",)
    return replace(result, models=models, why=(why, *reasons))


@dataclass(frozen=True, eq=False)
class Counted:
    """A number of classes, the settings to learn them with, and why."""

    n_classes: int
    why: tuple[str, ...]
    settings: Mapping[str, Any]


def count_classes(
    log: EventLog | Users,
    *,
    rng: np.random.Generator,
    learner: str = "em",
    likelihood: Likelihood | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Counted:
    """Choose the number of classes as `fit` does, for a learner that does not find it, without learning them from all.

    >>> log = EventLog.from_rows(user=[0, 0, 1, 1, 2, 2, 3, 3], x=np.ones((8, 1)), reward=[1, 0, 0, 1, 0, 1, 1, 0])
    >>> count_classes(log, rng=np.random.default_rng(0)).n_classes
    1
    """
    task = _Task.plan(log, learner, likelihood, settings)
    found, own = task.count(log, rng, progress)
    return Counted(found.n_classes, (task.why, found.why), own)


@dataclass(frozen=True, eq=False)
class _Task:
    """What is learned, by which function and with which settings."""

    log: EventLog | Users
    learner: Learner
    likelihood: Likelihood
    why: str
    run: Callable[..., Fit]
    settings: dict[str, Any]

    @classmethod
    def plan(
        cls,
        data: UserStats | EventLog | Users,
        learner: str,
        likelihood: Likelihood | None,
        settings: dict[str, Any],
        *,
        elsewhere: bool = False,
    ) -> _Task:
        chosen = get_learner(learner)
        if likelihood not in (None, "gaussian", "bernoulli"):
            raise InputError(f"unknown likelihood {likelihood!r}; it is 'gaussian' or 'bernoulli', or None to choose")
        log: EventLog | Users = EventLog(data) if isinstance(data, UserStats) else data
        if chosen.only_here and (elsewhere or not isinstance(log, EventLog)):
            raise InputError(
                f"learner {learner} runs on one machine: {chosen.only_here}; use em, personal or blocked, or no cluster"
            )
        if chosen.needs_rows and isinstance(log, EventLog) and log.rows is None:
            raise InputError(f"{learner} learns from rows; give EventLog.from_rows, or read_log with keep_rows=True")
        asked_for = likelihood is not None or "variance" in settings
        likelihood, why = choose_likelihood(log, learner, chosen, likelihood, settings)
        if isinstance(data, UserStats) and likelihood == "gaussian":
            why = f"statistics do not show whether rewards are clicks: modelled as Gaussian, learned by {learner}"
            if data.of_clicks and chosen.fit_clicks and not asked_for:
                warnings.warn(
                    "the rewards are 0 or 1, but UserStats has no counts of clicks: modelled as Gaussian, which finds "
                    "too many classes; give EventLog.from_rows, as lcb learn does, or likelihood='gaussian'",
                    LikelihoodWarning,
                    stacklevel=3,
                )
        run = chosen.fit_clicks if likelihood == "bernoulli" and chosen.fit_clicks else chosen.fit
        own = dict(settings)
        if likelihood == "gaussian" and log.two_valued and "variance" in chosen.settings:
            own.setdefault("variance", "shared")
        return cls(log, chosen, likelihood, why, run, own)

    @property
    def can_start_from_models(self) -> bool:
        return self.learner.start == "models" and "n_starts" in self.learner.settings

    @property
    def starts_by_number(self) -> bool:
        """Whether the learner tries more starts for more classes."""
        return self.learner.settings.get("n_starts", 0) is None

    def count(
        self, log: EventLog | Users, rng: np.random.Generator, progress: Progress
    ) -> tuple[NumberOfClasses, dict[str, Any]]:
        """Choose the number of classes on these users; return it, and the settings to learn them with.

        Classes are counted with one variance for all, if none was asked for: with one each, they come to describe
        rewards of more and of less noise instead of people.  Each gets its own if that predicts held-out users better.
        """
        few = dict(self.settings)
        if "max_steps" in self.learner.settings:
            few["max_steps"] = min(_TRIAL_STEPS, few.get("max_steps", _TRIAL_STEPS))
        if self.starts_by_number:
            few.setdefault("n_starts", _TRIAL_STARTS)
        if self.likelihood == "bernoulli":
            few["n_starts"] = min(_TRIAL_STARTS_ON_CLICKS, few["n_starts"])
            few["tol"] = max(_TRIAL_TOL, few.get("tol", self.learner.settings["tol"]))
        open_variance = self.likelihood == "gaussian" and "variance" in self.learner.settings and "variance" not in few
        if open_variance:
            few["variance"] = "shared"

        def trial(part: EventLog, n: int, **others: Any) -> LatentModels:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # trials are compared before they converge
                return self.run(part, n, rng=rng, progress=silent, **few | others).models

        limit = self.learner.most_classes
        most = limit(self.log.stats) if limit and isinstance(self.log, EventLog) else None
        found = choose_n_classes(find_users(log, map_here), trial, rng=rng, most=most, progress=progress)
        if not open_variance or found.n_classes == 1:
            return found, self.settings
        each = trial(found.learning, found.n_classes, variance="class")
        if HeldOut.score(each, found.held_out).beats(found.own_scores):
            return replace(found, models=each), self.settings
        return found, {**self.settings, "variance": "shared"}


def describe_constant(reward: float) -> str:
    """Say why there is one class for rewards that are all the same."""
    return f"every reward is {reward:g}: nothing tells users apart, so there is one class"
