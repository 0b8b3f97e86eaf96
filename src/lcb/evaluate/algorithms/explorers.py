"""Epoch-Greedy and ILOVETOCONBANDITS over the learned classes' greedy policies.

The names that end in `-theory` take the publications' own settings, the others' are tuned.
"""

from __future__ import annotations

from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.evaluate.algorithms.algorithm import Algorithm, Task, Value
from lcb.evaluate.algorithms.latent import learned
from lcb.evaluate.algorithms.policy_sets import note_of
from lcb.models import LatentModels
from lcb.policies import ClassPolicies

_LANGFORD, _AGARWAL = "Langford & Zhang 2007", "Agarwal et al. 2014"
_THEORY = "theory"  # a setting's value: as its publication has it


def _epoch_greedy(models: LatentModels, task: Task, c: float) -> EpochGreedy:
    return EpochGreedy(ClassPolicies(models), "sqrt", c, task.reward_range)


def _epoch_greedy_theory(models: LatentModels, task: Task) -> EpochGreedy:
    return EpochGreedy(ClassPolicies(models), "bound", reward_range=task.reward_range)


def _iltcb(models: LatentModels, task: Task, mu: Value) -> ILTCB:
    return ILTCB(ClassPolicies(models), mu=None if mu == _THEORY else float(mu), reward_range=task.reward_range)


def _iltcb_theory(models: LatentModels, task: Task) -> ILTCB:
    return _iltcb(models, task, _THEORY)


ALGORITHMS = (
    Algorithm(
        "lcb-epoch-greedy", "classes learned by EM, Epoch-Greedy over them", _LANGFORD, "N K d",
        learned(_epoch_greedy), {"c": (100.0, 1.0, 10.0, 300.0, 1000.0)}, note_of(_epoch_greedy),
    ),
    Algorithm(
        "lcb-epoch-greedy-theory", "classes learned by EM, Epoch-Greedy over them by its bound", _LANGFORD, "N K d",
        learned(_epoch_greedy_theory), note=note_of(_epoch_greedy_theory),
    ),
    Algorithm(
        "lcb-iltcb", "classes learned by EM, ILOVETOCONBANDITS over them", _AGARWAL, "N K d",
        learned(_iltcb), {"mu": (0.0005, 0.00001, 0.0001, 0.002, _THEORY)}, note_of(_iltcb),
    ),
    Algorithm(
        "lcb-iltcb-theory", "classes learned by EM, ILOVETOCONBANDITS over them, mu as published", _AGARWAL, "N K d",
        learned(_iltcb_theory), note=note_of(_iltcb_theory),
    ),
)  # fmt: skip
