"""Serves users on their own items with baselines; see `lcb.evaluate.choice.item_queues`."""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.linear.linucb import LinUCB
from lcb.evaluate.choice.item_queues import ItemQueues, serve_classes
from lcb.models import LatentModels
from lcb.models.item_effects import ArmEffects
from lcb.stats import UserStats


def serve_scores(score: Floats, queues: ItemQueues) -> Floats:
    """Return the mean reward of each user who takes the items of the highest scores (I,), whatever the rewards."""
    user = np.repeat(np.arange(queues.n_users), np.diff(queues.begin))
    order = np.lexsort((-score[queues.item], user))
    place = np.arange(len(user)) - queues.begin[user]
    taken = order[place < queues.n_steps]
    return np.bincount(user[taken], queues.reward[taken], queues.n_users) / queues.n_steps


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
