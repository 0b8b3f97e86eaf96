"""Items of a service whose models know them by factors that were learned from rewards: the id is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lcb.features import FeatureMap, fit_factors
from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.serve.audit.verify import verify
from lcb.serve.errors import Problem
from lcb.storage.models.folder import save_models
from support import item_worlds
from support.inside import Inside, sqlite

IDS = ("a", "b", "c")
FACTORS = fit_factors(IDS, np.array([[1.0, 0.0], [0.0, 0.5], [-0.4, 0.1]]))


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    effects = ItemEffects(IDS, [0.5, 0.2, 0.1], [0.01] * 3, [9.0] * 3, prior_mean=0.3, prior_variance=0.04, noise=0.2)
    models = LatentModels([1.0], [[0.2, -0.2, 0.1]], [0.2], FACTORS.names, item_effects=effects)
    save_models(models, tmp_path / "models", feature_map=FACTORS)
    with Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings(models=str(tmp_path / "models"))) as opened:
        yield opened


def test_an_item_of_the_log_has_its_factors_and_a_new_one_their_mean(inside: Inside) -> None:
    inside.items({"id": "a"}, {"id": "new"}, {"id": "own", "x": [0.1, 0.2, 0.3]})
    x = inside.service.world.state.catalogue.x(["a", "new", "own"])
    np.testing.assert_array_equal(x[0], FACTORS.arms[0])
    np.testing.assert_allclose(x[1], FACTORS.arms.mean(axis=0))
    np.testing.assert_array_equal(x[2], [0.1, 0.2, 0.3])
    inside.reward(inside.decide("ann")["decision_id"], 1.0)
    inside.crash()
    np.testing.assert_array_equal(inside.service.world.state.catalogue.x(["a", "new", "own"]), x)
    inside.decide("ann")
    assert verify(inside.store).differences == []


def test_categories_are_refused_where_items_are_known_by_id(inside: Inside) -> None:
    with pytest.raises(Problem, match="factors that were learned from rewards, not by categories; send the id alone"):
        inside.items({"id": "a", "categories": ["b"]})


def test_the_map_is_the_same_after_it_was_stored() -> None:
    again = FeatureMap.from_json(FACTORS.to_json())
    np.testing.assert_array_equal(again.arms, FACTORS.arms)
    assert again.names == ("factor1", "factor2", "constant")
