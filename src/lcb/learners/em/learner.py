"""EM as a learner: `gaussian` on statistics, `bernoulli` on counted clicks."""

from __future__ import annotations

from typing import Any

from lcb.event_log import EventLog
from lcb.learners.em import bernoulli, gaussian
from lcb.learners.registry import Learner, list_settings
from lcb.learners.shared.users import Users
from lcb.models import Fit


def _fit(log: EventLog | Users, n_classes: int, **settings: Any) -> Fit:
    return gaussian.fit(log.stats if isinstance(log, EventLog) else log, n_classes, **settings)


LEARNER = Learner(
    "expectation-maximisation",
    _fit,
    list_settings(gaussian.fit),
    fit_clicks=bernoulli.fit,
    start="models",
    compared={
        "em": {"likelihood": "gaussian", "variance": "class"},
        "em-shared": {"likelihood": "gaussian", "variance": "shared"},
        "em-clicks": {"likelihood": "bernoulli"},
    },
)
