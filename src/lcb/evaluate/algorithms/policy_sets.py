"""The EXP family: over the policies of learned classes, over a given set of policies, or over all policies.

Names that end in `-theory` use the settings of the publications; the others have a grid for tuning.  The given set is
the policies of the true classes, the best case; on a log, the policies of classes learned from past users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4 import EXP4
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.errors import InputError
from lcb.evaluate.algorithms.algorithm import Algorithm, Task, Value
from lcb.evaluate.algorithms.latent import build_learned, fit_past_classes, true_classes
from lcb.evaluate.worlds.paper import equal_classes
from lcb.models import LatentModels
from lcb.policies import ClassPolicies, EnumeratedPolicies, Greedy, Softmax, format_n_policies
from lcb.recommenders.individual import Individual
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender

_NONE: dict[str, tuple[Value, ...]] = {}
_AUER, _BEYGELZIMER = "Auer et al. 2002", "Beygelzimer et al. 2011"
_THEORY = "theory"  # value of a setting: the one of its publication
_RATES: dict[str, tuple[Value, ...]] = {"eta": (0.2, 0.05, 0.5, 1.0, 2.0, _THEORY), "temperature": (0.0, 0.05, 1.0)}
_P_MIN: dict[str, tuple[Value, ...]] = {"p_min": (0.0005, 0.00001, 0.0001, 0.002, _THEORY), **_RATES}
_GAMMA: dict[str, tuple[Value, ...]] = {"gamma": (0.002, 0.0002, 0.05, _THEORY), **_RATES}


def _exp4p(
    models: LatentModels, task: Task, p_min: Value = _THEORY, eta: Value = _THEORY, temperature: float = 0.0
) -> EXP4P:
    policies = _policies(models, temperature)
    return EXP4P(policies, task.reward_range, task.n_steps, p_min=_tuned(p_min), eta=_tuned(eta))


def _exp4p_for_all(models: LatentModels, task: Task, **settings: Any) -> EXP4P:
    """Build EXP4.P for all users together: the horizon is the number of all steps."""
    return _exp4p(models, replace(task, n_steps=task.n_users * task.n_steps), **settings)


def _exp4(
    models: LatentModels, task: Task, gamma: Value = _THEORY, eta: Value = _THEORY, temperature: float = 0.0
) -> EXP4:
    return EXP4(_policies(models, temperature), task.reward_range, task.n_steps, _tuned(gamma), _tuned(eta))


def _exp3(
    models: LatentModels, task: Task, gamma: Value = _THEORY, eta: Value = _THEORY, temperature: float = 0.0
) -> EXP3:
    return EXP3(_policies(models, temperature), task.reward_range, task.n_steps, _tuned(gamma), _tuned(eta))


def _policies(models: LatentModels, temperature: float) -> ClassPolicies:
    return ClassPolicies(models, Softmax(temperature) if temperature else Greedy())


def _tuned(value: Value) -> float | None:
    """Return the number, or None for the theory's value."""
    if value == _THEORY:
        return None
    if isinstance(value, str):
        raise InputError(f"setting {value!r}; give a number, or {_THEORY!r} for the publication's value")
    return float(value)


def _classes(task: Task, rng: np.random.Generator) -> LatentModels:
    """Return the classes whose policies are given: the true ones, or on a log those of past users."""
    if task.truth is None and task.history is not None:
        return fit_past_classes(task, rng)
    return true_classes(task)


def _population(task: Task, rng: np.random.Generator, **settings: Value) -> Recommender:
    return Pooled(_exp4p_for_all(_classes(task, rng), task, **settings))


def _individual(task: Task, rng: np.random.Generator, **settings: Any) -> Recommender:
    return Individual(_exp4p(_classes(task, rng), task, **settings))


def _enumerated(task: Task, rng: np.random.Generator) -> Recommender:
    return Individual(_over_all_policies(task))


def _over_all_policies(task: Task) -> EXP4P:
    if task.contexts is None:
        would_need = format_n_policies([task.n_arms] * task.n_steps)
        raise InputError(
            "exp4p-enum has a policy for every map from contexts to arms, but contexts of this task cannot be listed: "
            f"the {task.n_steps} of a single user would already need {would_need} policies; leave it out"
        )
    return EXP4P(EnumeratedPolicies(task.contexts), task.reward_range, task.n_steps)


def make_note(make_bandit: Callable[..., Any]) -> Callable[..., str | None]:
    """Return the `note` of an algorithm: a function that asks the bandit for a warning about its settings.

    The warning depends on the number of classes, not on their weights, so the bandit is built over weights of 0.
    """

    def note(task: Task, **settings: Value) -> str | None:
        some_classes = equal_classes(np.zeros((task.n_classes, task.n_features)))
        return make_bandit(some_classes, task, **settings).note(task.n_arms)

    return note


def over_learned_classes(
    name: str, line: str, reference: str, make_bandit: Callable[..., Any], grid: Mapping[str, tuple[Value, ...]] = _NONE
) -> Algorithm:
    """Return the algorithm that learns classes by EM and runs this bandit over their policies."""
    line = f"classes learned by EM, {line}"
    return Algorithm(name, line, reference, build_learned(make_bandit), grid, make_note(make_bandit))


def _note_on_enumerated(task: Task) -> str | None:
    return _over_all_policies(task).note(task.n_arms)


ALGORITHMS = (
    over_learned_classes("lcb-exp4p", "EXP4.P over them", _BEYGELZIMER, _exp4p, _P_MIN),
    over_learned_classes("lcb-exp4p-theory", "EXP4.P over them, p_min as published", _BEYGELZIMER, _exp4p),
    over_learned_classes("lcb-exp4", "EXP4 over them", _AUER, _exp4, _GAMMA),
    over_learned_classes("lcb-exp4-theory", "EXP4 over them, gamma as published", _AUER, _exp4),
    over_learned_classes("lcb-exp3", "EXP3 over them as its arms", _AUER, _exp3, _GAMMA),
    over_learned_classes("lcb-exp3-theory", "EXP3 over them as its arms, gamma as published", _AUER, _exp3),
    Algorithm(
        "exp4p-population", "one EXP4.P for all users over the true classes' policies", _BEYGELZIMER,
        build=_population, grid=_P_MIN, note=make_note(_exp4p_for_all),
    ),
    Algorithm(
        "exp4p-population-theory", "the same, p_min as published", _BEYGELZIMER,
        build=_population, note=make_note(_exp4p_for_all),
    ),
    Algorithm(
        "exp4p-individual", "one EXP4.P per user over the true classes' policies", _BEYGELZIMER,
        build=_individual, grid=_P_MIN, note=make_note(_exp4p),
    ),
    Algorithm(
        "exp4p-individual-theory", "the same, p_min as published", _BEYGELZIMER,
        build=_individual, note=make_note(_exp4p),
    ),
    Algorithm(
        "exp4p-enum", "one EXP4.P per user over every map from contexts to arms", _BEYGELZIMER,
        build=_enumerated, note=_note_on_enumerated, cost="K^C K", needs="contexts that can be listed",
    ),
)  # fmt: skip
