"""Labels of users for items, and the test users who can be served from them.

    labels     each event has a reward (or a rating, 1 if at least `like`): the label of its item
    choices    each event is an item that the user took: a label 1, and 0 for `N_BESIDE` items drawn at random that the
               user did not take.  These may be items the user never saw, and drawn uniformly they are less popular than
               what was taken: popularity looks better than it would among the items that are really on offer.

A user has one label for an item, the last one logged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.offline.labels import Reading
from lcb.learners.effects.rows import ItemRows
from lcb.storage.logs.log import Log
from lcb.words import format_count

N_BESIDE = 4  # items drawn beside one that was taken
LABELS_PER_STEP = 3  # of a test user, so that there is a choice at every step
FEWEST_USERS = 200  # with as many labels; with fewer, steps are lowered
_BESIDE = 0x1B  # part of the seed of the items drawn
CHOICES_BIAS = (
    f"read as choices: {N_BESIDE} items drawn at random stand beside each item taken, as labels 0; users may never "
    "have seen them, and what is taken is more popular than what is drawn, which flatters popularity and item effects"
)


@dataclass(frozen=True, eq=False)
class ItemLabels:
    """One row per label, sorted by user."""

    ids: tuple[str, ...] = field(repr=False)  # of all items, (I,)
    names: tuple[str, ...]  # of the categories
    member: Floats = field(repr=False)  # (I, C) 0/1 categories of the items; C is 0 without categories
    user: Index = field(repr=False)  # (n,) never falling
    item: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    notes: tuple[str, ...] = ()
    vectors: NDArray[np.float32] | None = field(default=None, repr=False)  # (I, m) numbers of the items' own
    inputs: tuple[str, ...] = ()  # (m,) their names

    @property
    def n_events(self) -> NDArray[np.int64]:
        """Labels of each user, (users,)."""
        return np.bincount(self.user)

    def rows(self, users: Index, x: Floats, features: tuple[str, ...]) -> ItemRows:
        """Return the labels of these users to learn from, with the items' features x (I, d)."""
        whole = ItemRows(self.ids, x, self.user, self.item, self.reward, features)
        return whole.take_users(users)

    def lower_steps(self, n_steps: int) -> int:
        """Return the steps, lowered until 200 users have 3 times as many labels, or as many users as have 3."""
        n = self.n_events
        wanted = min(FEWEST_USERS, int((n >= LABELS_PER_STEP).sum()))
        if wanted < 4:
            raise InputError(
                f"{format_count(wanted, 'user')} of the log have {LABELS_PER_STEP} labels or more, and a test over "
                "items needs at least 4; log more events per user"
            )
        reached = int(np.sort(n)[::-1][wanted - 1]) // LABELS_PER_STEP
        return max(1, min(n_steps, reached))


def read_item_labels(log: Log, reading: Reading, like: float | None = None, seed: int = 0) -> ItemLabels:
    """Read the labels of a log; of choices, `seed` draws the items beside those taken."""
    if reading == "choices" and like is not None:
        raise InputError(f"like {like:g} with reading choices, which ignores ratings; leave like out, or read labels")
    user, item = log.user.astype(np.int64), log.item.astype(np.int64)
    reward: Floats = np.ones(len(user)) if reading == "choices" else log.labels(like).astype(np.float64)
    pair, last = np.unique((user * log.n_items + item)[::-1], return_index=True)
    user, item = np.divmod(pair, log.n_items)
    reward = reward[::-1][last]
    notes: tuple[str, ...] = ()
    if reading == "choices":
        user, item, reward = _add_items_beside(pair, log.n_items, np.random.default_rng((seed, _BESIDE)))
        notes = (CHOICES_BIAS,)
    if len(np.unique(reward)) < 2:
        raise InputError(f"every label is {reward[0]:g}, so no algorithm can do better than another; log other rewards")
    ids = tuple(str(id) for id in log.items.to_pylist())
    member = log.item_categories.toarray().astype(np.float64)
    own = log.item_features, log.inputs
    return ItemLabels(ids, tuple(log.categories), member, user, item, reward, notes, *own)


def _add_items_beside(pair: Index, n_items: int, rng: np.random.Generator) -> tuple[Index, Index, Floats]:
    """Return users, items and labels, with items drawn from those that someone took."""
    taken = np.unique(pair % n_items)
    drawn = np.repeat(pair // n_items, N_BESIDE) * n_items + taken[rng.integers(0, len(taken), N_BESIDE * len(pair))]
    beside = np.setdiff1d(drawn, pair)
    both = np.concatenate([pair, beside])
    order = np.argsort(both, kind="stable")
    user, item = np.divmod(both[order], n_items)
    return user, item, (order < len(pair)).astype(np.float64)
