"""Off-policy estimates from logs with propensities: IPS, SNIPS and DR.

At each event the recommender, which has learned from the events before, gives the probability p(a) that it would choose
each arm on offer (all items, where the log does not say); the log has the arm shown, its propensity q and the reward r:

    w     = p(shown) / q
    ips   = mean w r                                              Horvitz & Thompson 1952
    snips = sum w r / sum w                                       Swaminathan & Joachims 2015
    dr    = mean sum_a p(a) f(a) + w (r - f(shown))               Dudik, Langford & Li 2011; f(a) = x_a . theta

ips and dr are unbiased estimates of the recommender's mean reward at these events (it learns from the arms shown, not
from its own choices); snips is so in the limit and varies less.  f is a ridge regression on training users.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.offline.logged_events import LoggedEvents
from lcb.evaluate.offline.outcomes import ESTIMATORS
from lcb.evaluate.offline.support import Support, find_missing, measure_support
from lcb.progress import Progress, silent
from lcb.recommenders.recommender import Recommender, build_logged_decision


@dataclass(frozen=True, eq=False)
class WeightedEvents:
    """The events of a log with the weights of one recommender."""

    user: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    weight: Floats = field(repr=False)  # (n,) p(shown) / q
    direct: Floats = field(repr=False)  # (n,) sum_a p(a) f(a)
    predicted: Floats = field(repr=False)  # (n,) f(shown)
    missing: Floats | None = field(default=None, repr=False)  # (n,) from `find_missing`; None: no whole distributions

    @property
    def support(self) -> Support | None:
        """How much of the recommender's choices the log supports."""
        return measure_support(self.weight, self.user, self.missing)

    def terms(self, estimator: str) -> Floats:
        """Return one term per event, (n,), whose mean is the estimate."""
        if estimator == "ips":
            return self.weight * self.reward
        if estimator == "dr":
            return self.direct + self.weight * (self.reward - self.predicted)
        if estimator != "snips":
            raise InputError(f"unknown estimator {estimator!r}; choose from {', '.join(ESTIMATORS)}")
        if not self.weight.any():  # as ips; `support` says that nothing is known
            return np.zeros_like(self.weight)
        value = (self.weight * self.reward).sum() / self.weight.sum()
        return value + self.weight * (self.reward - value) / self.weight.mean()

    def estimate(self, estimator: str) -> tuple[float, float]:
        """Return the estimate and its standard error, clustered by user."""
        terms = self.terms(estimator)
        value = float(terms.mean())
        by_user = np.bincount(self.user, terms - value)
        n_users = len(np.unique(self.user))
        if n_users < 2:
            return value, float("nan")
        return value, float(np.sqrt((by_user**2).sum() * n_users / (n_users - 1)) / len(terms))


def weigh_events(
    recommender: Recommender,
    logged: LoggedEvents,
    x: Floats,
    *,
    theta: Floats,
    rng: np.random.Generator,
    learn: bool = True,
    progress: Progress = silent,
) -> WeightedEvents:
    """Weigh the events in order; the recommender learns from each, unless `learn` is false."""
    if logged.propensity is None:
        raise InputError("the log has no propensities; import it with --propensity, or use method filled")
    n = len(logged.user)
    shown, direct, fitted = np.empty(n), np.empty(n), x @ theta
    missing, all_known = np.zeros(n), logged.offers is not None
    everything = np.arange(len(x))
    for e in range(n):
        if e % 1024 == 0:
            progress("events", e, n)
        offered, q = (everything, None) if logged.offers is None else logged.offers.of_event(e)
        user, arm = int(logged.user[e]), int(np.flatnonzero(offered == logged.arm[e])[0])
        context = x[offered]
        distribution = recommender.choose(user, context, rng).distribution
        assert distribution is not None
        shown[e], direct[e] = distribution[arm], distribution @ fitted[offered]
        if q is None:
            all_known = False
        else:
            missing[e] = find_missing(distribution, q)
        if learn:
            decision = build_logged_decision(recommender, user, arm, float(logged.propensity[e]), context)
            recommender.update(user, decision, float(logged.reward[e]))
    progress("events", n, n)
    return WeightedEvents(
        logged.user,
        logged.reward,
        shown / logged.propensity,
        direct,
        fitted[logged.arm],
        missing if all_known else None,
    )
