"""Epoch-Greedy and ILOVETOCONBANDITS over the learned classes' greedy policies.

Names that end in `-theory` use the settings of the publications; the others have a grid for tuning.
"""

from __future__ import annotations

from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.evaluate.algorithms.algorithm import Task, Value
from lcb.evaluate.algorithms.policy_sets import over_learned_classes
from lcb.models import LatentModels
from lcb.policies import ClassPolicies

_LANGFORD, _AGARWAL = "Langford & Zhang 2007", "Agarwal et al. 2014"
_THEORY = "theory"  # value of a setting: the one of its publication


def _epoch_greedy(models: LatentModels, task: Task, c: float) -> EpochGreedy:
    return EpochGreedy(ClassPolicies(models), "sqrt", c, task.reward_range)


def _epoch_greedy_theory(models: LatentModels, task: Task) -> EpochGreedy:
    return EpochGreedy(ClassPolicies(models), "bound", reward_range=task.reward_range)


def _iltcb(models: LatentModels, task: Task, mu: Value) -> ILTCB:
    return ILTCB(ClassPolicies(models), mu=None if mu == _THEORY else float(mu), reward_range=task.reward_range)


def _iltcb_theory(models: LatentModels, task: Task) -> ILTCB:
    return _iltcb(models, task, _THEORY)


ALGORITHMS = (
    over_learned_classes(
        "lcb-epoch-greedy", "Epoch-Greedy over them", _LANGFORD, _epoch_greedy, {"c": (100.0, 1.0, 10.0, 300.0, 1000.0)}
    ),
    over_learned_classes(
        "lcb-epoch-greedy-theory", "Epoch-Greedy over them by its bound", _LANGFORD, _epoch_greedy_theory
    ),
    over_learned_classes(
        "lcb-iltcb", "ILOVETOCONBANDITS over them", _AGARWAL, _iltcb, {"mu": (0.0005, 0.00001, 0.0001, 0.002, _THEORY)}
    ),
    over_learned_classes("lcb-iltcb-theory", "ILOVETOCONBANDITS over them, mu as published", _AGARWAL, _iltcb_theory),
)
