"""Item effects are kept in the folder of models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.errors import ModelError
from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.storage.models.folder import load_models, pack_models, save_models, unpack_models
from lcb.storage.models.item_effects import pack_effects, unpack_effects

MODELS = LatentModels([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], [0.25, 0.25])
EFFECTS = ItemEffects.from_residuals(
    ["a", "", "Ünï/✓", "b"], [3, 0, 9, 1], [1.0, 0.0, -2.5, 0.5], prior_mean=-0.1, prior_variance=0.04, noise=0.2
)


@pytest.mark.parametrize(
    "effects", [EFFECTS, EFFECTS.allow_unlike(5.0), ItemEffects((), [], [], [])], ids=["some", "unlike", "none"]
)
def test_effects_come_back_as_they_were(tmp_path, effects):
    save_models(replace(MODELS, item_effects=effects), tmp_path / "m")
    found = load_models(tmp_path / "m").item_effects
    assert found.ids == effects.ids
    for name in ("effect", "variance", "count"):
        np.testing.assert_array_equal(getattr(found, name), getattr(effects, name))
    for name in ("prior_mean", "prior_variance", "noise", "unlike", "unlike_variance"):
        assert getattr(found, name) == getattr(effects, name)


def test_models_without_effects_are_stored_as_before():
    manifest, tensors = pack_models(MODELS)
    assert b"item" not in manifest + tensors
    assert unpack_models(manifest, tensors, "here")[0].item_effects is None


def test_effects_of_items_that_are_all_alike_are_stored_as_before():
    assert set(pack_effects(EFFECTS)[1]) == {"prior_mean", "prior_variance", "noise"}
    assert EFFECTS.allow_unlike(5.0).unlike == pack_effects(EFFECTS.allow_unlike(5.0))[1]["unlike"] == 0.1


def test_damaged_effects_are_refused():
    tensors, numbers = pack_effects(EFFECTS)
    for wrong, words in (
        ({**tensors, "item_ends": tensors["item_ends"][::-1]}, "cut wrongly"),
        ({**tensors, "item_ends": tensors["item_ends"] - 1}, "cut wrongly"),
        ({name: values for name, values in tensors.items() if name != "item_count"}, "not complete"),
        ({**tensors, "item_effect": tensors["item_effect"].astype(np.float32)}, "float32"),
        ({**tensors, "item_ids": np.full_like(tensors["item_ids"], 255)}, "cannot be read"),
    ):
        with pytest.raises(ModelError, match=words):
            unpack_effects(wrong, numbers)
    for manifest in (None, {"noise": 1.0}, {**numbers, "noise": "much"}, {**numbers, "unlike": 0.1}):
        with pytest.raises(ModelError):
            unpack_effects(tensors, manifest)
