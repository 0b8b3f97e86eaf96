"""How much of a policy a log supports: whether the policy's mean reward can be estimated from the log at all.

For a policy that would choose arm a with probability p(a), where the log shows it with propensity q(a):

    missing         mean of the sum of p(a) over arms with q(a) = 0     the log says nothing about these choices
    mean weight     mean of p(shown) / q(shown)                         1 in expectation if nothing is missing
    effective size  (sum of weights)^2 / sum of squared weights         equally weighted events of the same variance

Where the log has only the propensity of the arm shown, 1 - mean weight estimates what is missing.  An estimate gets an
interval only if `Support.is_sufficient`: an estimate without support is biased by an amount that no interval covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lcb.arrays import Floats, Index
from lcb.words import format_count

MOST_MISSING = 0.001  # share of the policy's choices that may be without support
MOST_UNANSWERED = 0.05  # share of the steps of a replay that may find no event
LEAST_EFFECTIVE = 10.0  # events; a normal interval from fewer is meaningless
_ERRORS = 3.0  # standard errors that the mean weight may be away from 1
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Support:
    """The support that a log gives to one policy."""

    n_events: int
    missing: float | None  # None: the log has no whole distributions, and the mean weight has to tell
    mean_weight: float | None  # None: the method uses no weights (replay)
    mean_weight_se: float | None  # clustered by user, if there are two; None with fewer than two events
    effective_size: float
    unanswered: float = 0.0  # replay: share of the steps for which the log ended before it showed the arm

    @property
    def missing_share(self) -> float:
        """The share of the policy's choices that the log does not support, in [0, 1]."""
        if self.missing is not None:
            return self.missing
        return 0.0 if self.mean_weight is None else min(max(1 - self.mean_weight, 0.0), 1.0)

    @property
    def shortfall(self) -> str | None:
        """Why the log does not support an interval; None if it does."""
        if self.missing is not None and self.missing > MOST_MISSING:
            return f"the log never shows {100 * self.missing:.1f} % of what it would choose"
        if self.unanswered > MOST_UNANSWERED:
            return f"in {100 * self.unanswered:.0f} % of steps the log ended before it showed the arm chosen"
        weight = self.mean_weight
        if weight is not None and self.mean_weight_se is not None:
            tolerance = max(_ERRORS * self.mean_weight_se, _ROUNDING)
            if weight < 1 - tolerance:
                share = "part" if self.missing is not None else f"{100 * self.missing_share:.1f} %"
                found = f"mean weight {weight:.3f}; it must be 1"
                return f"the log hardly ever shows {share} of what it would choose ({found})"
            if weight > 1 + tolerance:
                return f"the propensities of the log are too small (mean weight {weight:.3f}; it must be 1)"
        if self.effective_size < LEAST_EFFECTIVE:
            return f"its estimate rests on {self.effective_size:.1f} effective events; it needs {LEAST_EFFECTIVE:g}"
        return None

    @property
    def is_sufficient(self) -> bool:
        return self.shortfall is None

    def describe(self, policy: str) -> str:
        """Return one sentence about this policy, such as `random: no interval, because ...`."""
        if self.shortfall is not None:
            size = f"effective size {self.effective_size:,.0f} of {format_count(self.n_events, 'event')}"
            return f"{policy}: no interval, because {self.shortfall}; {size}"
        size = f"effective size {self.effective_size:,.0f} of {format_count(self.n_events, 'event')}"
        share = f"the log supports {100 * (1 - self.missing_share):.1f} % of what it would choose"
        if self.mean_weight is None:
            return f"{policy}: {share}; {size}"
        error = "" if self.mean_weight_se is None else f" ± {self.mean_weight_se:.3f}"
        weight = f"mean weight {self.mean_weight:.3f}{error}, 1 expected"
        if self.missing is None:  # an average that is below 1 by chance is no share of choices
            return f"{policy}: {weight} if the log supports all that it would choose; {size}"
        return f"{policy}: {share}; {weight}; {size}"

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "missing_share": self.missing_share,
            "withheld": max(self.missing_share, self.unanswered),
            "support": 1 - self.missing_share,
            "labels_per_user_and_arm": None,  # of queues
            "shortfall": self.shortfall,
        }


