"""Personal classes, whose users differ within a class; with one class, the mixed model as a baseline."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.evaluate.algorithms.algorithm import Algorithm, Task, Value
from lcb.evaluate.algorithms.latent import OURS, build_learned
from lcb.evaluate.algorithms.learning import learn_from_stats
from lcb.models import LatentModels
from lcb.recommenders.recommender import Recommender


def _personal(models: LatentModels, task: Task, bonus: float) -> Bandit:
    return PersonalClasses(models, bonus)


def build_personal(task: Task, rng: np.random.Generator, most_classes: int, **settings: Value) -> Recommender:
    """Build Algorithm 1 with the learner `personal`, of at most `most_classes` classes, and `PersonalClasses`."""
    own = replace(task, n_classes=min(task.n_classes, most_classes))
    return build_learned(_personal, partial(learn_from_stats, name="personal"), "personal")(own, rng, **settings)


ALGORITHMS = (
    Algorithm(
        "lcb-personal", "classes of people who differ, the arm best on average with a bonus for what is unknown", OURS,
        build=build_personal, grid={"bonus": (0.5, 0.0, 1.0), "most_classes": (10, 5, 20)}, cost="N (d^3 + K d^2)",
    ),
    Algorithm(
        "mixed-model", "one class of people who differ (empirical Bayes), the same rule", "Laird & Ware 1982",
        build=partial(build_personal, most_classes=1), grid={"bonus": (0.5, 0.0, 1.0)}, cost="d^3 + K d^2",
    ),
)  # fmt: skip
