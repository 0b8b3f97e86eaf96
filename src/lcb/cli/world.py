"""The simulated world of `lcb simulate` and `lcb tune`: its options, and how it is built from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.errors import InputError

if TYPE_CHECKING:
    from lcb.evaluate.worlds.fixed_arms import FixedArms
    from lcb.evaluate.worlds.paper import SimulatedWorld
    from lcb.models import LatentModels

_MODELS_HELP = "The true classes: a CSV (one row of weights per class, no header), or a folder of models."
_FIXED_HELP = "Arms without features, the same at every step, one per weight."
_NOISE_HELP = "Standard deviation of the rewards; without it that of the models, else 0.1."
ClassesOption = Annotated[Path | None, typer.Option(help=_MODELS_HELP)]
FixedArmsOption = Annotated[bool, typer.Option("--fixed-arms", help=_FIXED_HELP)]
NoiseOption = Annotated[float | None, typer.Option(help=_NOISE_HELP)]
StepsOption = Annotated[int, typer.Option(min=1, help="Steps per user, T_u in the paper.")]
ArmsOption = Annotated[int, typer.Option(min=1, help="Arms per step, K in the paper.")]
_NOISE = (1e-6, 1e6)  # weights are about 1; the squares of both limits are ordinary numbers


def build_world(
    models: Path | None, noise: float | None, *, n_arms: int, fixed_arms: bool
) -> SimulatedWorld | FixedArms:
    """Build the world; without `models` it has the five classes of the paper."""
    from lcb.evaluate.worlds.fixed_arms import FixedArms
    from lcb.evaluate.worlds.paper import SimulatedWorld

    classes = _read_classes(models, noise)
    return FixedArms(classes) if fixed_arms else SimulatedWorld(classes, n_arms=n_arms)


def _read_classes(source: Path | None, noise: float | None) -> LatentModels:
    import numpy as np

    from lcb.evaluate.worlds.paper import equal_classes, paper_classes
    from lcb.storage.models.folder import load_models
    from lcb.storage.models.weights import read_weights

    low, high = _NOISE
    if noise is not None and not low <= noise <= high:
        raise InputError(f"--noise {noise:g}; give a number from {low:g} to {high:g}")
    if source is None:
        return paper_classes(noise or 0.1)
    if source.is_dir():
        found = load_models(source)
        return found if noise is None else replace(found, sigma2=np.full(found.n_classes, noise**2))
    return equal_classes(read_weights(source), noise or 0.1)