def find_missing(target: Floats, logged: Floats) -> Floats:
    """Return the probability that `target` (..., K) puts on arms whose propensity in `logged` (..., K) is 0, (...).

    >>> find_missing(np.array([[0.5, 0.25, 0.25]]), np.array([[0.9, 0.1, 0.0]]))
    array([0.25])
    """
    return np.asarray(np.where(logged > 0, 0.0, target).sum(axis=-1))


def measure_support(weight: Floats, user: Index, missing: Floats | None = None) -> Support | None:
    """Measure from the weights p(shown) / q(shown) of all events, (n,), and their users, (n,).

    `missing` (n,) comes from `find_missing`; None if the log has only the propensity of the arm shown.  Without events
    the result is None.

    >>> found = measure_support(np.array([0.5, 1.5] * 20), np.arange(40))
    >>> round(found.mean_weight, 3), round(found.mean_weight_se, 3), found.effective_size
    (1.0, 0.08, 32.0)
    >>> print(measure_support(np.full(40, 0.6), np.arange(40)).shortfall)
    the log hardly ever shows 40.0 % of what it would choose (mean weight 0.600; it must be 1)
    """
    n = np.bincount(user)
    sums = SupportSums()
    sums._add(n[n > 0], np.bincount(user, weight)[n > 0].astype(np.float64), weight, missing)
    return sums.support()


class SupportSums:
    """Measures the same from the events of one user after another, in memory that does not grow with the log."""

    def __init__(self) -> None:
        self._n_events = self._n_users = self._n_missing = 0
        self._weight = self._square = self._missing = 0.0
        self._by_user = np.zeros(3)  # sums over users of w_u^2, w_u n_u, n_u^2

    def add_user(self, weight: Floats, missing: Floats | None = None) -> None:
        """Add the weights, and what is missing, of all events of one user."""
        if len(weight):
            self._add(np.array([len(weight)]), np.array([weight.sum()]), weight, missing)

    def _add(self, n: Index, sums: Floats, weight: Floats, missing: Floats | None) -> None:
        self._n_events += len(weight)
        self._n_users += len(n)
        self._weight += float(weight.sum())
        self._square += float((weight**2).sum())
        self._by_user += [(sums**2).sum(), (sums * n).sum(), (n**2).sum()]
        if missing is not None:
            self._n_missing += len(missing)
            self._missing += float(missing.sum())

    def support(self) -> Support | None:
        """Return the measures; None without events."""
        n, n_users = self._n_events, self._n_users
        if not n:
            return None
        mean = self._weight / n
        spread = max(float(self._by_user @ (1.0, -2 * mean, mean**2)), 0.0) * n_users / max(n_users - 1, 1)
        if n_users < 2:  # no other user to compare with: the events count as independent
            spread = max(self._square - n * mean**2, 0.0) * n / max(n - 1, 1)
        return Support(
            n_events=n,
            missing=self._missing / n if self._n_missing == n else None,
            mean_weight=mean,
            mean_weight_se=None if n < 2 else float(np.sqrt(spread) / n),
            effective_size=self._weight**2 / max(self._square, 1e-300),
        )


def combine_support(seeds: Sequence[Support]) -> Support | None:
    """Combine the measures of several splits of the same log: means, but the largest error and the smallest size."""
    if not seeds:
        return None
    missing = [one.missing for one in seeds if one.missing is not None]
    weights = [one.mean_weight for one in seeds if one.mean_weight is not None]
    errors = [one.mean_weight_se for one in seeds if one.mean_weight_se is not None]
    return Support(
        n_events=sum(one.n_events for one in seeds),
        missing=float(np.mean(missing)) if missing else None,
        mean_weight=float(np.mean(weights)) if weights else None,
        mean_weight_se=max(errors, default=None),
        effective_size=min(one.effective_size for one in seeds),
        unanswered=float(np.mean([one.unanswered for one in seeds])),
    )
