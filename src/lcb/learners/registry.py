"""The learners by name, and what each declares about itself.

A learner is a module with a `LEARNER`.  To add one, write the module and its test, and add it to `LEARNERS`: `lcb.fit`,
`lcb learn`, `lcb compare-learners`, the service's setting `learning.learner` and the table in docs/learners/index.md
then include it.  Importing this module loads no numeric library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from lcb.errors import InputError

if TYPE_CHECKING:
    from lcb.models import Fit
    from lcb.stats import UserStats

LEARNERS = {
    "em": "lcb.learners.em.learner",
    "gibbs": "lcb.learners.gibbs.collapsed",
    "blocked": "lcb.learners.gibbs.blocked",
    "spectral": "lcb.learners.spectral.experts",
    "personal": "lcb.learners.personal.mixture",
    "mixture": "lcb.learners.mixture.learner",
}


@dataclass(frozen=True)
class Learner:
    """The abilities of a learner.  Its functions are called as `fit(log, n_classes, rng=, progress=, **settings)`."""

    summary: str
    fit: Callable[..., Fit]
    settings: Mapping[str, Any]  # by name, with their defaults
    fit_clicks: Callable[..., Fit] | None = None  # with a Bernoulli likelihood; None if it has none
    finds_n_classes: bool = False  # `n_classes` may be None
    needs_rows: bool = False  # needs `log.rows` beside the statistics
    most_classes: Callable[[UserStats], int] | None = None  # None: any number
    start: Literal["models", "labels"] | None = None  # type of the setting `start`, to continue from known classes
    compared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # variants for compare-learners
    only_here: str | None = None  # why it cannot learn from users on other machines; None: it can
    why_gaussian: str | None = None  # `Fit.why` of a learner without Bernoulli likelihood; None: a default text


def get_learner(name: str) -> Learner:
    """Load a learner.

    >>> get_learner("magic")
    Traceback (most recent call last):
    lcb.errors.InputError: unknown learner 'magic'; the learners are em, gibbs, blocked, spectral, personal, mixture
    """
    if name not in LEARNERS:
        raise InputError(f"unknown learner {name!r}; the learners are {', '.join(LEARNERS)}")
    learner: Learner = import_module(LEARNERS[name]).LEARNER
    return learner


def list_settings(*functions: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only parameters of functions with their defaults, without `rng` and `progress`."""
    parameters = [one for function in functions for one in inspect.signature(function).parameters.values()]
    return {
        one.name: one.default
        for one in parameters
        if one.kind is one.KEYWORD_ONLY and one.name not in ("rng", "progress")
    }


def format_table() -> str:
    """Return the table of learners in docs/learners/index.md."""
    lines = ["| learner | method | learns from | number of classes | clicks | settings |", "|---|---|---|---|---|---|"]
    for name in LEARNERS:
        learner = get_learner(name)
        settings = ", ".join(f"`{key}={value!r}`" for key, value in learner.settings.items())
        data, clicks = "rows" if learner.needs_rows else "statistics", "Bernoulli" if learner.fit_clicks else "Gaussian"
        number = "sampled" if learner.finds_n_classes else "by held-out users"
        lines.append(f"| `{name}` | {learner.summary} | {data} | {number} | {clicks} | {settings} |")
    return "\n".join(lines) + "\n"
