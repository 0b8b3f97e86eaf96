"""Reads an imported log as a history to learn from: one row per event, with features from the categories of its item.

An event read as a choice is a label for every category, 1 for those of its item and 0 for the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.choice.choose import N_STEPS
from lcb.evaluate.choice.item_features import can_choose, choose_item_features, is_open, list_open_specs
from lcb.evaluate.choice.item_queues import keep_last_labels
from lcb.evaluate.offline.labels import Reading, default_reading, read_labels
from lcb.event_log import EventLog, LogBuilder
from lcb.features import FeatureMap, fit_features, fit_many, uses_inputs
from lcb.learners.effects.rows import ItemRows
from lcb.learners.fitting import fit
from lcb.learners.shared.n_classes import is_better
from lcb.models import Likelihood
from lcb.progress import Progress, silent
from lcb.runtime.memory import need_memory
from lcb.stats import n_packed
from lcb.storage.logs.log import Log, open_log
from lcb.storage.tables.codes import hash_ids
from lcb.storage.tables.sample import UserSample, sample_hashes
from lcb.words import format_count

SPECS = ("one-hot", "multi-hot", "multi-hot+1")  # tried in this order, if no features are asked for
_COPIES = 3  # of the statistics, while classes are learned
_TRIED_USERS = 5_000  # users whose events choose the features
_TRIED_CLASSES = 4
_MOST_ITEMS, _ITEM_USERS = 100, 2_000  # to learn with a feature for each item: memory grows with users * items^2
_BATCH = 65_536
ITEMS_PER_FEATURE = 2  # or more, for items to have effects
MOST_FEATURES = 64  # a step of the effects costs d^3 for each user


@dataclass(frozen=True, eq=False)
class History:
    """The training rows of a log, the map that made their features, and why it was chosen (empty if it was asked)."""

    log: EventLog
    feature_map: FeatureMap
    why: str = ""
    rows: LabelledRows | None = None  # None: the events are choices
    n_events: NDArray[np.int64] | None = None  # of each user of `log`, if the events are choices
    sample: UserSample | None = None  # of the users, if not all were asked for
    n_logged: int | None = None  # events that were logged, if `log` has another number of labels

    def read(self, *, users: Collection[Hashable], keep_rows: bool) -> EventLog:
        """Return the training rows of these users only; of choices, those of all users."""
        if self.rows is None:
            return self.log
        return self.rows.of_users(np.array(list(users))).history(self.feature_map, keep_rows=keep_rows)

    def count_classes(self, progress: Progress = silent) -> tuple[int | None, list[str]]:
        """Return the number of classes if the features do not tell it, and why; else None: it is found as usual."""
        n_classes, why = (0, "") if self.rows is None else count_classes_by_item(self.rows, self.feature_map, progress)
        return (n_classes, [why]) if n_classes else (None, [])

    def item_rows(self) -> ItemRows | None:
        """Return the rewards by item; None if items cannot have effects.

        They need items that come again, and several items for each feature: else an effect is one with the features.
        """
        if self.rows is None:
            return None
        x, (_, user) = self.rows.map_items(self.feature_map), np.unique(self.rows.user, return_inverse=True)
        rows = ItemRows(self.rows.ids, x, user, self.rows.item, self.rows.reward, self.feature_map.names)
        enough = (rows.count > 0).sum() >= ITEMS_PER_FEATURE * x.shape[1] and x.shape[1] <= MOST_FEATURES
        return rows if rows.items_repeat and enough else None


def read_history(
    path: Path | Log,
    features: str | None = None,
    *,
    reading: Reading | None = None,
    like: float | None = None,
    n_users: int | None = None,
    progress: Progress = silent,
) -> History:
    """Read the events of the users of a log or its path, all or `n_users` drawn by a hash of their names.

    Without `features`, those that predict held-out users best are chosen.
    """
    log = path if isinstance(path, Log) else open_log(path, progress=progress, with_offers=False)
    sample = None if n_users is None else sample_hashes(hash_ids(log.users), n_users)
    if sample is not None:
        log = log.of_users(np.flatnonzero(sample.keep(log.users)))
    reading = reading or default_reading(log, like)
    if reading == "choices":
        if log.item_features is not None and not log.categories:
            raise InputError(
                "the events are choices and the items have numbers of their own: what was on offer and not taken is "
                "not known; give rewards, or categories (lcb import --item-categories)"
            )
        labels = read_labels(log, reading, like)
        users = np.flatnonzero(labels.n_events > 0)
        fitted = fit_features(features or SPECS[0], labels.arms, *labels.count_items(users))
        return History(
            labels.history(users, fitted.arms, fitted.names),
            fitted,
            n_events=labels.n_events[users],
            sample=sample,
            n_logged=log.n_events,
        )
    rows = LabelledRows.of_log(log, like)
    if features is not None and not is_open(features):
        fitted, why = rows.fit(features), ""
    else:
        fitted, why = choose_features(rows, features, progress)
    return History(rows.history(fitted), fitted, why, rows, sample=sample)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Events of items with categories, numbers of their own, or both: the user, the item and the reward of each."""

    names: tuple[str, ...]  # of the categories
    member: NDArray[Any]  # (n_items, C + m): 0/1 for the categories, then the numbers of the items' own
    user: Index  # (n,)
    item: Index  # (n,)
    reward: Floats  # (n,)
    inputs: tuple[str, ...] = ()  # (m,) names of the items' own numbers
    ids: tuple[str, ...] = ()  # of the items; () if they are not known

    @classmethod
    def of_log(cls, log: Log, like: float | None) -> LabelledRows:
        ids = tuple(str(id) for id in log.items.to_pylist())
        need_member_memory(log)
        if log.item_features is not None:
            user, item = log.user.astype(np.intp), log.item.astype(np.intp)
            categories = log.item_categories.toarray().astype(np.float32)
            member = np.concatenate([categories, log.item_features], axis=1) if log.categories else log.item_features
            reward = log.labels(like).astype(np.float64)
            return cls(log.categories, member, user, item, reward, log.inputs, ids)
        names, vectors = log.arms()
        kept = np.diff(vectors.indptr)[log.item] > 0
        if not kept.any():
            raise InputError("no event has an item with a category; give items with categories")
        reward = log.labels(like)[kept].astype(np.float64)
        user, item = log.user[kept].astype(np.intp), log.item[kept].astype(np.intp)
        return cls(names, vectors.toarray().astype(np.float64), user, item, reward, ids=ids)

    def fit(self, spec: str) -> FeatureMap:
        """Fit a map on the items of these events."""
        n = np.bincount(self.item, minlength=len(self.member))
        member, inputs = (self.member, self.inputs) if uses_inputs(spec) else (self.member[:, : len(self.names)], ())
        if not inputs and not self.names:
            raise InputError(f"features {spec}, but the items have no categories; give raw or pca:K")
        return fit_features(spec, self.names, member, n, inputs)

    def fit_each(self, specs: Sequence[str], users: Index) -> Iterator[tuple[FeatureMap, Floats]]:
        """Yield maps fitted on what these users met, and the features of all items."""
        n = np.bincount(self.item[np.isin(self.user, users)], minlength=len(self.member))
        return fit_many(specs, self.names, self.member, n, self.inputs)

    def last_labels(self) -> ItemRows:
        """Return one label for each user and item, the last one; users are numbered in their order."""
        n_items, (_, user) = len(self.member), np.unique(self.user, return_inverse=True)
        own = keep_last_labels(user, self.item, self.reward, n_items)
        return ItemRows(self.ids or tuple(map(str, range(n_items))), np.ones((n_items, 1)), *own)

    def map_items(self, features: FeatureMap) -> Floats:
        """Return the features of every item, (n_items, d)."""
        if features.is_learned:
            return features.arms
        return features(self.member if features.inputs else self.member[:, : len(self.names)])

    def of_users(self, users: Index) -> LabelledRows:
        kept = np.isin(self.user, users)
        return replace(self, user=self.user[kept], item=self.item[kept], reward=self.reward[kept])

    def by_item(self) -> LabelledRows:
        """Return the same events with every item as a category of its own."""
        items, item = np.unique(self.item, return_inverse=True)
        return LabelledRows(tuple(map(str, items)), np.eye(len(items)), self.user, item, self.reward)

    def history(self, features: FeatureMap, *, keep_rows: bool = False) -> EventLog:
        """Return one training row per event."""
        x, (names, user) = self.map_items(features), np.unique(self.user, return_inverse=True)
        d = features.n_features
        need_statistics_memory(len(names), len(self.member), d, len(user) * d if keep_rows else 0)
        builder = LogBuilder(features.n_features, features.names, keep_rows=keep_rows)
        positions = builder.add_users(names.tolist())[user]
        for i in range(0, len(user), _BATCH):
            part = slice(i, i + _BATCH)
            builder.add_at(positions[part], x[self.item[part]], self.reward[part])
        return builder.build()


