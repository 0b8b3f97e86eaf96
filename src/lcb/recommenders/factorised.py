"""Collaborative filtering of a fixed set of items by matrix factorisation (Koren, Bell & Volinsky 2009, IEEE Computer).

The paper's introduction compares it with bandits: it recommends the item with the highest predicted reward, without
exploring.

    r_ui = mean + b_i + b_u + q_i . p_u                          b_i, q_i of items; b_u, p_u of users
    minimise  sum over rewards of (error^2 + ridge (b_i^2 + b_u^2 + |q_i|^2 + |p_u|^2))          in rewards of spread 1

scikit-surprise's SVD learns the items from past users, by stochastic gradient descent on the sum above.  Every decision
computes a user's p_u and b_u in closed form from the rewards so far: with x_i = (q_i, 1),

    (p_u, b_u) = (sum x_i x_i' + n ridge I)^-1 sum x_i (r_ui - mean - b_i)              n rewards of this user

so a user without rewards gets the item of the largest b_i.  Until items are learned, arms are uniform; after that the
choice is deterministic: the propensity is 1, or 1 / ties.  With k factors a decision costs O(n k^2 + k^3 + K k).  A row
of a context is an item if it equals that item's row of `items`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms
from lcb.decision import Decision, check_reward
from lcb.errors import InputError, MissingExtra
from lcb.recommenders.recommender import Users, serve_step_by_step
from lcb.recommenders.relearning import Schedule
from lcb.stats import UserStats

_Rewards = dict[int, tuple[float, float]]  # of one user, by item: how many, and their sum


@dataclass(frozen=True, eq=False)
class Factors:
    """The learned items; a reward is `mean` + `spread` * (bias_i + b_u + q_i . p_u)."""

    mean: float
    spread: float
    bias: Floats  # (M,)
    q: Floats  # (M, k)

    def fold_in(self, rewards: _Rewards, ridge: float) -> Floats:
        """Return a user's (p_u, b_u), (k + 1,)."""
        items = np.fromiter(rewards, np.intp, len(rewards))
        count, total = np.array(list(rewards.values())).reshape(-1, 2).T
        x = np.column_stack((self.q[items], np.ones(len(items))))
        error = (total - count * self.mean) / self.spread - count * self.bias[items]
        ridged = (x.T * count) @ x + max(count.sum(), 1.0) * ridge * np.eye(x.shape[1])
        return np.linalg.solve(ridged, x.T @ error)

    def predict(self, user: Floats) -> Floats:
        """Return the expected reward of every item for a user with (p_u, b_u), (M,)."""
        return np.asarray(self.mean + self.spread * (self.bias + self.q @ user[:-1] + user[-1]))


