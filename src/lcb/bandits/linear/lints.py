"""Thompson Sampling with linear payoffs (Agrawal & Goyal 2013, arXiv:1209.3352, Algorithm 1).

    A = ridge I + sum x x'        b = sum r x        theta = A^-1 b
    draw theta~ from N(theta, scale^2 A^-1), play argmax_a theta~ . x_a          (scale is the publication's v)

A decision must carry the probability of its arm, which has no closed form under a Gaussian.  So the Gaussian is
replaced by `n_points` equally likely points with the same mean and covariance:

    theta_i = theta + scale C'^-1 z_i        A = C C'        z_i: Sobol points turned normal, mean 0, covariance I
    p_a     = share of the points under which arm a is best          tied arms share a point equally

so p is the exact distribution of the arm.  With 512 points, 10 features and 20 arms, its total variation distance to
the Gaussian's is 0.05 before any reward, when all arms are nearly equal, and falls below 0.01 as one arm stands out.
An arm whose probability under the Gaussian is far below 1 / n_points may get none and is then never played.

The state is [A, b].  A decision costs O(d^3 + K d (d + n_points)), an update O(d^2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_uniform_arms
from lcb.bandits.linear import _ridge
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context
from lcb.errors import InputError
from lcb.stats import UserStats

_WORD = 64  # points are counted 64 at a time
_ROUNDING = 2.0**-50  # in a matrix product, the scores of equal arms may differ by this times d^2


@dataclass(frozen=True)
class LinTS:
    """Settings only; the state is [A, b], (d, d + 1), flattened.

    One feature and two opposite arms: before any reward, each is best under half of the points.  After a reward of 2,
    theta is 1 with a standard deviation of 0.25 / sqrt(2), so theta~ is negative with probability 8e-9.

    >>> bandit, rng = LinTS(n_features=1, scale=0.25), np.random.default_rng(0)
    >>> context = np.array([[1.0], [-1.0]])
    >>> bandit.choose(bandit.start(), context, rng).distribution
    array([0.5, 0.5])
    >>> state = bandit.update(bandit.start(), Decision(0, 0.5, context[0]), reward=2.0)
    >>> bandit.theta(state), bandit.covariance(state)
    (array([1.]), array([[0.03125]]))
    >>> bandit.choose(state, context, rng).distribution
    array([1., 0.])
    """

    traits: ClassVar[Traits] = Traits("n_features", state="d (d + 1)", cost="d³ + K d n_points")

    n_features: int
    scale: float = 0.1
    ridge: float = 1.0
    n_points: int = 512

    def __post_init__(self) -> None:
        _ridge.check_features(self.n_features)
        _ridge.check_not_negative("scale", self.scale)
        _ridge.check_positive("ridge", self.ridge)
        fewest = max(_WORD, 4 * self.n_features)
        if self.n_points < fewest or self.n_points & (self.n_points - 1):
            raise InputError(
                f"n_points={self.n_points} for {self.n_features} features; it must be a power of 2, at least {fewest}"
            )

    def start(self) -> Floats:
        return _ridge.start(self.n_features, self.ridge)

    def train(self, stats: UserStats) -> Floats:
        """Return the state after all rewards of a log."""
        return _ridge.train(stats, self.ridge)

    def theta(self, state: Floats) -> Floats:
        """Return the posterior mean, (d,)."""
        matrix = self._matrix(state)
        return np.linalg.solve(matrix[:, :-1], matrix[:, -1])

    def covariance(self, state: Floats) -> Floats:
        """Return the posterior covariance scale^2 A^-1, (d, d)."""
        return self.scale**2 * np.linalg.inv(self._matrix(state)[:, :-1])

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = check_context(context, self.n_features)
        arms = context @ self._shape(state)
        scores = arms @ _points(self.n_features, self.n_points)  # theta_i . x_a, (K, n_points)
        best = scores.max(axis=0)
        best -= _ROUNDING * arms.shape[1] ** 2 * np.abs(arms).max()
        wins = scores >= best
        distribution = _count_shares(wins)
        place = rng.random() * self.n_points
        tied = wins[:, int(place)].nonzero()[0]
        arm = int(tied[int(place % 1 * len(tied))])
        return Decision(arm, distribution[arm], context[arm], distribution)

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return _ridge.update(state, decision, reward)

    def revise(self, state: Floats, decision: Decision, before: float, after: float) -> Floats:
        """Return the state with the reward of this decision changed from `before` to `after`."""
        matrix = self._matrix(state).copy()
        matrix[:, -1] += (after - before) * decision.x
        return matrix.ravel()

    def _shape(self, state: Floats) -> Floats:
        """Return [scale C'^-1, theta] (d, d + 1), whose product with [z_i, 1] is theta_i."""
        matrix = self._matrix(state)
        inverse = _ridge.inverse_factor(matrix[:, :-1])
        shape = np.empty_like(matrix)
        np.multiply(inverse.T, self.scale, shape[:, :-1])
        shape[:, -1] = (inverse @ matrix[:, -1]) @ inverse
        return shape

    def _matrix(self, state: Floats) -> Floats:
        return state.reshape(self.n_features, -1)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, d (d + 1)) are updated in place."""
        from lcb.bandits.linear._lints_numba import serve_lints

        arms = draw_uniform_arms(uniforms, contexts.shape[2], n_uniform)
        points = self.scale * _points(self.n_features, self.n_points)[:-1].T
        if not serve_lints(states, contexts, rewards, uniforms, arms, points):
            raise _ridge.build_singular_error()
        return arms


def _count_shares(wins: NDArray[np.bool_]) -> Floats:
    """Return the share of points under which each arm is best, (K,), from `wins` (K, n_points); ties are shared."""
    n_points = wins.shape[1]
    counts = np.bitwise_count(np.packbits(wins).view(np.uint64)).reshape(len(wins), -1).sum(axis=1)
    if counts.sum() == n_points:
        return counts / n_points
    ties = wins.sum(axis=0)
    if not ties.all():
        raise InputError("the context or the state contains NaN; give finite features and rewards")
    return np.asarray((wins / ties).mean(axis=1))


@cache
def _points(n_features: int, n_points: int) -> Floats:
    """Return [z_i, 1] (d + 1, n_points): points of mean 0 and covariance I, the same on every machine."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(n_features, scramble=False).random(n_points) + 0.5 / n_points
    z = ndtri(uniform).T  # each row has the same n_points quantiles, in its own order
    z = np.linalg.solve(np.linalg.cholesky(z @ z.T / n_points), z)
    points = np.concatenate([z, np.ones((1, n_points))])
    points.flags.writeable = False
    return points