def need_member_memory(log: Log) -> None:
    """Refuse items whose categories, as numbers beside those of their own, would not fit into memory."""
    need_memory(
        8.0 * log.n_items * (len(log.categories) + len(log.inputs)) * _COPIES,
        f"the {format_count(len(log.categories), 'category')} and {format_count(len(log.inputs), 'number')} of "
        f"{format_count(log.n_items, 'item')}",
        "import items with fewer categories or numbers",
    )


def need_statistics_memory(n_users: int, n_items: int, n_features: int, n_others: int, n_workers: int = 1) -> None:
    """Refuse statistics that would not fit into memory beside `n_others` numbers, with `n_workers` at a time."""
    beside = f", {n_workers} at a time," if n_workers > 1 else ""
    remedy = "describe items by fewer, such as --features pca:8, or learn from fewer users"
    need_memory(
        8.0 * n_workers * _COPIES * (n_users * n_packed(n_features) + n_items * n_features + n_others),
        f"statistics of {format_count(n_users, 'user')} over {format_count(n_features, 'feature')}{beside}",
        f"run one at a time (--workers 1), or {remedy}" if n_workers > 1 else remedy,
    )


def choose_features(
    rows: LabelledRows, features: str | None = None, progress: Progress = silent
) -> tuple[FeatureMap, str]:
    """Return the chosen features; of items with numbers of their own those that serve held-out users best.

    Of categories, or where too few users can be served, it is the first map that no later one beats at predicting users
    held out, with four classes.  One class would not do: what is linear in the mean over people need not be so in the
    classes.  `features` None or pca says what to choose from.
    """
    users = np.unique(rows.user)
    is_given = features is not None or bool(rows.inputs)
    specs = list_open_specs(features, len(rows.inputs), len(rows.names)) if is_given else SPECS
    is_plain = not is_given and (
        (rows.member[rows.item].sum(axis=1) <= 1).all() or rows.reward.min() == rows.reward.max()
    )
    if is_plain or len(users) < 4:
        return rows.fit(specs[-1] if rows.inputs else specs[0]), ""
    rng = np.random.default_rng(0)
    if rows.inputs and can_choose(labels := rows.last_labels()):
        spec, why = choose_item_features(labels, lambda few: rows.fit_each(specs, users[few]), N_STEPS, rng, progress)
        return rows.fit(spec), why
    tried = rng.permutation(users)[:_TRIED_USERS]
    likelihood: Likelihood | None = "gaussian" if rows.inputs else None  # counts per item are slow where items are many
    scores = {spec: _score_held_out(rows, rows.fit(spec), tried, rng, likelihood=likelihood) for spec in specs}
    best = specs[0]
    for spec in specs[1:]:
        best = spec if is_better(scores[best], scores[spec]) else best
    values = ", ".join(f"{spec} {score.mean():.3f}" for spec, score in scores.items())
    n_classes = min(_TRIED_CLASSES, len(tried) // 2)
    return rows.fit(best), f"{best} features: the log likelihood per held-out user is {values} ({n_classes} classes)"


def count_classes_by_item(rows: LabelledRows, features: FeatureMap, progress: Progress = silent) -> tuple[int, str]:
    """Return the number of classes found with a feature for each item and why; 0 and "" if `features` say enough.

    Rewards that are not linear in the features (rates that saturate, for instance) split classes: several bend together
    where one cannot, and their number is not the number of kinds of people.  A feature for each item describes any
    rewards, so it is used to count the classes if it predicts held-out users better, with one class or with four,
    whichever is better for each.
    """
    users, n_items = np.unique(rows.user), len(np.unique(rows.item))
    if rows.inputs:  # numbers describe items that nobody has seen; how many features they need was asked before
        return 0, ""
    n_described = len(np.unique(features(rows.member[np.unique(rows.item)]), axis=0))
    if n_items > _MOST_ITEMS or n_described == features.n_features or len(users) < 4 or np.ptp(rows.reward) == 0:
        return 0, ""
    rng = np.random.default_rng(0)
    tried = rng.permutation(users)[:_ITEM_USERS]
    by_item = rows.of_users(tried).by_item()
    saturated = by_item.fit(SPECS[0])
    before, after = (
        max((_score_held_out(own, fitted, tried, rng, n) for n in (1, _TRIED_CLASSES)), key=np.mean)
        for own, fitted in ((rows, features), (by_item, saturated))
    )
    if not is_better(before, after):
        return 0, ""
    found = fit(by_item.history(saturated, keep_rows=True), rng=rng, progress=progress).models.n_classes
    return found, (
        f"{format_count(found, 'class')}, found with a feature for each item, which predicts held-out users better "
        f"({after.mean():.3f} instead of {before.mean():.3f}): rewards are not linear in {features.spec} features"
    )


def _score_held_out(
    rows: LabelledRows,
    features: FeatureMap,
    users: Index,
    rng: np.random.Generator,
    n_classes: int = _TRIED_CLASSES,
    likelihood: Likelihood | None = None,
) -> Floats:
    """Return the log likelihood of each user of the second half under classes learned from the first half."""
    half = len(users) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learning = rows.of_users(users[:half]).history(features)
        models = fit(learning, min(n_classes, half), rng=rng, n_starts=2, likelihood=likelihood).models
    return models.user_scores(rows.of_users(users[half:]).history(features))
