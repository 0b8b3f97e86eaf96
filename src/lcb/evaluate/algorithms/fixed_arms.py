"""Algorithms for arms without features: latent bandits without contexts, and collaborative filtering."""

from __future__ import annotations

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.fixed_arms.multiple_k_ucb import MultipleKUCB
from lcb.bandits.fixed_arms.ucb1 import UCB1
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.evaluate.algorithms.algorithm import NO_FEATURES, Algorithm, Task
from lcb.evaluate.algorithms.latent import build_given
from lcb.models import LatentModels
from lcb.recommenders.factorised import Factorised
from lcb.recommenders.individual import Individual
from lcb.recommenders.recommender import Recommender
from lcb.recommenders.tucb import TUCB

_AZAR = "Azar, Lazaric & Brunskill 2013"
_WIDTHS = (1.0, 0.25, 0.5, 2.0)


def _ucb(task: Task, rng: np.random.Generator, width: float) -> Recommender:
    return Individual(UCB1(task.n_arms, width))


def _maillard_mannor(models: LatentModels, task: Task, width: float) -> Bandit:
    return MultipleKUCB(models, width)


def _umucb(models: LatentModels, task: Task, width: float) -> Bandit:
    return UMUCB(models, task.n_steps, width=width)


def _tucb(task: Task, rng: np.random.Generator, width: float, margin: float) -> Recommender:
    low, high = task.reward_range
    return TUCB(
        task.n_arms,
        task.n_classes,
        n_steps=task.n_steps,
        rng=rng,
        noise=(high - low) / 2,
        margin=margin,
        width=width,
        n_warmup_users=task.n_warmup_users,
        retrain_every=task.retrain_every,
    )


def _factorised(task: Task, rng: np.random.Generator, n_factors: int, ridge: float) -> Recommender:
    return Factorised(
        np.eye(task.n_arms),
        rng=rng,
        n_factors=n_factors,
        ridge=ridge,
        history=task.past,
        n_warmup_users=task.n_warmup_users,
        retrain_every=task.retrain_every,
    )


ALGORITHMS = (
    Algorithm(
        "ucb-individual", "fixed arms: one UCB1 per user, from scratch", "Auer et al. 2002",
        build=_ucb, grid={"width": _WIDTHS}, cost="K", needs=NO_FEATURES,
    ),
    Algorithm(
        "maillard-mannor", "fixed arms: Multiple-K-UCB, the true classes given", "Maillard & Mannor 2014",
        build=build_given(_maillard_mannor), grid={"width": _WIDTHS}, cost="N K", needs=NO_FEATURES,
    ),
    Algorithm(
        "umucb", "fixed arms: mUCB over a finite set of models, the true classes given", _AZAR,
        build=build_given(_umucb), grid={"width": _WIDTHS}, cost="N K", needs=NO_FEATURES,
    ),
    Algorithm(
        "tucb", "fixed arms: classes from moments of past users, umUCB over them", _AZAR,
        build=_tucb, grid={"width": (0.25, 1.0, 0.5, 0.1), "margin": (0.3, 0.1, 1.0)}, cost="N K", needs=NO_FEATURES,
    ),
    Algorithm(
        "factorised", "fixed arms: matrix factorisation, the item it predicts best", "Koren et al. 2009",
        build=_factorised, grid={"n_factors": (5, 2, 10), "ridge": (0.1, 0.02, 0.5)}, cost="K k + k^3",
        needs=NO_FEATURES,
    ),
)  # fmt: skip
