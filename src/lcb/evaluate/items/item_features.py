"""Features of items for an evaluation over items: from categories, from numbers of their own such as an embedding, or
factors learned from the training users."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.choice.item_features import choose_item_features, is_open, list_open_specs
from lcb.evaluate.items.labels import ItemLabels
from lcb.features import FeatureMap, fit_features, fit_many, uses_inputs
from lcb.learners.effects.factors import learn_factors
from lcb.learners.effects.learn import start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.models.item_effects import ItemEffects
from lcb.progress import Progress, silent

N_FACTORS = (2, 5, 10)  # tried, where items have no categories and nothing was asked for
_FACTORS = re.compile(r"factors:(\d+)")


def list_specs(labels: ItemLabels, features: str | None) -> list[str]:
    """Return the features to try: those asked for, else of the items' own numbers, else categories, else factors.

    `pca` and `factors` ask for a number that is chosen.
    """
    n_categories, n_inputs = len(labels.names), len(labels.inputs)
    if features == "factors" or (features is None and not n_inputs + n_categories):
        return [f"factors:{k}" for k in N_FACTORS]
    if features is None and not n_inputs:
        return ["one-hot"]
    if is_open(features) and n_inputs + n_categories:
        return list(list_open_specs(features, n_inputs, n_categories))
    assert features is not None
    if not _FACTORS.fullmatch(features) and not n_categories and not (n_inputs and uses_inputs(features)):
        raise InputError(f"features {features} come from categories, and the items have none; give factors:K")
    return [features]


def count_features(spec: str, n_categories: int, n_inputs: int) -> int:
    """Return the number of features of a specification, for an estimate of memory."""
    found = re.search(r":(\d+)", spec)
    own = n_inputs if spec.startswith("raw") else 0
    own = int(found[1]) if found else own
    return own + 1 + (0 if spec.startswith("factors") else n_categories)


def choose_specs(
    labels: ItemLabels, users: Index, specs: list[str], n_steps: int, rng: np.random.Generator
) -> tuple[list[str], str]:
    """Return the features that serve held-out users of these best and why, where features are of the items' own
    numbers; factors are chosen together with the classes."""
    if len(specs) < 2 or any(_FACTORS.fullmatch(spec) for spec in specs):
        return specs, ""
    rows = labels.rows(users, np.ones((len(labels.ids), 1)), ())

    def fit_each(few: Index) -> Iterable[tuple[FeatureMap, Floats]]:
        own = rows.take_users(few)
        return fit_many(specs, labels.names, labels.member_and_vectors, own.count, labels.inputs)

    spec, why = choose_item_features(rows, fit_each, n_steps, rng)
    return [spec], why


def learn_item_features(
    labels: ItemLabels, users: Index, spec: str, rng: np.random.Generator
) -> tuple[ItemRows, ItemEffects]:
    """Return the labels of these users with features x (I, d), and the item effects beside these features."""
    factors = _FACTORS.fullmatch(spec)
    if factors is None:
        count = np.bincount(labels.item[np.isin(labels.user, users)], minlength=len(labels.ids))
        inputs = labels.inputs if uses_inputs(spec) else ()
        member: NDArray[Any] = labels.member_and_vectors if inputs else labels.member
        fitted = fit_features(spec, labels.names, member, count, inputs)
        rows = labels.rows(users, fitted(member), fitted.names)
        return rows, start_effects(rows)
    effects, q, rows = learn_factors_of(labels, users, int(factors[1]), rng)
    return replace(rows, x=add_constant(q), features=name_factors(q.shape[1])), effects


def learn_factors_of(
    labels: ItemLabels, users: Index, n_factors: int, rng: np.random.Generator, progress: Progress = silent
) -> tuple[ItemEffects, Floats, ItemRows]:
    """Return the effects of items beside a constant, their factors (I, k), and the labels of these users.

    An item without a label of theirs has the mean of the factors.
    """
    rows = labels.rows(users, np.ones((len(labels.ids), 1)), ("constant",))
    effects = start_effects(rows, progress=progress)
    q, seen = learn_factors(rows, effects.effect, n_factors, rng=rng, progress=progress).q, rows.count > 0
    return effects, np.where(seen[:, None], q, q[seen].mean(axis=0)), rows


def add_constant(q: Floats) -> Floats:
    return np.column_stack([q, np.ones(len(q))])


def name_factors(n_factors: int) -> tuple[str, ...]:
    return (*(f"factor{i + 1}" for i in range(n_factors)), "constant")
