"""How far the labels of test users went for one algorithm: what the answer of a queue or a filled queue rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from lcb.arrays import Index
from lcb.evaluate.choice.serving import MOST_FAVOURED, measure_favour
from lcb.evaluate.offline.labels import QueueLabels
from lcb.evaluate.user_rates import FEWEST_LABELS
from lcb.words import format_count

LEAST_SUPPORT = 0.5  # to draw rates; a policy that showed users fewer arms has left out the arms that they dislike
MOST_WITHHELD = 0.05  # of the steps of a queue; beyond it arms are compared that nobody would choose
MOST_UNSHOWN = 0.01  # of the steps, where a log hardly shows an arm: a drawn reward may then be off by all of itself
_NEXT = (
    "log with a larger uniform share, or ask a narrower question of its propensities: --method snips or dr tells what "
    "would have been chosen at the logged moments, not how users would be served"
)


@dataclass(frozen=True, kw_only=True)
class Use(ABC):
    """What an answer from labels rests on."""

    n_steps: int  # of all test users
    withheld: float = 0.0  # share of the steps at which labels did not suffice

    @property
    def effective_size(self) -> float:
        """The number of rewards that are labels, from steps at which every arm was offered."""
        return self.n_steps * (1 - self.withheld)

    @property
    @abstractmethod
    def shortfall(self) -> str | None:
        """Why the labels do not suffice for an interval; None if they do."""

    @property
    def is_sufficient(self) -> bool:
        return self.shortfall is None


U = TypeVar("U", bound=Use)


def combine_use(seeds: Sequence[U]) -> U:
    """Combine the splits of one log: the sum of the steps and the means of all shares."""
    shares = [one.name for one in fields(seeds[0]) if isinstance(getattr(seeds[0], one.name), float)]
    means = {name: float(np.mean([getattr(one, name) for one in seeds])) for name in shares}
    return replace(seeds[0], n_steps=sum(one.n_steps for one in seeds), **means)


@dataclass(frozen=True, kw_only=True)
class LabelUse(Use):
    """The labels of the test users, and the steps at which they did not suffice.

    At a withheld step some arm was not offered (queue), or the arm chosen had no label left (filled).
    """

    method: str  # queue or filled
    labels_per_arm: float  # of a test user, on average
    support: float  # share of the pairs (test user, arm) with a label
    favoured: float = 0.0  # share of a user's labels that their commonest arm has, 0: an equal share, 1: all

    @property
    def shortfall(self) -> str | None:
        if self.method == "queue" and self.withheld > MOST_WITHHELD:
            return f"{self._describe_withheld()}, which makes algorithms look alike; use --method filled"
        if self.method == "filled" and self.labels_per_arm < FEWEST_LABELS and self.withheld > MOST_WITHHELD:
            return (
                f"{self._describe_withheld()}, and with {self.labels_per_arm:.1f} labels per user and arm too "
                "little is known to draw them; log more events per user, or group the arms into fewer categories"
            )
        if self.method == "filled" and self.support < LEAST_SUPPORT and self.withheld > MOST_UNSHOWN:
            return (
                f"{self._describe_withheld()}, and only {100 * self.support:.0f} % of the pairs of user and arm have a "
                f"label: a log that shows users few arms does not tell how they like the others; {_NEXT}"
            )
        if self.method == "filled" and self.favoured > MOST_FAVOURED and self.withheld > MOST_UNSHOWN:
            return (
                f"{self._describe_withheld()}, and most labels of a user are of one arm: a recommender that shows "
                f"users what they like leaves few labels for the other arms; {_NEXT}"
            )
        return None

    def describe(self, algorithm: str) -> str:
        """Return one sentence about this algorithm."""
        return (
            f"{algorithm}: {self._describe_withheld()}; {self.labels_per_arm:.1f} labels per user and arm, "
            f"{100 * self.support:.0f} % of the pairs have one; {self.effective_size:,.0f} of "
            f"{format_count(self.n_steps, 'reward')} "
            + ("come from steps that offered every arm" if self.method == "queue" else "are labels")
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "withheld": self.withheld,
            "labels_per_user_and_arm": self.labels_per_arm,
            "support": self.support,
            "favoured": self.favoured,
            "effective_size": self.effective_size,
            "shortfall": self.shortfall,
        }

    def _describe_withheld(self) -> str:
        share = f"in {100 * self.withheld:.0f} % of steps"
        if self.method == "queue":
            return f"{share} an arm had no label left and was not offered"
        return f"{share} the first choice had no label left"


def measure_use(method: str, labels: QueueLabels, users: Index, withheld: float, n_steps: int) -> LabelUse:
    count = labels.count[users]
    favoured = measure_favour(count.max(axis=1), count.sum(axis=1), count.shape[1])
    return LabelUse(
        method=method,
        n_steps=len(users) * n_steps,
        withheld=withheld,
        labels_per_arm=float(count.mean()),
        support=float(np.mean(count > 0)),
        favoured=favoured,
    )
