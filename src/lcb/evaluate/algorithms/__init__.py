"""The algorithms by name, for experiments and the command line.

To add one, add an `Algorithm` to the tuple `ALGORITHMS` in the file of its family, or write a new file with such a
tuple and add its name to `_FAMILIES`.  `lcb algorithms`, `simulate`, `tune`, `evaluate` and the charts then include it.
Experiments use the settings in `tuned.json`, which `lcb tune` writes, or else the first values of the algorithm's grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from typing import Any

from lcb.errors import InputError
from lcb.evaluate.algorithms.algorithm import Algorithm, Settings, Task, Value
from lcb.words import suggest

__all__ = [
    "ALGORITHMS",
    "DEFAULTS",
    "NEWER",
    "PAPERS",
    "Algorithm",
    "Settings",
    "Task",
    "find_algorithms",
    "tuned_settings",
]

_FAMILIES = (
    "auto",
    "latent",
    "personal",
    "mixture",
    "policy_sets",
    "explorers",
    "revisited",
    "clustering",
    "linear",
    "fixed_arms",
)
ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for family in _FAMILIES for algorithm in import_module(f"{__name__}.{family}").ALGORITHMS
}
PAPERS = ("lcb", "lcb-mean", "lcb-gt", "lcb-gt-mean", "club", "linucb-population", "linucb-individual", "random")
NEWER = ("lcb-auto", "lcb-bonus", "lcb-personal", "mixed-model")  # further lines in the paper's figures
DEFAULTS = ("lcb-auto", *PAPERS)  # of `lcb simulate`

_LARGEST = 1e300  # absolute value of a setting


def find_algorithms(names: Sequence[str]) -> list[Algorithm]:
    """Return the algorithms of these names, in this order."""
    unknown = [name for name in names if name not in ALGORITHMS]
    if unknown:
        meant = f" ({asked})" if (asked := suggest(unknown[0], ALGORITHMS)) else ""
        raise InputError(f"unknown algorithm {unknown[0]!r}{meant}; use one of: {', '.join(ALGORITHMS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"algorithms {', '.join(names) or '(none)'}; name at least one, and each once")
    return [ALGORITHMS[name] for name in names]


def tuned_settings() -> dict[str, Settings]:
    """Return, by algorithm, the settings tuned on the paper's simulation."""
    return parse_settings(json.loads(files(__name__).joinpath("tuned.json").read_text()), "tuned.json")


def parse_settings(document: Any, source: str) -> dict[str, Settings]:
    """Return, by algorithm, the settings under "chosen" in a document of `lcb tune`."""
    chosen = document.get("chosen") if isinstance(document, dict) else None
    if not isinstance(chosen, dict) or not all(isinstance(values, dict) for values in chosen.values()):
        raise InputError(
            f'{source} has no settings; give a file written by lcb tune, or {{"chosen": {{"lcb": {{"eta": 0.5}}}}}}'
        )
    try:
        return check_settings(chosen)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def check_settings(settings: Mapping[str, Settings]) -> dict[str, Settings]:
    """Refuse unknown algorithms, unknown settings, and values of another type than the grid has."""
    checked: dict[str, Settings] = {}
    for name, values in settings.items():
        (algorithm,) = find_algorithms([name])
        if "gamma" in values and "uniform" in algorithm.grid:  # the former name
            values = {"uniform" if key == "gamma" else key: value for key, value in values.items()}
        unknown = [key for key in values if key not in algorithm.grid]
        if unknown:
            raise InputError(f"{name} has no setting {unknown[0]!r}; it has {', '.join(algorithm.grid) or 'none'}")
        checked[name] = {
            key: _check_value(f"{name} has {key}", value, algorithm.grid[key]) for key, value in values.items()
        }
    return checked


def _check_value(what: str, value: Any, tried: Sequence[Value]) -> Value:
    """Accept a value of the grid, or any number if the grid has numbers (an integer, if all are integers)."""
    if any(type(value) is type(one) and value == one for one in tried):
        return value
    numbers = [one for one in tried if not isinstance(one, str | bool)]
    if numbers and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        if not all(isinstance(one, int) for one in numbers):
            return float(value)
        if float(value).is_integer():
            return int(value)
    raise InputError(f"{what} {value!r}; give a value such as {', '.join(map(str, tried))}")
