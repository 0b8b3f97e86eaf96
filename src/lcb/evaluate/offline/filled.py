"""The filled queue: a queue whose labels have run out gives rewards drawn from the user's own rates.

With few labels the queue method withholds the arms that a recommender would choose, until every recommender has taken
the same labels and all are equal.  Here every arm is offered at every step.  A user's labels of an arm come first, each
once and in random order, as in the queue method; further rewards are drawn from the user's rate of this arm, and the
rates are drawn from their posterior given all labels of the user (`lcb.evaluate.user_rates`).  The model behind them is
fitted on other test users, never on training users: an algorithm is not judged by the model it learned.

Labels of more than two values are rescaled to [0, 1] for the model, and count as as many clicks as give the variance
of their means; a drawn reward is the user's drawn mean plus the residual of another label of the same arm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.evaluate.offline.labels import QueueLabels
from lcb.evaluate.offline.queue import Queue
from lcb.evaluate.user_rates import DrawnRates, draw_rates, find_residuals
from lcb.recommenders.recommender import Recommender

_FILLING = 0xF1  # part of the seed, so that drawn rates share no random numbers with anything else
_REWARDS = 0xF2


@dataclass(frozen=True, eq=False)
class Filling:
    """How each of `users` answers an arm that has no label left."""

    users: Index = field(repr=False)  # (U,)
    drawn: DrawnRates  # rates (U, A), on the scale [0, 1]
    residuals: list[Floats] | None = field(default=None, repr=False)  # by arm; None if labels have two values
    seed: int = 0

    def draw(self, labels: QueueLabels, place: int, n_steps: int) -> Floats:
        """Return `n_steps` rewards of every arm, (A, n_steps), of the user at this place of `users`."""
        rng = np.random.default_rng((self.seed, _REWARDS, int(self.users[place])))
        rate = self.drawn.rate[place][:, None]
        low, high = labels.reward_range
        if self.residuals is None:
            return np.where(rng.random((len(rate), n_steps)) < rate, high, low)
        noise = np.array([rng.choice(pool, n_steps) for pool in self.residuals])
        return low + (high - low) * np.clip(rate + noise, 0, 1)


def prepare_filling(labels: QueueLabels, users: Index, n_steps: int, seed: int) -> Filling:
    """Draw the rates of these users, each from their own labels and a model of the others."""
    rng = np.random.default_rng((seed, _FILLING))
    count, total = labels.count[users].astype(np.float64), labels.total[users]
    if (count >= n_steps).all():  # no queue can run out
        return Filling(users, DrawnRates(np.zeros(count.shape), 0, np.inf), seed=seed)
    if labels.levels is not None:
        return Filling(users, draw_rates(total, count - total, rng), seed=seed)
    low, high = labels.reward_range
    share = (total - low * count) / (high - low)  # of the range, summed over labels
    user, arm, label = labels.take_values(users)
    residuals, weight = find_residuals(user, arm, (label - low) / (high - low), count, share)
    return Filling(users, draw_rates(weight * share, weight * (count - share), rng), residuals, seed)


@dataclass(frozen=True, eq=False)
class FilledRewards:
    """The rewards of a recommender, (users, n_steps), and which of them were drawn because no label was left."""

    rewards: Floats = field(repr=False)
    is_drawn: NDArray[np.bool_] = field(repr=False)


def evaluate_filled(
    recommender: Recommender,
    labels: QueueLabels,
    filling: Filling,
    x: Floats,
    n_steps: int,
    *,
    rng: np.random.Generator,
) -> FilledRewards:
    """Serve the users of `filling` in turn; arms have features x (A, d)."""
    rewards = np.empty((len(filling.users), n_steps))
    is_drawn = np.zeros(rewards.shape, bool)
    for i, user in enumerate(filling.users.tolist()):
        queue, drawn = Queue(labels, user, n_steps, filling.seed), filling.draw(labels, i, n_steps)
        for t in range(n_steps):
            decision = recommender.choose(user, x, rng)
            arm = decision.arm
            if queue.left[arm]:
                rewards[i, t] = queue.take(arm)
            else:
                rewards[i, t], is_drawn[i, t] = drawn[arm, queue.n_taken[arm]], True
                queue.n_taken[arm] += 1
            recommender.update(user, decision, rewards[i, t])
    return FilledRewards(rewards, is_drawn)
