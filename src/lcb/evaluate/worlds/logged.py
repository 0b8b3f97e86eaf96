"""Worlds that write a log and know the truth: every user's rate of every category, whatever the log shows.

    people      classes   users of a class are alike
                mixed     users differ around their class
                factors   rates lie in a space of three directions; there are no classes
                unique    every user has independent rates
                alike     all users have the same rates
    logging     uniform   every item is shown equally often
                popular   an item is shown in proportion to 1, 1/2, 1/3, ...; which is drawn at random
                taste     the more a user likes an item, the more often it is shown (up to 20 times as often)

An item's rate is the mean of its categories'.  Showing a category means showing one of its items, as often as `popular`
or `uniform` shows them; this is the arm of the queue methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from lcb.arrays import Floats
from lcb.recommenders.recommender import Recommender
from lcb.storage.logs.log import Log

People = Literal["classes", "mixed", "factors", "unique", "alike"]
Logging = Literal["uniform", "popular", "taste"]
PEOPLE: tuple[People, ...] = ("classes", "mixed", "factors", "unique", "alike")
LOGGING: tuple[Logging, ...] = ("uniform", "popular", "taste")


@dataclass(frozen=True)
class LoggedWorld:
    """A world of `n_categories`; its rates, its items and their popularity are drawn from `seed`."""

    people: People = "classes"
    logging: Logging = "uniform"
    most_categories: int = 1  # of an item; with 1 there is one item per category, else six times as many
    n_categories: int = 12
    n_classes: int = 5
    seed: int = 0

    def _rng(self, part: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, 0x10, part))

    @cached_property
    def class_rates(self) -> Floats:
        """(N, C)"""
        return self._rng(0).beta(0.6, 1.2, (self.n_classes, self.n_categories)).clip(0.01, 0.99)

    @cached_property
    def members(self) -> Floats:
        """The categories of every item, 0/1 (I, C)."""
        alone = np.eye(self.n_categories)
        if self.most_categories == 1:
            return alone
        rng, several = self._rng(1), np.zeros((5 * self.n_categories, self.n_categories))
        for row in several:
            n = rng.integers(1, self.most_categories + 1)
            row[rng.choice(self.n_categories, n, replace=False)] = 1
        return np.concatenate([alone, several])

    @cached_property
    def popularity(self) -> Floats:
        """(I,), of sum 1."""
        rank = self._rng(2).permutation(len(self.members)) if self.logging == "popular" else np.zeros(1)
        weight = np.broadcast_to(1 / (1.0 + rank), len(self.members))
        return weight / weight.sum()

    def draw_users(self, n_users: int, rng: np.random.Generator) -> Floats:
        """Draw the rates of new users for every category, (n_users, C)."""
        mean = self.class_rates.mean(axis=0)
        own = self.class_rates[rng.integers(0, self.n_classes, n_users)]
        if self.people == "classes":
            return own
        if self.people == "mixed":
            return rng.beta(10 * own, 10 * (1 - own))
        if self.people == "unique":
            return rng.beta(6 * mean, 6 * (1 - mean), own.shape)
        if self.people == "alike":
            return np.tile(mean, (n_users, 1))
        directions = self._rng(4).standard_normal((3, self.n_categories))
        log_odds = np.log(mean / (1 - mean)) + 0.7 * rng.standard_normal((n_users, 3)) @ directions
        return np.asarray(1 / (1 + np.exp(-log_odds)))

    def item_rates(self, rates: Floats) -> Floats:
        """Return the rates of every item, (n_users, I), from those of the categories."""
        return rates @ (self.members / self.members.sum(axis=1, keepdims=True)).T

    def arm_rates(self, rates: Floats) -> Floats:
        """Return the rates of a shown category, (n_users, C): the mean of its items by popularity."""
        weight = self.members * self.popularity[:, None]
        return self.item_rates(rates) @ (weight / weight.sum(axis=0))

    def write_log(self, n_users: int, n_labels: float, *, exactly: bool = False) -> Log:
        """Write the log of `n_users` with `n_labels` events each: on average, or `exactly`."""
        rng = self._rng(3)
        rates = self.item_rates(self.draw_users(n_users, rng))
        n = np.full(n_users, int(n_labels)) if exactly else np.maximum(rng.poisson(n_labels, n_users), 1)
        chance = (
            self.popularity * np.exp(3 * rates) if self.logging == "taste" else np.tile(self.popularity, (n_users, 1))
        )
        chance /= chance.sum(axis=1, keepdims=True)
        item = [rng.choice(len(one), size, p=one) for one, size in zip(chance, n.tolist(), strict=True)]
        user, items = np.repeat(np.arange(n_users, dtype=np.int32), n), np.concatenate(item).astype(np.int32)
        return Log(
            users=pa.array(np.arange(n_users)),
            items=pa.array(np.arange(len(self.members))),
            categories=tuple(f"c{i}" for i in range(self.n_categories)),
            item_categories=csr_array(self.members.astype(bool)),
            user=user,
            item=items,
            order=np.arange(len(user)),
            reward=(rng.random(len(user)) < rates[user, items]).astype(np.float32),
            propensity=chance[user, items].astype(np.float32),
        )


def serve_live(recommender: Recommender, x: Floats, rates: Floats, n_steps: int, rng: np.random.Generator) -> Floats:
    """Really serve new users of these rates (U, A); return the mean rate of the arms chosen for each, (U,)."""
    result = []
    for begin in range(0, len(rates), 500):
        own = rates[begin : begin + 500]
        rewards = np.less(rng.random((len(own), n_steps, len(x))), own[:, None]).astype(np.float64)
        contexts = np.ascontiguousarray(np.broadcast_to(x, (*rewards.shape, x.shape[1])))
        arms = recommender.serve([("live", begin + i) for i in range(len(own))], contexts, rewards, rng)
        result.append(np.take_along_axis(own, arms, axis=1).mean(axis=1))
    return np.concatenate(result)
