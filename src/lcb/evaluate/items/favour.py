"""Whether a log showed users what they like: then labels are of items that they like, and say little of the others.

Where every item was shown to all users alike, its rewards r are a fair sample of what users think of it.  Where the
propensity q of an item differs between users, weights 1 / q undo that, item by item:

    shown    mean of r over all events
    alike    mean over all events of the estimate for their item, sum (r / q) / sum (1 / q) over the item's events

Both are the same if q depends on the item alone, also where popular items are shown more often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcb.arrays import Floats
from lcb.storage.logs.log import Log

_MOST = 0.25  # standard deviations of the rewards by which `shown` may be above `alike`
_NOTED = 0.05  # from which on it is worth a sentence
_FEWEST = 10  # events of an item; weights of fewer hardly undo anything, so such items count as one
_LABELLED = "over the items that a user has labels for, not over the catalogue"
UNKNOWN = (
    f"this is {_LABELLED}: without propensities the log does not tell whether users were mostly shown, or chose, what "
    "they like"
)


@dataclass(frozen=True)
class Favour:
    """The mean reward of items as the log showed them, and if it had shown each to all users alike."""

    shown: float
    alike: float
    spread: float  # standard deviation of the rewards

    @property
    def excess(self) -> float:
        """How much higher rewards are since users were shown what they like, in standard deviations of a reward."""
        return (self.shown - self.alike) / self.spread if self.spread > 0 else 0.0

    @property
    def shortfall(self) -> str | None:
        """Why the labels are no fair sample of the items; None if they are."""
        if self.excess <= _MOST:
            return None
        return f"{self._describe('mostly')}: a gain would be {_LABELLED}; log with a larger uniform share"

    @property
    def caveat(self) -> str | None:
        """What an answer leaves out; None if it is worth no sentence."""
        return f"this is {_LABELLED}: {self._describe('more often')}" if self.excess > _NOTED else None

    def _describe(self, how: str) -> str:
        return (
            f"users were {how} shown what they like (mean reward {self.shown:.3f}; by the propensities "
            f"{self.alike:.3f}, had every item been shown to all users alike)"
        )


def measure_favour(log: Log, reward: Floats) -> Favour | None:
    """Measure from the reward of every event of a log; None if it has no propensities."""
    if log.propensity is None or not len(reward):
        return None
    chance = log.propensity.astype(np.float64)
    n = np.bincount(log.item, minlength=log.n_items)
    group = np.where(n >= _FEWEST, np.arange(log.n_items), log.n_items)[log.item]
    weight = np.bincount(group, 1 / chance)
    estimate = np.bincount(group, reward / chance) / np.where(weight > 0, weight, 1.0)
    return Favour(float(reward.mean()), float(estimate[group].mean()), float(reward.std()))
