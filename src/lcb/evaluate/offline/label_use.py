"""How far the labels of test users went for one algorithm: what the answer of a queue or a filled queue rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lcb.arrays import Index
from lcb.evaluate.offline.labels import QueueLabels

MOST_WITHHELD = 0.05  # of the steps of a queue; beyond it arms are compared that nobody would choose
FEWEST_LABELS = 1.0  # per test user and arm, to fill queues; with fewer, the answer would be that of the model


@dataclass(frozen=True)
class LabelUse:
    """The labels of the test users, and the steps at which they did not suffice."""

    method: str  # queue or filled
    n_steps: int  # of all test users
    withheld: float  # share of steps: queue: some arm was not offered; filled: the arm chosen had no label left
    labels_per_arm: float  # of a test user, on average
    support: float  # share of the pairs (test user, arm) with a label

    @property
    def effective_size(self) -> float:
        """The number of rewards that are labels, from steps at which every arm was offered."""
        return self.n_steps * (1 - self.withheld)

    @property
    def shortfall(self) -> str | None:
        """Why the labels do not suffice for an interval; None if they do."""
        if self.method == "queue" and self.withheld > MOST_WITHHELD:
            return f"{self._describe_withheld()}, which makes algorithms look alike; use --method filled"
        if self.method == "filled" and self.labels_per_arm < FEWEST_LABELS and self.withheld > MOST_WITHHELD:
            return (
                f"{self._describe_withheld()}, and with {self.labels_per_arm:.1f} labels per user and arm too "
                "little is known to draw them; log more events per user, or group the arms into fewer categories"
            )
        return None

    @property
    def is_sufficient(self) -> bool:
        return self.shortfall is None

    def describe(self, algorithm: str) -> str:
        """Return one sentence about this algorithm."""
        return (
            f"{algorithm}: {self._describe_withheld()}; {self.labels_per_arm:.1f} labels per user and arm, "
            f"{100 * self.support:.0f} % of the pairs have one; {self.effective_size:,.0f} of {self.n_steps:,} rewards "
            + ("come from steps that offered every arm" if self.method == "queue" else "are labels")
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "withheld": self.withheld,
            "labels_per_user_and_arm": self.labels_per_arm,
            "support": self.support,
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
    return LabelUse(method, len(users) * n_steps, withheld, float(count.mean()), float(np.mean(count > 0)))


def combine_use(seeds: Sequence[LabelUse]) -> LabelUse:
    """Combine the splits of one log: the sum of the steps and the means of everything else."""
    withheld, labels, support = np.mean([(one.withheld, one.labels_per_arm, one.support) for one in seeds], axis=0)
    return LabelUse(seeds[0].method, sum(one.n_steps for one in seeds), float(withheld), float(labels), float(support))
