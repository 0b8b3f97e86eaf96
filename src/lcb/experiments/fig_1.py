"""Figure 1: the five latent models of the simulation.

The paper prints them as a picture only: ten parameters, "4 of them assigned higher weights".
"""

from __future__ import annotations

from typing import Any

from lcb import charts
from lcb.evaluate.worlds.paper import paper_classes
from lcb.experiments.claims import Claim
from lcb.models import LatentModels
from lcb.progress import Progress, silent


def run(n_runs: int = 1, seed: int = 0, progress: Progress = silent) -> LatentModels:
    """Return the default classes of the simulations; nothing is random."""
    return paper_classes()


def draw(models: LatentModels) -> Any:
    return charts.heat_map(models, title="Latent models in the simulation")


def to_json(models: LatentModels) -> dict[str, Any]:
    return {"pi": models.pi.tolist(), "beta": models.beta.tolist(), "sigma2": models.sigma2.tolist()}


def check_claims(models: LatentModels) -> list[Claim]:
    """Return no claims: nothing is measured."""
    return []


def summarise(models: LatentModels) -> list[str]:
    return [f"{models.n_classes} classes of {models.n_features} weights, each of norm 1"]
