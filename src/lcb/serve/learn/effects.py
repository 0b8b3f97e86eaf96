"""Item effects learned with the classes of a new version, and held-out users as each version sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lcb.arrays import Floats
from lcb.event_log import EventLog
from lcb.learners.effects.learn import improve_effects, start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.progress import Progress
from lcb.serve.learn.training_data import is_made_up

_ROUNDS = 2  # of classes and effects in turn
Fit = Callable[[EventLog, LatentModels | None], LatentModels]


def fit_with_effects(
    rows: ItemRows, fit: Fit, active: LatentModels | None, *, keep_rows: bool, progress: Progress
) -> LatentModels:
    """Learn classes and effects in turn; `fit` learns classes and may begin with those of the version served now."""
    effects = start_effects(rows, progress=progress)
    models = None if active is None or active.likelihood != "gaussian" else replace(active, item_effects=None)
    for _ in range(_ROUNDS):
        models = fit(rows.history(effects.effect, keep_rows=keep_rows), models)
        effects = improve_effects(effects, rows, models)
    assert models is not None
    return replace(models, item_effects=effects.allow_unlike(float(rows.reward.var())))


def drop_made_up(models: LatentModels) -> LatentModels:
    """Return the models with the effects of real items only."""
    effects = models.item_effects
    assert effects is not None
    kept = np.array([not is_made_up(id) for id in effects.ids], bool)
    ids = tuple(id for id, is_real in zip(effects.ids, kept, strict=True) if is_real)
    arrays = (effects.effect[kept], effects.variance[kept], effects.count[kept])
    return replace(
        models, item_effects=replace(effects, ids=ids, effect=arrays[0], variance=arrays[1], count=arrays[2])
    )


def see_held_out(models: LatentModels, learning: ItemRows, held_out: ItemRows) -> EventLog:
    """Return the rewards of held-out users less the effects that these models have for their items.

    The effects of an older version are brought up to date first with the users who were learned from, as those of a
    service are by every reward: versions are compared by their classes, not by their age.
    """
    effects = models.item_effects
    if effects is None:
        return held_out.history()
    if effects.ids != held_out.ids:
        known = effects.of(held_out.ids)
        prior = (effects.prior_mean, effects.prior_variance, effects.noise)
        effects = ItemEffects(held_out.ids, known.effect, known.variance, learning.n_raters, *prior)
        effects = improve_effects(effects, learning, replace(models, item_effects=None))
    return held_out.history(_at_least_prior(effects, learning))


def _at_least_prior(effects: ItemEffects, learning: ItemRows) -> Floats:
    """Return the effects, those of items that nobody has shown yet being the prior's."""
    return np.where(learning.count > 0, effects.effect, effects.prior_mean)
