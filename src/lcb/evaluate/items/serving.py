"""Serves users on their own items, each offered until taken, and each label used once.

All algorithms meet the same users with their items in the same order, which is random, so that ties are too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats, Index
from lcb.bandits.linear.linucb import LinUCB
from lcb.evaluate.choice.queues import Queues
from lcb.evaluate.choice.serving import serve
from lcb.item_effects import ArmEffects
from lcb.learners.effects.rows import ItemRows
from lcb.models import LatentModels
from lcb.stats import UserStats


@dataclass(frozen=True, eq=False)
class ItemQueues:
    """The items of users to be served; the items of user u are begin[u] to begin[u + 1]."""

    begin: Index = field(repr=False)  # (U + 1,)
    item: Index = field(repr=False)  # (n,)
    reward: Floats = field(repr=False)  # (n,)
    n_steps: int

    @property
    def n_users(self) -> int:
        return len(self.begin) - 1


def draw_item_queues(rows: ItemRows, n_steps: int, rng: np.random.Generator) -> ItemQueues:
    """Put the items of every user of `rows` into a random order."""
    order = np.lexsort((rng.random(len(rows.user)), rows.user))
    begin = np.searchsorted(rows.user, np.arange(rows.n_users + 1))
    return ItemQueues(begin, rows.item[order], rows.reward[order], n_steps)


def serve_scores(score: Floats, queues: ItemQueues) -> Floats:
    """Return the mean reward of each user who takes the items of the highest scores (I,), whatever the rewards."""
    user = np.repeat(np.arange(queues.n_users), np.diff(queues.begin))
    order = np.lexsort((-score[queues.item], user))
    place = np.arange(len(user)) - queues.begin[user]
    taken = order[place < queues.n_steps]
    return np.bincount(user[taken], queues.reward[taken], queues.n_users) / queues.n_steps


def serve_classes(models: LatentModels, x: Floats, bonus: float, queues: ItemQueues, effect: Floats) -> Floats:
    """Return the mean reward of each user under the rule of `LearnedClasses` with item effects (I,), compiled."""
    size, steps = np.ones(len(queues.item), np.int64), np.full(queues.n_users, queues.n_steps)
    own = Queues(x, queues.begin, queues.item, queues.reward[:, None], size, steps, is_filled=False)
    return serve(models, bonus, own, effect)


def serve_population(bandit: LinUCB, past: UserStats, x: Floats, queues: ItemQueues, effect: Floats) -> Floats:
    """Return the mean reward of each user under one LinUCB for all, which learned from past users and goes on."""
    state, rng, found = bandit.train(past), np.random.default_rng(0), np.zeros(queues.n_users)
    none = np.zeros(len(effect))
    for u in range(queues.n_users):
        left = np.arange(queues.begin[u], queues.begin[u + 1])
        for _ in range(queues.n_steps):
            item = queues.item[left]
            decision = bandit.choose(state, x[item], rng, ArmEffects(effect[item], none[item]))
            reward = float(queues.reward[left[decision.arm]])
            state, found[u] = bandit.update(state, decision, reward), found[u] + reward
            left = np.delete(left, decision.arm)
    return found / queues.n_steps


def serve_individual(bandit: LinUCB, x: Floats, queues: ItemQueues, effect: Floats) -> Floats:
    """Return the mean reward of each user under a LinUCB of their own.

    That is one class of mean 0 and covariance I / ridge with noise 1, whose bonus is the width.
    """
    d = x.shape[1]
    own = LatentModels(
        np.ones(1), np.zeros((1, d)), np.ones(1), covariance=np.eye(d)[None] / bandit.ridge, personal=True
    )
    return serve_classes(own, x, bandit.width, queues, effect)
