"""Serves users on their own items, each offered until taken, and each label used once.

All algorithms meet the same users with their items in the same order, which is random, so that ties are too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.choice.queues import Queues
from lcb.evaluate.choice.serving import serve
from lcb.learners.effects.rows import ItemRows
from lcb.models import LatentModels
from lcb.words import format_count

LABELS_PER_STEP = 3  # of a user who is served, so that there is a choice at every step
FEWEST_USERS = 200  # with as many labels; with fewer, steps are lowered


@dataclass(frozen=True, eq=False)
class ItemQueues:
    """The items of users to be served; the items of user u are begin[u] to begin[u + 1]."""

    begin: Index = field(repr=False)  # (U + 1,)
    item: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    n_steps: int

    @property
    def n_users(self) -> int:
        return len(self.begin) - 1


def draw_item_queues(rows: ItemRows, n_steps: int, rng: np.random.Generator) -> ItemQueues:
    """Put the items of every user of `rows` into a random order."""
    order = np.lexsort((rng.random(len(rows.user)), rows.user))
    begin = np.searchsorted(rows.user, np.arange(rows.n_users + 1))
    return ItemQueues(begin, rows.item[order], rows.reward[order], n_steps)


def serve_classes(models: LatentModels, x: Floats, bonus: float, queues: ItemQueues, effect: Floats) -> Floats:
    """Return the mean reward of each user under the rule of `LearnedClasses` with item effects (I,), compiled."""
    size, steps = np.ones(len(queues.item), np.int64), np.full(queues.n_users, queues.n_steps)
    own = Queues(x, queues.begin, queues.item, queues.reward[:, None], size, steps, is_filled=False)
    return serve(models, bonus, own, effect)


def lower_steps(n_labels: NDArray[np.int64], n_steps: int) -> int:
    """Return the steps, lowered until 200 users have 3 times as many labels, or as many users as have 3."""
    wanted = min(FEWEST_USERS, int((n_labels >= LABELS_PER_STEP).sum()))
    if wanted < 4:
        raise InputError(
            f"{format_count(wanted, 'user')} of the log have {LABELS_PER_STEP} labels or more, and a test over "
            "items needs at least 4; log more events per user"
        )
    reached = int(np.sort(n_labels)[::-1][wanted - 1]) // LABELS_PER_STEP
    return max(1, min(n_steps, reached))


def keep_last_labels(user: Index, item: Index, reward: Floats, n_items: int) -> tuple[Index, Index, Floats]:
    """Return one label for each user and item, the last one, sorted by user and item.

    >>> keep_last_labels(np.array([1, 0, 1]), np.array([2, 0, 2]), np.array([0.0, 1.0, 1.0]), 3)
    (array([0, 1]), array([0, 2]), array([1., 1.]))
    """
    pair, last = np.unique((user * n_items + item)[::-1], return_index=True)
    own, of = np.divmod(pair, n_items)
    return own, of, reward[::-1][last]
