"""Where arrays lie in memory changes no bit of a decision: a log that is verified in another process has the same."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits import LearnedClasses
from lcb.bandits._kernels_numba import normalise
from lcb.models import LatentModels
from lcb.models.item_effects import ArmEffects
from lcb.stats import UserStats


def shift(values, n_bytes):
    """Copy to an address that is so many bytes past a multiple of 64."""
    raw = np.empty(values.nbytes + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + n_bytes
    copy = raw[begin : begin + values.nbytes].view(np.float64).reshape(values.shape)
    copy[...] = values
    assert copy.ctypes.data % 64 == n_bytes
    return copy


def leave_gaps(values):
    copy = np.empty((*values.shape[:-1], 2 * values.shape[-1]))[..., ::2]
    copy[...] = values
    return copy


LAYOUTS = {
    **{f"{n} bytes off": (lambda values, n=n: shift(values, n)) for n in (1, 4, 8, 24, 40)},
    "gaps": leave_gaps,
    "columns first": np.asfortranarray,
}


@pytest.mark.parametrize("kind", ["personal", "point", "point without bonus"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_an_array_changes_no_bit(kind, layout):
    rng, place = np.random.default_rng(0), LAYOUTS[layout]
    for n_features in (2, 7, 11, 19):
        n_classes, n_arms = 4, 9
        root = rng.normal(size=(n_classes, n_features, n_features))
        given = {
            "pi": rng.dirichlet(np.ones(n_classes)),
            "beta": rng.normal(size=(n_classes, n_features)),
            "sigma2": np.full(n_classes, 0.3),
            "covariance": root @ root.swapaxes(1, 2) + 0.1 * np.eye(n_features),
            "state": UserStats.from_rows([0] * 8, rng.normal(size=(8, n_features)), rng.normal(size=8)).packed[:, 0],
            "context": rng.normal(size=(n_arms, n_features)),
        }
        effects = ArmEffects(rng.normal(size=n_arms), np.full(n_arms, 0.1))
        before = decide(kind, effects, **given)
        for name, values in given.items():
            after = decide(kind, effects, **{**given, name: place(values)})
            np.testing.assert_array_equal(after.means, before.means, err_msg=name)
            np.testing.assert_array_equal(after.distribution, before.distribution, err_msg=name)


def decide(kind, effects, *, pi, beta, sigma2, covariance, state, context):
    personal = kind == "personal"
    models = LatentModels(pi, beta, sigma2, covariance=covariance if personal else None, personal=personal)
    bandit = LearnedClasses(models, bonus=0.0 if kind == "point without bonus" else 0.5)
    return bandit.choose(state, context, np.random.default_rng(0), effects)


@pytest.mark.parametrize("n_classes", [4, 8, 30])
def test_the_distance_of_two_arrays_changes_no_bit(n_classes):
    """Probabilities that lay up to 256 bytes behind their logarithms were summed in another order."""
    log_w = np.random.default_rng(0).normal(size=(50, n_classes))
    room = np.empty(1000)
    for own in log_w:
        found = []
        for gap in (0, 1, 5, 20, 31, 100, 700):
            first, second = room[:n_classes], room[n_classes + gap : 2 * n_classes + gap]
            for log_weights, weights in ((first, second), (second, first)):
                log_weights[:] = own
                normalise(log_weights, weights)
                found.append(np.concatenate([log_weights, weights]))
        for other in found:
            np.testing.assert_array_equal(other, found[0])
