"""Every bandit with features, as the benchmarks run it."""

from __future__ import annotations

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.mmts import MMTS
from lcb.bandits.over_classes.mucb import MUCB
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4 import EXP4
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.models import LatentModels
from lcb.policies import ClassPolicies


def all_bandits(models: LatentModels, reward_range: tuple[float, float]) -> dict[str, Bandit]:
    """By name; rewards lie in `reward_range`, which some need to know."""
    d, policies = models.n_features, ClassPolicies(models)
    uncertain = models.with_covariance(np.tile(0.001 * np.eye(d), (models.n_classes, 1, 1)))
    return {
        "thompson": GeneralizedThompson(models),
        "posterior mean": PosteriorMean(models),
        "mucb": MUCB(models, 20),
        "mmts": MMTS(uncertain),
        "personal classes": PersonalClasses(uncertain),
        "exp4": EXP4(policies, reward_range),
        "exp4p": EXP4P(policies, reward_range),
        "exp3": EXP3(policies, reward_range),
        "epoch-greedy": EpochGreedy(policies, reward_range=reward_range),
        "iltcb": ILTCB(policies, reward_range=reward_range),
        "linucb": LinUCB(d, 0.5),
        "lints": LinTS(d),
        "coarse-fine": CoarseFineUCB(models.beta[: min(models.n_classes, d)].T),
    }
