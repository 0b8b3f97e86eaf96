"""Chooses whether rewards are modelled as clicks (Bernoulli) or as numbers (Gaussian)."""

from __future__ import annotations

from typing import Any

from lcb.errors import InputError
from lcb.event_log import MOST_PAIRS, EventLog
from lcb.learners.registry import Learner
from lcb.learners.shared.users import Users
from lcb.models import Likelihood

NOT_TWO_VALUED = "the rewards are not of two values"
MOST_ARMS = 100_000  # different feature vectors; clicks on more of them are not counted on a cluster


def choose_likelihood(
    log: EventLog | Users, name: str, learner: Learner, wanted: Likelihood | None, settings: dict[str, Any]
) -> tuple[Likelihood, str]:
    """Return the likelihood for the rewards of a log, and why it was chosen."""
    counted = log.arms is not None
    if wanted == "bernoulli" and not learner.fit_clicks:
        raise InputError(f"learner {name} models Gaussian rewards only; for a Bernoulli likelihood use em")
    if wanted is not None:
        return wanted, f"{wanted} rewards, learned by {name}, as asked"
    if "variance" in settings:
        return "gaussian", f"a variance was asked for: Gaussian rewards, learned by {name}"
    if counted and learner.fit_clicks:
        return "bernoulli", f"the rewards take two values: modelled as clicks (Bernoulli), learned by {name}"
    if learner.fit_clicks:
        check_counted(log)
    if learner.why_gaussian:
        return "gaussian", learner.why_gaussian
    if log.two_valued:
        return (
            "gaussian",
            f"the rewards take two values, but {name} models Gaussian rewards: Gaussian, learned by {name}",
        )
    return "gaussian", f"{NOT_TWO_VALUED}: modelled as Gaussian, learned by {name}"


def check_counted(log: EventLog | Users) -> None:
    """Raise InputError for clicks that were too many to count, which nobody has asked to model as Gaussian."""
    if log.two_valued and log.arms is None:
        raise InputError(
            f"the rewards are clicks, and their (user, arm) pairs are more than {MOST_PAIRS:,} (or their arms on a "
            f"cluster more than {MOST_ARMS:,}), too many to count; "
            "learn from fewer users (--users), or ask for likelihood 'gaussian', which may find too many classes"
        )


def choose_for_range(log: EventLog, learner: Learner, declared: tuple[float, float] | None) -> Likelihood:
    """Return Bernoulli if all rewards are one of the two ends of the declared range (default 0 and 1), else Gaussian.

    If the declared range is wider than the rewards so far, other rewards may still come.

    >>> log = EventLog.from_rows(user=[0, 1], x=[[1.0], [1.0]], reward=[0, 1])
    >>> from lcb.learners.registry import get_learner
    >>> [choose_for_range(log, get_learner("em"), declared) for declared in ((0.0, 1.0), (0.0, 5.0), None)]
    ['bernoulli', 'gaussian', 'bernoulli']
    """
    clicks, levels = log.clicks, tuple(declared or (0.0, 1.0))
    if clicks is not None and (clicks.low, clicks.high) == levels and learner.fit_clicks:
        return "bernoulli"
    return "gaussian"
