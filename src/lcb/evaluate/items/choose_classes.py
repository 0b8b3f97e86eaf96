"""Chooses features, classes and bonus for an evaluation over items by serving held-out training users on their items.

Item effects, features and classes are learned from one half of at most 4,000 users, those with the most labels first,
and serve the other half; then the other way round.  The simplest candidate within one standard error of the best is
chosen, as by `lcb.evaluate.choice`.
"""

from __future__ import annotations

import warnings

import numpy as np

from lcb.arrays import Floats, Index
from lcb.errors import ConvergenceWarning
from lcb.evaluate.choice.candidates import BONUSES, Classes
from lcb.evaluate.choice.choose import pick_simplest
from lcb.evaluate.choice.item_queues import LABELS_PER_STEP, draw_item_queues, serve_classes
from lcb.evaluate.items.item_features import learn_item_features
from lcb.evaluate.items.labels import ItemLabels
from lcb.learners.effects.learn import learn_with_effects
from lcb.learners.effects.rows import ItemRows
from lcb.models import Fit, LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.progress import Progress, count_up, silent

_MOST_USERS = 4_000
_POINT = (1, 5, 20)
_PERSONAL = (1, 5)


def list_classes(n_classes: int | None) -> list[Classes]:
    """Return the classes to try, all Gaussian: r - a_i is not two-valued."""
    if n_classes is not None:
        return [Classes(False, n_classes), Classes(True, n_classes)]
    return [*(Classes(False, n) for n in _POINT), *(Classes(True, n) for n in _PERSONAL)]


def choose_classes(
    labels: ItemLabels,
    users: Index,
    specs: list[str],
    n_steps: int,
    n_classes: int | None,
    rng: np.random.Generator,
    *,
    with_effects: bool = True,
    progress: Progress = silent,
) -> tuple[str, Classes, float, tuple[str, ...]]:
    """Return the features, the classes and the bonus for these training users, and why."""
    count = labels.n_events
    order = users[np.lexsort((rng.random(len(users)), -count[users]))][:_MOST_USERS]
    halves = np.array_split(rng.permutation(order), 2)
    found: dict[tuple[tuple[str, Classes], float], list[Floats]] = {}
    tick, n_tried = count_up(progress, "trying features and classes", 2 * len(specs)), 0
    for past, served in (halves, halves[::-1]):
        able = served[count[served] >= LABELS_PER_STEP * n_steps]
        able = able if len(able) >= 2 else served
        for spec in specs:
            rows, effects = learn_item_features(labels, past, spec, rng)
            effect = effects.effect if with_effects else np.zeros(len(labels.ids))
            fewest = int(count[able].min())
            queues = draw_item_queues(labels.rows(able, rows.x, rows.features), min(n_steps, fewest), rng)
            for one in list_classes(n_classes):
                models = one.learn_trial(rows.history(effect), rng)
                for bonus in BONUSES:
                    own = found.setdefault(((spec, one), bonus), [])
                    own.append(serve_classes(models, rows.x, bonus, queues, effect))
            n_tried += 1
            tick(n_tried)
    scores = {one: np.concatenate(parts) for one, parts in found.items()}
    by_classes = {(_Candidate(*one), bonus): value for (one, bonus), value in scores.items()}
    (candidate, bonus), (best, best_bonus) = pick_simplest(by_classes)
    value, top = by_classes[candidate, bonus], by_classes[best, best_bonus]
    why = (
        f"chosen: {candidate.spec}, {candidate.classes} with bonus {bonus:g}: {value.mean():.4g} per step of "
        f"{len(value):,} held-out users, the best {top.mean():.4g}; {len(by_classes)} candidates tried",
    )
    return candidate.spec, candidate.classes, bonus, why


class _Candidate:
    """Features and classes; fewer factors come first."""

    def __init__(self, spec: str, classes: Classes) -> None:
        self.spec, self.classes = spec, classes

    @property
    def rank(self) -> tuple[object, ...]:
        _, _, n_factors = self.spec.partition(":")
        return int(n_factors) if n_factors.isdigit() else 0, *self.classes.rank


def learn_classes(
    rows: ItemRows, effects: ItemEffects | None, classes: Classes, rng: np.random.Generator
) -> LatentModels:
    """Learn the chosen classes from all training rows, with item effects if given."""

    def fit(log, last) -> Fit:  # type: ignore[no-untyped-def]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return classes.learn(log, rng, n_threads=1, most=log.n_users)

    if effects is None:
        return fit(rows.history(), None).models
    return learn_with_effects(rows, fit, effects=effects, n_rounds=1).models
