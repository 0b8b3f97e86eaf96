"""Chooses the features of items by serving held-out users on their own items.

Features and five point classes are learned from one half of at most 4,000 users, those with the most labels first, and
serve the other half; then the other way round.  The fewest features within one standard error of the best are chosen,
the differences paired by user.  Item effects, the same for all features, stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from lcb.arrays import Floats, Index
from lcb.evaluate.choice.candidates import DEFAULT_BONUS, Classes
from lcb.evaluate.choice.choose import pick_simplest
from lcb.evaluate.choice.item_queues import LABELS_PER_STEP, draw_item_queues, lower_steps, serve_classes
from lcb.features import FeatureMap
from lcb.learners.effects.learn import start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.progress import Progress, silent
from lcb.words import format_count

DIRECTIONS = (2, 4, 8, 16, 32)  # of the items' own numbers
MOST_USERS = 4_000
FEWEST_USERS = 20  # with 3 labels or more, to be served
_CLASSES = Classes(personal=False, n_classes=5)


@dataclass(frozen=True)
class _Features:
    """Features as a candidate of a choice: fewer come first."""

    spec: str
    n_features: int

    @property
    def rank(self) -> tuple[int, str]:
        return self.n_features, self.spec


def is_open(features: str | None) -> bool:
    """Whether features are to be chosen: none were asked for, or pca without a number of directions."""
    return features in (None, "pca", "pca+1")


def list_open_specs(features: str | None, n_inputs: int, n_categories: int = 0) -> tuple[str, ...]:
    """Return the features to try, for which `is_open` holds: at most 32 directions, beside the categories.

    Directions are of the items' own numbers, or of the categories where there are none.

    >>> list_open_specs(None, 384), list_open_specs(None, 5, 3)
    (('pca:2+1', 'pca:4+1', 'pca:8+1', 'pca:16+1', 'pca:32+1'), ('one-hot+1', 'pca:2+1', 'pca:4+1', 'raw+1'))
    >>> list_open_specs("pca", 384), list_open_specs("pca+1", 0, 3)
    (('pca:2', 'pca:4', 'pca:8', 'pca:16', 'pca:32'), ('pca:2+1', 'pca:3+1'))
    """
    if features is not None:
        most = n_inputs or n_categories
        return tuple(features.replace("pca", f"pca:{k}") for k in sorted({min(k, most) for k in DIRECTIONS}))
    directions = tuple(f"pca:{k}+1" for k in DIRECTIONS if k < n_inputs)
    whole = ("raw+1",) if n_inputs <= max(DIRECTIONS) else ()
    return (*(("one-hot+1",) if n_categories else ()), *directions, *whole)


def can_choose(rows: ItemRows) -> bool:
    """Whether enough users have labels to be served, and labels differ."""
    n_labels = np.bincount(rows.user)
    return int((n_labels >= LABELS_PER_STEP).sum()) >= FEWEST_USERS and bool(np.ptp(rows.reward) > 0)


def choose_item_features(
    rows: ItemRows,
    fit_each: Callable[[Index], Iterable[tuple[FeatureMap, Floats]]],
    n_steps: int,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> tuple[str, str]:
    """Return the chosen features and why.

    `rows` has one label for each user and item; its x is not used.  `fit_each` yields the maps to try, fitted on what
    users at these positions met, and the features of all items, (I, d).
    """
    count = np.bincount(rows.user)
    n_steps = lower_steps(count, n_steps)
    order = np.lexsort((rng.random(len(count)), -count))[: min(MOST_USERS, np.count_nonzero(count))]
    halves = np.array_split(rng.permutation(order), 2)
    found: dict[tuple[_Features, float], list[Floats]] = {}
    n_done = 0
    for past, served in (halves, halves[::-1]):
        able = served[count[served] >= LABELS_PER_STEP * n_steps]
        able = able if len(able) >= 2 else served
        learning = replace(rows.take_users(past), x=np.ones((len(rows.ids), 1)), features=())
        effect = start_effects(learning).effect
        queues = draw_item_queues(rows.take_users(able), min(n_steps, int(count[able].min())), rng)
        seed = int(rng.integers(2**32))
        for fitted, x in fit_each(past):
            own = replace(learning, x=x).history(effect)
            models = _CLASSES.learn_trial(own, np.random.default_rng(seed))
            one = _Features(fitted.spec, fitted.n_features), DEFAULT_BONUS
            found.setdefault(one, []).append(serve_classes(models, x, DEFAULT_BONUS, queues, effect))
            n_done += 1
            progress("features tried", n_done, None)
    scores = {one: np.concatenate(parts) for one, parts in found.items()}
    (chosen, bonus), _ = pick_simplest(scores)
    return chosen.spec, _explain(chosen.spec, scores, len(scores[chosen, bonus]), n_steps)


def _explain(spec: str, scores: dict[tuple[_Features, float], Floats], n_users: int, n_steps: int) -> str:
    values = ", ".join(f"{one.spec} {value.mean():.4g}" for (one, _), value in sorted(scores.items(), key=_by_rank))
    return (
        f"{spec} features: the reward per step of {format_count(n_users, 'held-out user')}, served for "
        f"{format_count(n_steps, 'step')} on their own items, is {values}; the fewest within one standard error of the "
        "best"
    )


def _by_rank(one: tuple[tuple[_Features, float], Floats]) -> tuple[int, str]:
    return one[0][0].rank
