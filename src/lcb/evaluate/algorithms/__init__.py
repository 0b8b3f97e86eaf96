"""The algorithms an experiment knows by name, family by family; `tuned.json` holds the settings found by tuning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

from lcb.errors import InputError
from lcb.evaluate.algorithms.algorithm import Algorithm, Settings, Task
from lcb.evaluate.algorithms.clustering import CLUSTERING
from lcb.evaluate.algorithms.latent import LATENT
from lcb.evaluate.algorithms.linear import LINEAR

__all__ = ["ALGORITHMS", "PAPERS", "Algorithm", "Settings", "Task", "algorithms_named", "tuned_settings"]

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (*LATENT, *LINEAR, *CLUSTERING)}
PAPERS = ("lcb", "lcb-mean", "lcb-gt", "lcb-gt-mean", "linucb-population", "linucb-individual", "random")


def algorithms_named(names: Sequence[str]) -> list[Algorithm]:
    """The algorithms of these names, in this order."""
    unknown = [name for name in names if name not in ALGORITHMS]
    if unknown:
        raise InputError(f"no algorithm is called {unknown[0]!r}; there are: {', '.join(ALGORITHMS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"algorithms {', '.join(names) or '(none)'}; name at least one, and each once")
    return [ALGORITHMS[name] for name in names]


def tuned_settings() -> dict[str, Settings]:
    """By algorithm, the settings that tuning on the paper's simulation chose."""
    return json.loads(files(__name__).joinpath("tuned.json").read_text())


def checked_settings(settings: Mapping[str, Settings]) -> dict[str, Settings]:
    """Refuse settings of algorithms or names that do not exist."""
    for name, values in settings.items():
        (algorithm,) = algorithms_named([name])
        unknown = [key for key in values if key not in algorithm.grid]
        if unknown:
            there = ", ".join(algorithm.grid) or "none"
            raise InputError(f"{name} has no setting {unknown[0]!r}; there are: {there}")
    return dict(settings)
