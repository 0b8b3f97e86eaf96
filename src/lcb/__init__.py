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
    from lcb import charts, progress
    from lcb.bandits.linucb import LinUCB
    from lcb.bandits.posterior_mean import PosteriorMean
    from lcb.bandits.thompson import GeneralizedThompson
    from lcb.bandits.uniform import Uniform
    from lcb.errors import LCBError
    from lcb.evaluate.simulate import simulate
    from lcb.evaluate.world import World, given_classes, paper_classes
    from lcb.events import Decision, Event
    from lcb.learners import fit
    from lcb.models import Fit, LatentModels
    from lcb.policies import Greedy, Softmax
    from lcb.prior import Prior
    from lcb.recommenders.individual import Individual
    from lcb.recommenders.latent import Latent
    from lcb.recommenders.pooled import Pooled
    from lcb.stats import UserStats
    from lcb.storage.models import load_models, save_models
    from lcb.storage.tables import read_stats

_HOME = {
    "Decision": "lcb.events",
    "Event": "lcb.events",
    "Fit": "lcb.models",
    "GeneralizedThompson": "lcb.bandits.thompson",
    "Greedy": "lcb.policies",
    "Individual": "lcb.recommenders.individual",
    "LCBError": "lcb.errors",
    "Latent": "lcb.recommenders.latent",
    "LatentModels": "lcb.models",
    "LinUCB": "lcb.bandits.linucb",
    "Pooled": "lcb.recommenders.pooled",
    "PosteriorMean": "lcb.bandits.posterior_mean",
    "Prior": "lcb.prior",
    "Softmax": "lcb.policies",
    "Uniform": "lcb.bandits.uniform",
    "UserStats": "lcb.stats",
    "World": "lcb.evaluate.world",
    "fit": "lcb.learners",
    "given_classes": "lcb.evaluate.world",
    "load_models": "lcb.storage.models",
    "paper_classes": "lcb.evaluate.world",
    "read_stats": "lcb.storage.tables",
    "save_models": "lcb.storage.models",
    "simulate": "lcb.evaluate.simulate",
}
_ROOMS = ("charts", "progress")

__all__ = [
    "Decision",
    "Event",
    "Fit",
    "GeneralizedThompson",
    "Greedy",
    "Individual",
    "LCBError",
    "Latent",
    "LatentModels",
    "LinUCB",
    "Pooled",
    "PosteriorMean",
    "Prior",
    "Softmax",
    "Uniform",
    "UserStats",
    "World",
    "__version__",
    "charts",
    "fit",
    "given_classes",
    "load_models",
    "paper_classes",
    "progress",
    "read_stats",
    "save_models",
    "simulate",
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
