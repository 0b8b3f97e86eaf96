"""Histories whose features are factors, learned from the rewards of items that have neither categories nor numbers.

The number of factors is chosen together with the classes and the bonus, by serving held-out users on their own items
(`choose_classes`); how far factors are shrunk follows from the rewards (`lcb.learners.effects.factors`).  The feature
map knows items by their ids.
"""

from __future__ import annotations

import re

import numpy as np

from lcb.errors import InputError
from lcb.evaluate.choice.choose import N_STEPS, Choice
from lcb.evaluate.choice.item_queues import lower_steps
from lcb.evaluate.items.choose_classes import choose_classes
from lcb.evaluate.items.item_features import N_FACTORS, learn_factors_of
from lcb.evaluate.items.labels import ItemLabels, read_item_labels
from lcb.evaluate.offline.history import ITEMS_PER_FEATURE, History, LabelledRows
from lcb.evaluate.offline.labels import Reading, default_reading
from lcb.features import fit_factors
from lcb.progress import Progress, silent
from lcb.storage.logs.log import Log
from lcb.storage.tables.codes import hash_ids
from lcb.storage.tables.sample import sample_hashes

MOST_ONE_HOT = 100  # items that can each be a feature; with more, features are factors
_MOST_ITEMS = 100_000  # the map of the models names every item
_FEWEST_USERS = 20  # with as many labels as a test needs
_SPEC = re.compile(r"factors(?::(\d+))?")


def needs_factors(log: Log, reading: Reading | None, like: float | None) -> bool:
    """Whether the items of a log have rewards, but nothing that describes them, and are too many for a feature each."""
    if log.categories or log.item_features is not None or (reading or default_reading(log, like)) == "choices":
        return False
    n = np.bincount(log.item, minlength=log.n_items)
    n_items = int((n > 0).sum())
    return n_items > MOST_ONE_HOT and log.n_events >= 2 * n_items and int((log.counts >= 3).sum()) >= _FEWEST_USERS


def read_factor_history(
    log: Log,
    spec: str,
    *,
    reading: Reading | None = None,
    like: float | None = None,
    n_users: int | None = None,
    n_classes: int | None = None,
    chooses: bool = True,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[History, Choice | None]:
    """Learn factors from the users of a log, all or `n_users`; return the history with them, and the classes chosen.

    `spec` is factors:K, or factors, whose number is chosen.  If that is given and not `chooses`, no classes are chosen.
    """
    sample = None if n_users is None else sample_hashes(hash_ids(log.users), n_users)
    if sample is not None:
        log = log.of_users(np.flatnonzero(sample.keep(log.users)))
    labels = read_item_labels(log, reading or default_reading(log, like), like, seed)
    specs = _list_specs(spec, labels)
    users, rng = np.flatnonzero(labels.n_events > 0), np.random.default_rng(seed)
    chosen, choice = specs[0], None
    if chooses or len(specs) > 1:
        steps = lower_steps(labels.n_events, N_STEPS)
        chosen, classes, bonus, why_chosen = choose_classes(
            labels, users, specs, steps, n_classes, rng, progress=progress
        )
        choice = Choice(classes, bonus, why_chosen)
    q = learn_factors_of(labels, users, int(chosen.partition(":")[2]), rng, progress)[1]
    features = fit_factors(labels.ids, q)
    nothing = np.empty((len(labels.ids), 0))
    rows = LabelledRows((), nothing, labels.user, labels.item, labels.reward, features.names, labels.ids)
    told = f"{chosen} features, learned from the rewards of {len(labels.ids):,} items"
    why = "; ".join((told, *labels.notes))
    history = History(rows.history(features), features, why, rows, sample=sample, n_logged=log.n_events)
    return history, choice


def _list_specs(spec: str, labels: ItemLabels) -> list[str]:
    found = _SPEC.fullmatch(spec)
    if not found:
        raise InputError(f"features {spec!r}; give factors:K, as factors:5, or factors, whose number is chosen")
    n = np.bincount(labels.item, minlength=len(labels.ids))
    n_items = int((n > 0).sum())
    if len(labels.reward) < 2 * n_items:
        raise InputError(
            f"{len(labels.reward):,} rewards of {n_items:,} items: factors need two rewards for each item or more; log "
            "more, or describe items by categories (lcb import --item-categories)"
        )
    if len(labels.ids) > _MOST_ITEMS:
        raise InputError(
            f"factors of {len(labels.ids):,} items; the models name at most {_MOST_ITEMS:,}: import fewer, those with "
            "the most events"
        )
    most = n_items // ITEMS_PER_FEATURE - 1  # beside a constant
    numbers = [k for k in N_FACTORS if k <= most] if found[1] is None else [int(found[1])]
    if not numbers or not 1 <= max(numbers) <= most:
        raise InputError(f"features {spec}: {n_items:,} items with rewards can have factors:1 to factors:{most}")
    return [f"factors:{k}" for k in numbers]
