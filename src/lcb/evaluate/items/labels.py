"""Labels of users for items, and the test users who can be served from them.

    labels     each event has a reward (or a rating, 1 if at least `like`): the label of its item
    choices    each event is an item that the user took: a label 1, and 0 for the other candidates, see `candidates`

A user has one label for an item, the last one logged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.choice.item_queues import keep_last_labels
from lcb.evaluate.items.candidates import add_candidates
from lcb.evaluate.items.favour import Favour, measure_favour
from lcb.evaluate.offline.history import need_member_memory
from lcb.evaluate.offline.labels import Reading
from lcb.learners.effects.rows import ItemRows
from lcb.storage.logs.log import Log

_CANDIDATES = 0x1B  # part of the seed of the items drawn
_PER_CHOICE = 5  # labels that one item taken counts for, where a test needs so many labels of a user


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
    are_choices: bool = False
    favour: Favour | None = None  # None: choices, or the log has no propensities

    @property
    def n_events(self) -> NDArray[np.int64]:
        """Labels of each user, (users,); of choices at most 5 for each item taken: the other candidates say little."""
        n = np.bincount(self.user)
        return (
            np.minimum(n, _PER_CHOICE * np.bincount(self.user, self.reward).astype(np.int64)) if self.are_choices else n
        )

    @cached_property
    def member_and_vectors(self) -> NDArray[np.float32]:
        """The categories of the items, then their own numbers, (I, C + m)."""
        if self.vectors is None:
            return self.member.astype(np.float32)
        return np.concatenate([self.member.astype(np.float32), self.vectors], axis=1) if self.names else self.vectors

    def rows(self, users: Index, x: Floats, features: tuple[str, ...]) -> ItemRows:
        """Return the labels of these users to learn from, with the items' features x (I, d)."""
        whole = ItemRows(self.ids, x, self.user, self.item, self.reward, features)
        return whole.take_users(users)


def read_item_labels(log: Log, reading: Reading, like: float | None = None, seed: int = 0) -> ItemLabels:
    """Read the labels of a log; of choices, `seed` draws the other candidates."""
    if reading == "choices" and like is not None:
        raise InputError(f"like {like:g} with reading choices, which ignores ratings; leave like out, or read labels")
    user, item = log.user.astype(np.int64), log.item.astype(np.int64)
    reward: Floats = np.ones(len(user)) if reading == "choices" else log.labels(like).astype(np.float64)
    user, item, reward = keep_last_labels(user, item, reward, log.n_items)
    notes: tuple[str, ...] = ()
    if reading == "choices":
        user, item, reward, note = add_candidates(user, item, log, np.random.default_rng((seed, _CANDIDATES)))
        notes = (note,)
    if len(np.unique(reward)) < 2:
        raise InputError(f"every label is {reward[0]:g}, so no algorithm can do better than another; log other rewards")
    need_member_memory(log)
    ids = tuple(str(id) for id in log.items.to_pylist())
    member = log.item_categories.toarray().astype(np.float64)
    own = log.item_features, log.inputs
    favour = None if reading == "choices" else measure_favour(log, log.labels(like).astype(np.float64))
    return ItemLabels(ids, tuple(log.categories), member, user, item, reward, notes, *own, reading == "choices", favour)