class Factorised:
    """Settings, the items, the rewards of all users, and the factors learned last.

    `items` (M, d) are the context rows of the items, the identity if arms have no features; `history` holds past users
    over such arms.  Items are relearned after every `retrain_every` new users.
    """

    def __init__(
        self,
        items: Floats,
        *,
        rng: np.random.Generator | int,
        n_factors: int = 5,
        ridge: float = 0.1,
        n_epochs: int = 100,
        rate: float = 0.01,
        history: UserStats | None = None,
        n_warmup_users: int = 50,
        retrain_every: int | None = 50,
    ) -> None:
        _load_surprise()
        if n_factors < 1 or n_epochs < 1:
            raise InputError(f"n_factors={n_factors}, n_epochs={n_epochs}; both must be at least 1")
        if not (np.isfinite(ridge) and ridge > 0 and np.isfinite(rate) and rate > 0):
            raise InputError(f"ridge={ridge}, rate={rate}; both must be positive numbers")
        self.items, self.rng = np.array(items, float), np.random.default_rng(rng)
        self.n_factors, self.ridge, self.n_epochs, self.rate = n_factors, ridge, n_epochs, rate
        self._place = {_build_key(row): i for i, row in enumerate(self.items)}
        if len(self._place) < len(self.items):
            raise InputError(f"{len(self.items)} items with {len(self._place)} different rows; rows must be unique")
        self._rewards: dict[Hashable, _Rewards] = {}
        self._past = [] if history is None else self._read_history(history)
        self.schedule = Schedule(n_warmup_users, retrain_every, trained=bool(self._past))
        self.factors = self._learn()

    def start(self, user: Hashable) -> None:
        if user in self._rewards:
            return
        if self.schedule.is_due(len(self._rewards)):
            self.factors = self._learn()
            self.schedule.plan_next(len(self._rewards), succeeded=self.factors is not None)
        self._rewards[user] = {}

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        self.start(user)
        places = [self._find_item(row) for row in context]
        if self.factors is None:
            return Decision.uniform(context, rng.random())
        return Decision.best(self.predict(user)[places], context, rng.random())

    def predict(self, user: Hashable) -> Floats:
        """Return the expected reward of every item for this user, (M,)."""
        if self.factors is None:
            raise InputError("no items are learned yet; give `history`, or serve the first users")
        return self.factors.predict(self.factors.fold_in(self._rewards.get(user, {}), self.ridge))

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        check_reward(reward)
        if user not in self._rewards:
            raise InputError(f"user {user!r} has not started; choose for them first")
        item, own = self._find_item(decision.x), self._rewards[user]
        count, total = own.get(item, (0.0, 0.0))
        own[item] = count + 1.0, total + float(reward)

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        return serve_step_by_step(self, users, contexts, rewards, rng)

    def _find_item(self, row: Floats) -> int:
        place = self._place.get(_build_key(row))
        if place is None:
            raise InputError(f"the row {row} of the context is not one of the {len(self.items)} items; use `items`")
        return place

    def _read_history(self, history: UserStats) -> list[_Rewards]:
        """Return past users' rewards by item; statistics contain them only if the features are one-hot."""
        n = len(self.items)
        if not np.array_equal(self.items, np.eye(n)) or history.n_features != n:
            raise InputError(
                f"history has {history.n_features} features, there are {n} items; with a history, `items` must be the "
                "identity"
            )
        gram = history.gram
        count = np.einsum("uii->ui", gram)
        if np.abs(gram).sum() > count.sum():
            raise InputError("history has rows that are not one-hot; give one whose arms have no features")
        return [
            {int(i): (float(counts[i]), float(totals[i])) for i in np.flatnonzero(counts)}
            for counts, totals in zip(count, history.moment, strict=True)
        ]

    def _learn(self) -> Factors | None:
        """Learn the items from all rewards so far; None if there are none."""
        users = [rewards for rewards in (*self._past, *self._rewards.values()) if rewards]
        pairs = [(u, i, *pair) for u, rewards in enumerate(users) for i, pair in rewards.items()]
        if not pairs:
            return None
        count, value = np.array([(count, total / count) for _, _, count, total in pairs]).T
        mean = float(count @ value / count.sum())
        spread = float(np.sqrt(count @ (value - mean) ** 2 / count.sum())) or 1.0
        by_user: dict[int, list[tuple[int, float]]] = defaultdict(list)
        by_item: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for (u, i, n, _), reward in zip(pairs, ((value - mean) / spread).tolist(), strict=True):
            for _ in range(int(n)):
                by_user[u].append((i, reward))
                by_item[i].append((u, reward))
        surprise = _load_surprise()
        n_items, n_ratings = len(self.items), int(count.sum())
        ratings = surprise.Trainset(by_user, by_item, len(users), n_items, n_ratings, (-1, 1), {}, {})
        seed = int(self.rng.integers(2**31))
        svd = surprise.SVD(self.n_factors, self.n_epochs, lr_all=self.rate, reg_all=self.ridge, random_state=seed)
        svd.fit(ratings)
        seen = np.isin(np.arange(n_items), list(by_item))  # items without rewards count as average
        return Factors(mean, spread, np.where(seen, svd.bi, 0.0), np.where(seen[:, None], svd.qi, 0.0))


def _build_key(row: Floats) -> bytes:
    return (np.asarray(row, float) + 0.0).tobytes()  # -0.0 is 0.0


def _load_surprise() -> Any:
    try:
        import surprise
    except ImportError:
        raise MissingExtra("scikit-surprise", "factorise") from None
    return surprise
