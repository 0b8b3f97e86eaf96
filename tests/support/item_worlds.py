"""Services with item effects: models that bring them, and what a service then believes about its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.models.folder import pack_models
from lcb.storage.store.base import Store
from support.inside import Inside

NOISE, MEAN, VARIANCE = 0.2, 0.3, 0.04  # of one reward; of the effect of an item that nobody has seen
ITEMS = [{"id": f"i{i}", "x": [float(i % 2 == 0), float(i % 2 == 1)]} for i in range(6)]


def effects(known: Mapping[str, float] | None = None, variance: float = 0.01) -> ItemEffects:
    known = known or {}
    n = len(known)
    arrays = (list(known.values()), np.full(n, variance), np.full(n, 30.0))
    return ItemEffects(tuple(known), *arrays, prior_mean=MEAN, prior_variance=VARIANCE, noise=NOISE)


def models(known: Mapping[str, float] | None = None) -> LatentModels:
    """Two classes, each of which likes one of two kinds of items, and the effects of some items."""
    beta = np.array([[0.2, -0.2], [-0.2, 0.2]])
    return LatentModels([0.5, 0.5], beta, np.full(2, NOISE), item_effects=effects(known))


def settings(**more: Any) -> Settings:
    spec = RecommenderSpec("lcb", "learned-classes", uniform=more.pop("uniform", 0.0))
    return Settings(**{"recommenders": (spec,), "pages": False, **more})


def add_version(
    inside: Inside, made: LatentModels | None = None, *, seen: int | None = None, active: bool = True
) -> int:
    manifest, tensors = pack_models(models({"i0": 0.35, "i1": 0.2}) if made is None else made)
    adding = inside.service.add_model(manifest, tensors, active=active, reason="a test", n_users=1, seen=seen)
    return inside.done(adding)


def fill(inside: Inside) -> None:
    """Give the service its catalogue and a first version with effects."""
    inside.items(*ITEMS)
    add_version(inside)


def shown(store: Store, decision_id: str) -> list[events.ChosenArm]:
    """The arms of a decision as the log has them."""
    row = store.event(decision_id)
    assert row is not None
    return events.decode("decision", row.body).shown


def effect_of(inside: Inside, item: str) -> tuple[float, float]:
    return inside.service.world.items.get(item)
