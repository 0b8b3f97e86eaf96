"""The algorithms a simulation knows by name: how each is built for a world."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.linucb import LinUCB
from lcb.bandits.posterior_mean import PosteriorMean
from lcb.bandits.thompson import GeneralizedThompson
from lcb.bandits.uniform import Uniform
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.world import World
from lcb.learners import em
from lcb.models import LatentModels
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

WIDTH = 0.25  # LinUCB's; anything between .1 and .5 gives nearly the same regret in the paper's simulation


@dataclass(frozen=True)
class Algorithm:
    name: str
    line: str
    build: Callable[[World, np.random.Generator], Recommender]


def _latent(
    make_bandit: Callable[[LatentModels], Bandit],
) -> Callable[[World, np.random.Generator], Recommender]:
    def build(world: World, rng: np.random.Generator) -> Recommender:
        def learn(stats: UserStats, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
            n_classes = min(world.models.n_classes, stats.n_users)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the next training goes on from here
                return em.fit(stats, n_classes, rng=rng, start=_of_size(last, n_classes), n_threads=1).models

        d = world.models.n_features
        return Latent(d, make_bandit, learn, rng=rng, warmup_bandit=LinUCB(d, width=WIDTH))

    return build


def _of_size(models: LatentModels | None, n_classes: int) -> LatentModels | None:
    """The last models, unless there were too few users then to ask for all classes."""
    return models if models is not None and models.n_classes == n_classes else None


def _true(
    make_bandit: Callable[[LatentModels], Bandit],
) -> Callable[[World, np.random.Generator], Recommender]:
    def build(world: World, rng: np.random.Generator) -> Recommender:
        return Latent(world.models.n_features, make_bandit, rng=rng, models=world.models, retrain_every=None)

    return build


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("lcb", "classes learned by EM, Thompson sampling over them", _latent(GeneralizedThompson)),
        Algorithm("lcb-mean", "classes learned by EM, the arm best on average over them", _latent(PosteriorMean)),
        Algorithm("lcb-gt", "the true classes given, Thompson sampling over them", _true(GeneralizedThompson)),
        Algorithm("lcb-gt-mean", "the true classes given, the arm best on average", _true(PosteriorMean)),
        Algorithm(
            "linucb-population",
            "one LinUCB for all users",
            lambda world, rng: Pooled(LinUCB(world.models.n_features, width=WIDTH)),
        ),
        Algorithm(
            "linucb-individual",
            "one LinUCB per user, from scratch",
            lambda world, rng: Individual(LinUCB(world.models.n_features, width=WIDTH)),
        ),
        Algorithm("random", "every arm alike", lambda world, rng: Pooled(Uniform())),
    )
}


def algorithms_named(names: Sequence[str]) -> list[Algorithm]:
    """The algorithms of these names, in this order."""
    unknown = [name for name in names if name not in ALGORITHMS]
    if unknown:
        raise InputError(f"no algorithm is called {unknown[0]!r}; there are: {', '.join(ALGORITHMS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"algorithms {', '.join(names) or '(none)'}; name at least one, and each once")
    return [ALGORITHMS[name] for name in names]
