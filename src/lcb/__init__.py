"""Latent Contextual Bandits: personal recommendations for people a system has never met.

    stats    = lcb.read_stats("events.parquet")                    past users, as additive statistics
    models   = lcb.fit(stats, rng=rng).models                      the latent classes
    bandit   = lcb.GeneralizedThompson(models)                     chooses for one new user
    decision = bandit.choose(state, context, rng)                  an arm, its propensity, the distribution

Nothing else is loaded by `import lcb`; each name loads what it needs when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lcb.version import __version__

if TYPE_CHECKING:
    from lcb import charts, progress, theory
    from lcb.bandits.fixed_arms.multiple_k_ucb import MultipleKUCB
    from lcb.bandits.fixed_arms.ucb1 import UCB1
    from lcb.bandits.fixed_arms.umucb import UMUCB
    from lcb.bandits.linear.lints import LinTS
    from lcb.bandits.linear.linucb import LinUCB
    from lcb.bandits.over_classes.mmts import MMTS
    from lcb.bandits.over_classes.mucb import MUCB
    from lcb.bandits.over_classes.posterior_mean import PosteriorMean
    from lcb.bandits.over_classes.thompson import GeneralizedThompson
    from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
    from lcb.bandits.over_policies.exp3 import EXP3
    from lcb.bandits.over_policies.exp4 import EXP4
    from lcb.bandits.over_policies.exp4p import EXP4P
    from lcb.bandits.over_policies.iltcb import ILTCB
    from lcb.bandits.uniform import Uniform
    from lcb.clicks import EventLog
    from lcb.client import AsyncClient, Client
    from lcb.errors import LCBError
    from lcb.evaluate.offline.evaluate_log import evaluate_log
    from lcb.evaluate.simulation.simulate import simulate
    from lcb.evaluate.tuning.simulated import tune
    from lcb.evaluate.worlds.fixed_arms import FixedArms
    from lcb.evaluate.worlds.paper import World, given_classes, paper_classes
    from lcb.events import Decision, Event
    from lcb.features import FeatureMap, fit_features
    from lcb.learners import fit
    from lcb.models import Fit, LatentModels, weight_covariance
    from lcb.policies import ClassPolicies, EnumeratedPolicies, Greedy, Softmax
    from lcb.prior import Prior
    from lcb.recommenders.clustering.club import Club
    from lcb.recommenders.clustering.sclub import Sclub
    from lcb.recommenders.cofine import CofineUCB
    from lcb.recommenders.factorised import Factorised
    from lcb.recommenders.individual import Individual
    from lcb.recommenders.latent import Latent
    from lcb.recommenders.pooled import Pooled
    from lcb.recommenders.tucb import TUCB
    from lcb.stats import UserStats
    from lcb.storage.logs.log import open_log
    from lcb.storage.models.folder import load_models, save_models
    from lcb.storage.tables.statistics import read_log, read_stats

_HOME = {
    "AsyncClient": "lcb.client",
    "ClassPolicies": "lcb.policies",
    "Client": "lcb.client",
    "Club": "lcb.recommenders.clustering.club",
    "CofineUCB": "lcb.recommenders.cofine",
    "Decision": "lcb.events",
    "EXP3": "lcb.bandits.over_policies.exp3",
    "EXP4": "lcb.bandits.over_policies.exp4",
    "EXP4P": "lcb.bandits.over_policies.exp4p",
    "EnumeratedPolicies": "lcb.policies",
    "EpochGreedy": "lcb.bandits.over_policies.epoch_greedy",
    "Event": "lcb.events",
    "EventLog": "lcb.clicks",
    "Factorised": "lcb.recommenders.factorised",
    "FeatureMap": "lcb.features",
    "Fit": "lcb.models",
    "FixedArms": "lcb.evaluate.worlds.fixed_arms",
    "GeneralizedThompson": "lcb.bandits.over_classes.thompson",
    "Greedy": "lcb.policies",
    "ILTCB": "lcb.bandits.over_policies.iltcb",
    "Individual": "lcb.recommenders.individual",
    "LCBError": "lcb.errors",
    "Latent": "lcb.recommenders.latent",
    "LatentModels": "lcb.models",
    "LinTS": "lcb.bandits.linear.lints",
    "LinUCB": "lcb.bandits.linear.linucb",
    "MMTS": "lcb.bandits.over_classes.mmts",
    "MUCB": "lcb.bandits.over_classes.mucb",
    "MultipleKUCB": "lcb.bandits.fixed_arms.multiple_k_ucb",
    "Pooled": "lcb.recommenders.pooled",
    "PosteriorMean": "lcb.bandits.over_classes.posterior_mean",
    "Prior": "lcb.prior",
    "Sclub": "lcb.recommenders.clustering.sclub",
    "Softmax": "lcb.policies",
    "TUCB": "lcb.recommenders.tucb",
    "UCB1": "lcb.bandits.fixed_arms.ucb1",
    "UMUCB": "lcb.bandits.fixed_arms.umucb",
    "Uniform": "lcb.bandits.uniform",
    "UserStats": "lcb.stats",
    "World": "lcb.evaluate.worlds.paper",
    "evaluate_log": "lcb.evaluate.offline.evaluate_log",
    "fit": "lcb.learners",
    "fit_features": "lcb.features",
    "given_classes": "lcb.evaluate.worlds.paper",
    "load_models": "lcb.storage.models.folder",
    "open_log": "lcb.storage.logs.log",
    "paper_classes": "lcb.evaluate.worlds.paper",
    "read_log": "lcb.storage.tables.statistics",
    "read_stats": "lcb.storage.tables.statistics",
    "save_models": "lcb.storage.models.folder",
    "simulate": "lcb.evaluate.simulation.simulate",
    "tune": "lcb.evaluate.tuning.simulated",
    "weight_covariance": "lcb.models",
}
_ROOMS = ("charts", "progress", "theory")

__all__ = [
    "EXP3",
    "EXP4",
    "EXP4P",
    "ILTCB",
    "MMTS",
    "MUCB",
    "TUCB",
    "UCB1",
    "UMUCB",
    "AsyncClient",
    "ClassPolicies",
    "Client",
    "Club",
    "CofineUCB",
    "Decision",
    "EnumeratedPolicies",
    "EpochGreedy",
    "Event",
    "EventLog",
    "Factorised",
    "FeatureMap",
    "Fit",
    "FixedArms",
    "GeneralizedThompson",
    "Greedy",
    "Individual",
    "LCBError",
    "Latent",
    "LatentModels",
    "LinTS",
    "LinUCB",
    "MultipleKUCB",
    "Pooled",
    "PosteriorMean",
    "Prior",
    "Sclub",
    "Softmax",
    "Uniform",
    "UserStats",
    "World",
    "__version__",
    "charts",
    "evaluate_log",
    "fit",
    "fit_features",
    "given_classes",
    "load_models",
    "open_log",
    "paper_classes",
    "progress",
    "read_log",
    "read_stats",
    "save_models",
    "simulate",
    "theory",
    "tune",
    "weight_covariance",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"lcb.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'lcb' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
