"""The losses by which class weights are updated, as arguments of the compiled bandits."""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.bandits._kernels_numba import BERNOULLI, GAUSSIAN, SQUARE
from lcb.errors import InputError
from lcb.models import EDGE, LatentModels

Density = tuple[int, Floats, Floats, float, float, float]


def own_density(models: LatentModels, rewards: Floats) -> Density:
    """Return the models' own likelihood; refuses `rewards` outside the two levels of Bernoulli models."""
    if models.levels is None:
        return gaussian_density(models)
    low, high = models.levels
    _check_range(rewards, low, high, "the two rewards that the models were learned from; clip them")
    return BERNOULLI, *models.gaussian, low, high, EDGE


def gaussian_density(models: LatentModels) -> Density:
    return GAUSSIAN, *models.gaussian, 0.0, 1.0, EDGE


def square_loss(models: LatentModels) -> Density:
    return SQUARE, *models.gaussian, 0.0, 1.0, EDGE


def log_loss(models: LatentModels, rewards: Floats) -> Density:
    _check_range(rewards, 0.0, 1.0, "which the log loss needs; scale them, or use square")
    return BERNOULLI, *models.gaussian, 0.0, 1.0, EDGE


def _check_range(rewards: Floats, low: float, high: float, why: str) -> None:
    outside = (rewards < low) | (rewards > high)
    if outside.any():
        raise InputError(f"reward {np.asarray(rewards)[outside][0]:g} is outside [{low:g}, {high:g}], {why}")
