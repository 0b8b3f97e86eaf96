"""Reads an imported log as a history to learn from: one row per event, with features from the categories of its item.

An event read as a choice is a label for every category, 1 for those of its item and 0 for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.offline.labels import Reading, default_reading, read_labels
from lcb.event_log import EventLog, LogBuilder
from lcb.features import FeatureMap, fit_features
from lcb.learners.fitting import fit
from lcb.learners.shared.n_classes import is_better
from lcb.progress import Progress, silent
from lcb.storage.logs.log import Log, open_log

SPECS = ("one-hot", "multi-hot", "multi-hot+1")  # tried in this order, if no features are asked for
_TRIED_USERS = 5_000  # users whose events choose the features
_BATCH = 65_536


@dataclass(frozen=True, eq=False)
class History:
    """The training rows of a log, the map that made their features, and why it was chosen (empty if it was asked)."""

    log: EventLog
    feature_map: FeatureMap
    why: str = ""
    rows: LabelledRows | None = None  # None: the events are choices

    def read(self, *, users: Collection[Hashable], keep_rows: bool) -> EventLog:
        """Return the training rows of these users only; of choices, those of all users."""
        if self.rows is None:
            return self.log
        return self.rows.of_users(np.array(list(users))).history(self.feature_map, keep_rows=keep_rows)


def read_history(
    path: Path,
    features: str | None = None,
    *,
    reading: Reading | None = None,
    like: float | None = None,
    progress: Progress = silent,
) -> History:
    """Read the events of all users of a log; without `features`, those that predict held-out users best."""
    log = open_log(path, progress=progress, with_offers=False)
    reading = reading or default_reading(log, like)
    if reading == "choices":
        labels = read_labels(log, reading, like)
        users = np.flatnonzero(labels.n_events > 0)
        fitted = fit_features(features or SPECS[0], labels.arms, *labels.count_items(users))
        return History(labels.history(users, fitted.arms, fitted.names), fitted)
    rows = LabelledRows.of_log(log, like)
    if features is not None:
        fitted, why = rows.fit(features), ""
    else:
        fitted, why = choose_features(rows)
    return History(rows.history(fitted), fitted, why, rows)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Events of items with categories: the user, the item and the reward of each."""

    names: tuple[str, ...]  # of the categories
    member: Floats  # (n_items, C) 0/1
    user: Index  # (n,)
    item: Index  # (n,)
    reward: Floats  # (n,)

    @classmethod
    def of_log(cls, log: Log, like: float | None) -> LabelledRows:
        names, vectors = log.arms()
        kept = np.diff(vectors.indptr)[log.item] > 0
        if not kept.any():
            raise InputError("no event has an item with a category; give items with categories")
        reward = log.labels(like)[kept].astype(np.float64)
        if reward.min() == reward.max():
            raise InputError(f"every label is {reward[0]:g}: nothing can be learned; choose another `like`")
        user, item = log.user[kept].astype(np.intp), log.item[kept].astype(np.intp)
        return cls(names, vectors.toarray().astype(np.float64), user, item, reward)

    def fit(self, spec: str) -> FeatureMap:
        """Fit a map on the items of these events."""
        return fit_features(spec, self.names, self.member, np.bincount(self.item, minlength=len(self.member)))

    def of_users(self, users: Index) -> LabelledRows:
        kept = np.isin(self.user, users)
        return LabelledRows(self.names, self.member, self.user[kept], self.item[kept], self.reward[kept])

    def history(self, features: FeatureMap, *, keep_rows: bool = False) -> EventLog:
        """Return one training row per event."""
        x, (names, user) = features(self.member), np.unique(self.user, return_inverse=True)
        builder = LogBuilder(features.n_features, features.names, keep_rows=keep_rows)
        positions = builder.add_users(names.tolist())[user]
        for i in range(0, len(user), _BATCH):
            part = slice(i, i + _BATCH)
            builder.add_at(positions[part], x[self.item[part]], self.reward[part])
        return builder.build()


def choose_features(rows: LabelledRows) -> tuple[FeatureMap, str]:
    """Return the first map that no later one of `SPECS` beats at predicting users held out, with one class for all.

    The mean reward of classes that are linear in the features is linear in them too, so one class is enough to compare.
    """
    users = np.unique(rows.user)
    if (rows.member[rows.item].sum(axis=1) <= 1).all() or len(users) < 4:
        return rows.fit(SPECS[0]), ""
    rng = np.random.default_rng(0)
    tried = rng.permutation(users)[:_TRIED_USERS]
    half = len(tried) // 2
    learning, held_out = rows.of_users(tried[:half]), rows.of_users(tried[half:])
    scores = {}
    for spec in SPECS:
        fitted = rows.fit(spec)
        models = fit(learning.history(fitted), 1, rng=rng).models
        scores[spec] = models.user_scores(held_out.history(fitted))
    best = SPECS[0]
    for spec in SPECS[1:]:
        best = spec if is_better(scores[best], scores[spec]) else best
    values = ", ".join(f"{spec} {score.mean():.3f}" for spec, score in scores.items())
    return rows.fit(best), f"{best} features: the log likelihood per held-out user is {values} (one class for all)"
