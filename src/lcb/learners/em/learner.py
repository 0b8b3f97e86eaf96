"""EM as a learner: `gaussian` on statistics, `bernoulli` on counted clicks."""

from __future__ import annotations

from lcb.learners.em import bernoulli, gaussian
from lcb.learners.registry import Learner, list_settings

LEARNER = Learner(
    "expectation-maximisation",
    gaussian.fit,
    list_settings(gaussian.fit),
    fit_clicks=bernoulli.fit,
    start="models",
    compared={
        "em": {"likelihood": "gaussian", "variance": "class"},
        "em-shared": {"likelihood": "gaussian", "variance": "shared"},
        "em-clicks": {"likelihood": "bernoulli"},
    },
)
