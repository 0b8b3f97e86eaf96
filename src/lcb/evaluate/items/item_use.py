"""What an evaluation over items rests on: the labels of its test users, and what training users say of their items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.evaluate.choice.item_queues import ItemQueues
from lcb.evaluate.offline.label_use import Use

_LEAST_KNOWN = 0.5  # of the labels, whose items training users have; with fewer, items are new to every algorithm


@dataclass(frozen=True, kw_only=True)
class ItemUse(Use):
    """The same for all algorithms of one split; every item is offered until taken, so no step is withheld."""

    labels_per_user: float
    taken: float  # share of a test user's labels that a whole run takes
    known: float  # share of the labels whose items have training rewards
    ceiling: float  # the mean reward of who takes the best labels

    @classmethod
    def measure(cls, queues: ItemQueues, count: Floats) -> ItemUse:
        n = np.diff(queues.begin)
        user = np.repeat(np.arange(len(n)), n)
        order = np.lexsort((-queues.reward, user))
        best = order[np.arange(len(order)) - queues.begin[user] < queues.n_steps]
        return cls(
            n_steps=queues.n_steps * len(n),
            labels_per_user=float(n.mean()),
            taken=float(np.mean(queues.n_steps / n)),
            known=float(np.mean(count[queues.item] > 0)),
            ceiling=float(queues.reward[best].mean()),
        )

    @property
    def shortfall(self) -> str | None:
        if self.known < _LEAST_KNOWN:
            return (
                f"{100 * (1 - self.known):.0f} % of the test users' items have no reward of a training user, so "
                "effects and popularity know nothing of them; train on more users"
            )
        return None

    def describe(self, algorithm: str) -> str:
        """Return one sentence about this algorithm."""
        return (
            f"{algorithm}: every reward is a label, used once; {self.labels_per_user:.0f} labels per test user, of "
            f"which {100 * self.taken:.0f} % are taken; training users know {100 * self.known:.0f} % of these items; "
            f"the most that the labels allow is {self.ceiling:.3f} per step"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "withheld": self.withheld,
            "labels_per_user": self.labels_per_user,
            "taken": self.taken,
            "known": self.known,
            "ceiling": self.ceiling,
            "effective_size": self.effective_size,
            "shortfall": self.shortfall,
        }
