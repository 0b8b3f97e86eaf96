"""tUCB: users in sequence over arms without features (Azar, Lazaric & Brunskill 2013, arXiv:1307.6887, Algorithm 2).

umUCB over the current classes serves each user; the classes are re-estimated from all users so far by the method of
moments.  A user's rewards of each arm go to three sets in turn; with their means m1, m2, m3 (K,):

    M2 = average over users of m1 (x) m2               M3 = average over users of m1 (x) m2 (x) m3
    W' M2 W = I                                        lambda_h, v_h = eigenpairs of M3(W, W, W)
    beta_h = lambda_h B v_h, W' B = I                  pi_h = 1 / lambda_h^2
    epsilon_j = margin * sqrt(log(K / delta) / j)      bound on the error of beta after j users

The eigenpairs come from the robust tensor power method.  The products are averaged over all orders of the three sets,
which makes M2 and M3 symmetric.  Entries of a user's products with an arm that has no reward in one of the sets are
left out.  `margin` stands for the publication's C(Theta) K^2.5 m^2.  During warm-up epsilon is infinite and umUCB is
UCB.  A user keeps the classes that were current when they started.  A decision costs O(N K), an estimate O(users *
K^3).
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations

import numpy as np

from lcb.arrays import Floats, add_up
from lcb.bandits.bandit import Arms
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.learners.spectral.tensor_power import tensor_power, whitening
from lcb.models import LatentModels
from lcb.recommenders.recommender import Users, serve_step_by_step
from lcb.recommenders.relearning import Schedule

_SETS = 3
_TINY = 1e-9  # smaller eigenvalues, relative to the largest, are rounding


class TUCB:
    """Settings, the versions of the classes so far, the users' states and the means of their three sets.

    >>> recommender = TUCB(n_arms=2, n_classes=1, n_steps=6, rng=np.random.default_rng(0), n_warmup_users=1)
    >>> contexts, rewards = np.tile(np.eye(2), (2, 6, 1, 1)), np.tile([0.2, 0.8], (2, 6, 1))
    >>> np.sort(recommender.serve(["ann"], contexts[:1], rewards[:1], np.random.default_rng(0)))  # each arm three times
    array([[0, 0, 0, 1, 1, 1]])
    >>> recommender.start("bob")
    >>> recommender.versions[0].beta.round(6)
    array([[0.2, 0.8]])
    """

    def __init__(
        self,
        n_arms: int,
        n_classes: int,
        *,
        n_steps: int,
        rng: np.random.Generator | int,
        noise: float = 0.5,
        margin: float = 0.3,
        width: float = 1.0,
        delta: float | None = None,
        n_first: int = _SETS,
        n_warmup_users: int = 50,
        retrain_every: int | None = 1,
    ) -> None:
        if not 1 <= n_classes <= n_arms:
            raise InputError(f"n_classes={n_classes} for {n_arms} arms; the method of moments finds 1 to {n_arms}")
        if not (np.isfinite(noise) and noise > 0 and np.isfinite(margin) and margin >= 0):
            raise InputError(f"noise={noise}, margin={margin}; noise must be above 0, margin at least 0")
        self.n_arms, self.n_classes, self.n_steps = n_arms, n_classes, n_steps
        self.rng = np.random.default_rng(rng)
        self.noise, self.margin, self.width, self.delta, self.n_first = noise, margin, width, delta, n_first
        self.schedule = Schedule(n_warmup_users, retrain_every)
        self.versions: list[LatentModels] = []
        flat = self._build_models(np.ones(n_classes), np.zeros((n_classes, n_arms)))
        self._bandits = [self._build_bandit(flat, np.inf)]
        self._users: dict[Hashable, tuple[int, Floats]] = {}  # the index of the user's bandit, and its state
        self._sets: dict[Hashable, Floats] = {}  # (2, 3, K): number and sum of the rewards of each set

    def start(self, user: Hashable) -> None:
        if user in self._users:
            return
        if self.schedule.is_due(len(self._users)):
            n_versions = len(self.versions)
            self._learn()
            self.schedule.plan_next(len(self._users), succeeded=len(self.versions) > n_versions)
        self._users[user] = len(self._bandits) - 1, self._bandits[-1].start()
        self._sets[user] = np.zeros((2, _SETS, self.n_arms))

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        """Choose an arm; `advice` of the decision says which of the user's three sets its reward joins."""
        self.start(user)
        version, state = self._users[user]
        bandit = self._bandits[version]
        taken = bandit.choose(state, context, rng)
        earlier = state[: self.n_arms] @ taken.x
        self._users[user] = version, bandit.count_decision(state, taken)
        return Decision(
            taken.arm, taken.propensity, taken.x, taken.distribution, taken.at_random, np.array([earlier % _SETS])
        )

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        if user not in self._users or decision.advice is None:
            raise InputError(f"the decision was not made by this recommender for user {user!r}; choose for them first")
        version, state = self._users[user]
        self._users[user] = version, self._bandits[version].update(state, decision, reward)
        count, total = self._sets[user]
        into = int(decision.advice[0])
        count[into] += decision.x
        total[into] += reward * decision.x

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        return serve_step_by_step(self, users, contexts, rewards, rng)

    def _learn(self) -> None:
        """Add a version, unless there are too few data for the moments."""
        estimated = estimate(np.array(list(self._sets.values())), self.n_classes, self.rng)
        if estimated is None:
            return
        self.versions.append(self._build_models(*estimated))
        delta = 1 / self.n_steps if self.delta is None else self.delta
        epsilon = self.margin * np.sqrt(np.log(self.n_arms / delta) / len(self._sets))
        self._bandits.append(self._build_bandit(self.versions[-1], epsilon))

    def _build_models(self, pi: Floats, beta: Floats) -> LatentModels:
        return LatentModels(pi / pi.sum(), beta, np.full(len(pi), self.noise**2))

    def _build_bandit(self, models: LatentModels, epsilon: float) -> UMUCB:
        return UMUCB(models, self.n_steps, epsilon, self.n_first, self.width, self.delta)


