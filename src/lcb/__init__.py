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
    from lcb.bandits.epoch_greedy import EpochGreedy
    from lcb.bandits.exp3 import EXP3
    from lcb.bandits.exp4 import EXP4
    from lcb.bandits.exp4p import EXP4P
    from lcb.bandits.iltcb import ILTCB
    from lcb.bandits.lints import LinTS
    from lcb.bandits.linucb import LinUCB
    from lcb.bandits.mmts import MMTS
    from lcb.bandits.mucb import MUCB
    from lcb.bandits.multiple_k_ucb import MultipleKUCB
    from lcb.bandits.posterior_mean import PosteriorMean
    from lcb.bandits.thompson import GeneralizedThompson
    from lcb.bandits.ucb1 import UCB1
    from lcb.bandits.umucb import UMUCB
    from lcb.bandits.uniform import Uniform
    from lcb.clicks import EventLog
    from lcb.client import AsyncClient, Client
    from lcb.errors import LCBError
    from lcb.evaluate.fixed_arms import FixedArms
    from lcb.evaluate.offline import evaluate_log
    from lcb.evaluate.simulate import simulate
    from lcb.evaluate.tune import tune
    from lcb.evaluate.world import World, given_classes, paper_classes
    from lcb.events import Decision, Event
    from lcb.features import FeatureMap, fit_features
    from lcb.learners import fit
    from lcb.models import Fit, LatentModels, weight_covariance
    from lcb.policies import ClassPolicies, EnumeratedPolicies, Greedy, Softmax
    from lcb.prior import Prior
    from lcb.recommenders.club import Club
    from lcb.recommenders.cofine import CofineUCB
    from lcb.recommenders.factorised import Factorised
    from lcb.recommenders.individual import Individual
    from lcb.recommenders.latent import Latent
    from lcb.recommenders.pooled import Pooled
    from lcb.recommenders.sclub import Sclub
    from lcb.recommenders.tucb import TUCB
    from lcb.stats import UserStats
    from lcb.storage.logs import open_log
    from lcb.storage.models import load_models, save_models
    from lcb.storage.tables import read_log, read_stats

_HOME = {
    "AsyncClient": "lcb.client",
    "ClassPolicies": "lcb.policies",
    "Client": "lcb.client",
    "Club": "lcb.recommenders.club",
    "CofineUCB": "lcb.recommenders.cofine",
    "Decision": "lcb.events",
    "EXP3": "lcb.bandits.exp3",
    "EXP4": "lcb.bandits.exp4",
    "EXP4P": "lcb.bandits.exp4p",
    "EnumeratedPolicies": "lcb.policies",
    "EpochGreedy": "lcb.bandits.epoch_greedy",
    "Event": "lcb.events",
    "EventLog": "lcb.clicks",
    "Factorised": "lcb.recommenders.factorised",
    "FeatureMap": "lcb.features",
    "Fit": "lcb.models",
    "FixedArms": "lcb.evaluate.fixed_arms",
    "GeneralizedThompson": "lcb.bandits.thompson",
    "Greedy": "lcb.policies",
    "ILTCB": "lcb.bandits.iltcb",
    "Individual": "lcb.recommenders.individual",
    "LCBError": "lcb.errors",
    "Latent": "lcb.recommenders.latent",
    "LatentModels": "lcb.models",
    "LinTS": "lcb.bandits.lints",
    "LinUCB": "lcb.bandits.linucb",
    "MMTS": "lcb.bandits.mmts",
    "MUCB": "lcb.bandits.mucb",
    "MultipleKUCB": "lcb.bandits.multiple_k_ucb",
    "Pooled": "lcb.recommenders.pooled",
    "PosteriorMean": "lcb.bandits.posterior_mean",
    "Prior": "lcb.prior",
    "Sclub": "lcb.recommenders.sclub",
    "Softmax": "lcb.policies",
    "TUCB": "lcb.recommenders.tucb",
    "UCB1": "lcb.bandits.ucb1",
    "UMUCB": "lcb.bandits.umucb",
    "Uniform": "lcb.bandits.uniform",
    "UserStats": "lcb.stats",
    "World": "lcb.evaluate.world",
    "evaluate_log": "lcb.evaluate.offline",
    "fit": "lcb.learners",
    "fit_features": "lcb.features",
    "given_classes": "lcb.evaluate.world",
    "load_models": "lcb.storage.models",
    "open_log": "lcb.storage.logs",
    "paper_classes": "lcb.evaluate.world",
    "read_log": "lcb.storage.tables",
    "read_stats": "lcb.storage.tables",
    "save_models": "lcb.storage.models",
    "simulate": "lcb.evaluate.simulate",
    "tune": "lcb.evaluate.tune",
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
