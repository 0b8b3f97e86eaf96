"""CoFineUCB for one user: LinUCB regularised towards a given subspace (Yue, Hong & Guestrin 2012, ICML, Algorithm 1).

    coarse  M~ = coarse_ridge I + U' X'X U        w~ = M~^-1 U' b            least squares in the subspace U (d, k)
    fine    M  = ridge I + X'X                    w  = M^-1 (b + ridge U w~) least squares regularised towards U w~
    play argmax_a  w . x_a + width * (sqrt(x_a' M^-1 x_a) + ridge * sqrt(v_a' M~^-1 v_a))        v_a = U' M^-1 x_a

b = sum r x.  The first root is the uncertainty of the fine estimate, the second that of the coarse one.  A large
`ridge` trusts the subspace, a small one the user's own rewards; U = 0 gives LinUCB, U = I with infinite ridge gives
LinUCB with `coarse_ridge`.  One `width` replaces the publication's four confidence constants (a variance and a bias
term per level).

The state is [M, b].  A decision costs O(d^3 + K d^2), an update O(d^2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_uniform_arms
from lcb.bandits.linear import _ridge
from lcb.bandits.traits import Traits
from lcb.decision import Decision, check_context
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.stats import UserStats


@dataclass(frozen=True, eq=False)
class CoarseFineUCB:
    """Settings only; the state is [M, b], (d, d + 1), flattened.

    Past users have equal weights for both features.  A reward of 1 for the first feature is 1/3 in the subspace
    (M~ = 1 + 1/2, U'b = 1 / sqrt(2)) for either feature, and the fine estimate moves (1/3 + 1) / 2 = 2/3 on the first.

    >>> bandit = CoarseFineUCB(np.array([[1.0], [1.0]]) / np.sqrt(2), ridge=1, coarse_ridge=1)
    >>> state = bandit.update(bandit.start(), Decision(0, 1.0, np.array([1.0, 0.0])), reward=1.0)
    >>> bandit.coarse(state).round(3), bandit.theta(state).round(3)
    (array([0.471]), array([0.667, 0.333]))
    """

    traits: ClassVar[Traits] = Traits("models", state="d (d + 1)", cost="d³ + K d²")

    subspace: Floats = field(repr=False)  # U (d, k)
    width: float = 0.1
    ridge: float = 3.0
    coarse_ridge: float = 0.1

    def __post_init__(self) -> None:
        shape = np.shape(self.subspace)
        if len(shape) != 2 or not 1 <= shape[1] <= shape[0] or not np.isfinite(self.subspace).all():
            raise InputError(f"subspace of shape {shape}; it must be (d, k) finite numbers with k from 1 to d")
        _ridge.check_not_negative("width", self.width)
        _ridge.check_positive("ridge", self.ridge)
        _ridge.check_positive("coarse_ridge", self.coarse_ridge)

    @classmethod
    def from_models(cls, models: LatentModels, n_coarse: int | None = None, **settings: float) -> CoarseFineUCB:
        """Take as subspace the first `n_coarse` principal directions of the classes' weights (None: all)."""
        directions = np.linalg.svd(models.beta, full_matrices=False)[2]
        return cls(directions[: n_coarse or len(directions)].T.copy(), **settings)

    def start(self) -> Floats:
        return _ridge.start(len(self.subspace), self.ridge)

    def train(self, stats: UserStats) -> Floats:
        """Return the state after all rewards of a log."""
        return _ridge.train(stats, self.ridge)

    def coarse(self, state: Floats) -> Floats:
        """Return w~, the weights in the subspace, (k,)."""
        matrix = self._matrix(state)
        return np.linalg.solve(self._coarse_gram(matrix), self.subspace.T @ matrix[:, -1])

    def theta(self, state: Floats) -> Floats:
        """Return w, the weights, (d,)."""
        matrix = self._matrix(state)
        return np.linalg.solve(matrix[:, :-1], matrix[:, -1] + self.ridge * self.subspace @ self.coarse(state))

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = check_context(context, self.subspace.shape[0])
        matrix = self._matrix(state)
        moment = matrix[:, -1]
        inverse = _ridge.inverse_factor(matrix[:, :-1])
        coarse_inverse = _ridge.inverse_factor(self._coarse_gram(matrix))
        coarse = (coarse_inverse @ (moment @ self.subspace)) @ coarse_inverse
        fine = context @ inverse.T
        solved = fine @ inverse  # M^-1 x_a, (K, d)
        seen = solved @ (self.subspace @ coarse_inverse.T)
        scores = np.sqrt(np.vecdot(fine, fine))
        scores += self.ridge * np.sqrt(np.vecdot(seen, seen))
        scores *= self.width
        scores += solved @ (moment + self.ridge * (self.subspace @ coarse))
        return Decision.best(scores, context, rng.random())

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return _ridge.update(state, decision, reward)

    @cached_property
    def _ridges(self) -> Floats:
        """M~ - U' M U."""
        k = self.subspace.shape[1]
        return self.coarse_ridge * np.eye(k) - self.ridge * (self.subspace.T @ self.subspace)

    def _coarse_gram(self, matrix: Floats) -> Floats:
        return self.subspace.T @ matrix[:, :-1] @ self.subspace + self._ridges

    def _matrix(self, state: Floats) -> Floats:
        return state.reshape(len(self.subspace), -1)

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        """Serve many users at once, compiled; `states` (B, d (d + 1)) are updated in place."""
        from lcb.bandits.linear._coarse_fine_numba import serve_coarse_fine

        arms = draw_uniform_arms(uniforms, contexts.shape[2], n_uniform)
        play, subspace = (states, contexts, rewards, uniforms, arms), np.ascontiguousarray(self.subspace)
        if not serve_coarse_fine(*play, subspace, self._ridges, self.width, self.ridge):
            raise _ridge.build_singular_error()
        return arms