def estimate(sets: Floats, n_classes: int, rng: np.random.Generator) -> tuple[Floats, Floats] | None:
    """Estimate `pi` (N,) and `beta` (N, K) from counts and sums (users, 2, 3, K); None if data are too few."""
    moments = _compute_moments(sets)
    if moments is None:
        return None
    second, third = moments
    values = np.linalg.eigvalsh(second)
    if values[-n_classes] <= _TINY * abs(values).max():
        return None
    white, back = whitening(second, n_classes)
    tensor = np.einsum("ijk,ia,jb,kc->abc", third, white, white, white, optimize=True)
    lengths, vectors = tensor_power(tensor, rng)
    return 1 / np.square(np.maximum(lengths, 1.0)), lengths[:, None] * vectors @ back.T


def _compute_moments(sets: Floats) -> tuple[Floats, Floats] | None:
    """Return M2 (K, K) and M3 (K, K, K); None if some entry has no user with rewards in all its sets."""
    count, total = sets[:, 0], sets[:, 1]
    mean, seen = total / np.maximum(count, 1), (count > 0).astype(float)
    moments = []
    for product in ("ui,uj->ij", "ui,uj,uk->ijk"):
        weight = _sum_over_orders(product, seen)
        if not weight.all():
            return None
        moments.append(_sum_over_orders(product, mean) / weight)
    return moments[0], moments[1]


def _sum_over_orders(product: str, values: Floats) -> Floats:
    """Sum products of the sets' `values` (users, 3, K) over users and over all orders of the sets."""
    orders = permutations(range(_SETS), product.count("u"))
    return add_up(np.einsum(product, *(values[:, s] for s in order), optimize=True) for order in orders)
