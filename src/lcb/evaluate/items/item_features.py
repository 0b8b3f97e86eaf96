"""Features of items for an evaluation over items: from categories, from numbers of their own such as an embedding, or
factors learned from the training users."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.errors import InputError
from lcb.evaluate.items.labels import ItemLabels
from lcb.features import fit_features, uses_inputs
from lcb.item_effects import ItemEffects
from lcb.learners.effects.factors import learn_factors
from lcb.learners.effects.learn import start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.memory import need_memory
from lcb.progress import Progress, silent
from lcb.stats import n_packed
from lcb.words import format_count

DIRECTIONS = (2, 8, 32)  # of the items' own numbers, tried likewise
_COPIES = 3  # of the statistics, while classes are learned
N_FACTORS = (2, 5, 10)  # tried, where items have no categories and nothing was asked for
_FACTORS = re.compile(r"factors:(\d+)")


def list_specs(labels: ItemLabels, features: str | None) -> list[str]:
    """Return the features to try: those asked for, else of the items' own numbers, else categories, else factors."""
    if features is not None:
        if not _FACTORS.fullmatch(features) and not labels.names and not (labels.inputs and uses_inputs(features)):
            raise InputError(f"features {features} come from categories, and the items have none; give factors:K")
        return [features]
    if labels.inputs:
        m = len(labels.inputs)
        return [
            *(["one-hot"] if labels.names else []),
            *(f"pca:{k}+1" for k in sorted({min(k, m) for k in DIRECTIONS})),
        ]
    return ["one-hot"] if labels.names else [f"factors:{k}" for k in N_FACTORS]


def learn_item_features(
    labels: ItemLabels, users: Index, spec: str, rng: np.random.Generator
) -> tuple[ItemRows, ItemEffects]:
    """Return the labels of these users with features x (I, d), and the item effects beside these features."""
    factors = _FACTORS.fullmatch(spec)
    if factors is None:
        count = np.bincount(labels.item[np.isin(labels.user, users)], minlength=len(labels.ids))
        member: NDArray[Any] = labels.member
        inputs = labels.inputs if uses_inputs(spec) else ()
        if inputs and labels.vectors is not None:
            member = np.concatenate([member.astype(np.float32), labels.vectors], axis=1)
        fitted = fit_features(spec, labels.names, member, count, inputs)
        need_memory(
            8 * len(users) * n_packed(fitted.n_features) * _COPIES,
            f"statistics of {format_count(len(users), 'user')} over {format_count(fitted.n_features, 'feature')}",
            "describe items by fewer, such as --features pca:16",
        )
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
