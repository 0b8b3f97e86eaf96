"""mmTS: posterior sampling of the class and of its uncertain weights (Hong et al. 2020, arXiv:2006.08714).

The weights of a class are uncertain: beta_h ~ N(models.beta_h, models.covariance_h).  A user's rewards update this by
Bayes' rule for linear-Gaussian rewards (the publication's Algorithm 3 with the conjugate prior of its Algorithm 4):

    precision_h = covariance_h^-1 + gram / sigma2_h
    mean_h      = precision_h^-1 (covariance_h^-1 beta_h + moment / sigma2_h)
    w_h         proportional to pi_h p(rewards | class h), the weights integrated out
    draw h from w, then beta from N(mean_h, precision_h^-1), play argmax_a beta . x_a

The probability of an arm under a Gaussian draw has no closed form, so the draw is from `n_points` equally likely points
with the mean and the covariance of a standard normal (Sobol points and their mirror images); for these points the
distribution over arms is exact.  Classes with less than 1e-15 of the weight are left out.

mTS, the publication's Algorithm 2, takes the weights as certain: it is `GeneralizedThompson(models)` with eta = 1 and
uniform = 0.  A decision costs O(N (d^3 + K d^2 + n_points K d)) and an update O(d^2), for any number of rewards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_uniform_arms
from lcb.bandits.over_classes._uncertain import UncertainClasses
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context, check_reward
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.stats import add_row


@dataclass(frozen=True)
class MMTS(UncertainClasses):
    """Settings only; the state is the user's statistics as `UserStats` packs them, (d (d + 1) / 2 + d + 2,).

    >>> models = LatentModels(pi=[1.0], beta=[[0.5, 0.5]], sigma2=[0.01], covariance=[np.diag([0.0001, 0.04])])
    >>> bandit, rng = MMTS(models), np.random.default_rng(0)
    >>> decision = bandit.choose(bandit.start(), np.eye(2), rng)
    >>> decision.distribution  # both have the same expected reward
    array([0.5, 0.5])
    >>> state = bandit.update(bandit.start(), decision, reward=0.3)
    >>> decision.arm, bandit.means(state).round(3)  # the second weight was uncertain: 0.5 - 0.2 * 0.04 / (0.04 + 0.01)
    (1, array([[0.5 , 0.34]]))
    """

    traits: ClassVar[Traits] = Traits("models", state="d (d + 1) / 2 + d + 2", cost="N (d³ + K d² + n_points K d)")

    models: LatentModels = field(repr=False)
    n_points: int = 128

    def __post_init__(self) -> None:
        if self.models.covariance is None:
            raise InputError(
                "the models have no covariance, which MMTS needs; add it with "
                "models.with_covariance(weight_covariance(models, stats)), or use GeneralizedThompson"
            )
        if self.n_points < 2 or self.n_points & (self.n_points - 1):
            raise InputError(f"n_points={self.n_points}; it must be a power of 2, at least 2")

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        from lcb.bandits.over_classes._mmts_numba import choose_mmts

        context = check_context(context, self.models.n_features)
        if not np.isfinite(context.sum()):
            raise InputError("the context contains NaN or infinity; give finite features")
        distribution = np.zeros(len(context))
        arm = choose_mmts(state, context, rng.random(), self._terms, self._points, distribution)
        return Decision(arm, distribution[arm], context[arm], distribution)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        check_reward(reward)
        return add_row(state, decision.x, reward)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` are updated in place."""
        from lcb.bandits.over_classes._mmts_numba import serve_mmts

        arms = draw_uniform_arms(uniforms, contexts.shape[2], n_uniform)
        serve_mmts(states, contexts, rewards, uniforms, arms, self._terms, self._points)
        return arms

    @property
    def _points(self) -> Floats:
        return normal_points(self.models.n_features, self.n_points)


@cache
def normal_points(n_features: int, n_points: int) -> Floats:
    """Return n points (d, n) with mean 0 and unit variances, uncorrelated if n > 2 d, in place of a standard normal.

    They are Sobol points, scrambled with a fixed seed, and their mirror images.

    >>> points = normal_points(3, 64)
    >>> np.allclose(points.mean(axis=1), 0), np.allclose(points @ points.T / 64, np.eye(3))
    (True, True)
    """
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    half = n_points // 2
    points = ndtri(Sobol(n_features, rng=np.random.default_rng(0)).random(half))
    points /= np.sqrt(np.mean(points**2, axis=0))
    if half > n_features:
        points = np.linalg.solve(np.linalg.cholesky(points.T @ points / half), points.T).T
    both = np.ascontiguousarray(np.concatenate((points, -points)).T)
    both.setflags(write=False)
    return both
