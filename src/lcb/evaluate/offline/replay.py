"""Rejection replay (Li, Chu, Langford & Wang 2011, arXiv:1003.5956): live on a log, event by event.

A recommender takes an arm for a user; the user's events are gone through in order until one shows that arm, which
gives the reward; events that show another arm are thrown away.  The arms on offer are the same at every event, so the
decision may stand while events are thrown away: the arm taken has the recommender's own distribution also where it
draws its arms at random, whatever the propensities of the log.  A user ends with the last event.

It assumes that, given the user, which arm was shown does not depend on the reward.
"""

from __future__ import annotations

import numpy as np

from lcb.arrays import Floats, Index
from lcb.evaluate.offline.logged_events import LoggedEvents
from lcb.progress import Progress, silent
from lcb.recommenders.recommender import Recommender


def evaluate_replay(
    recommender: Recommender,
    logged: LoggedEvents,
    users: Index,
    x: Floats,
    n_steps: int,
    *,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Floats:
    """The rewards (users, n_steps) of the events that matched; nan where a user's events ended before."""
    rewards = np.full((len(users), n_steps), np.nan)
    starts = np.searchsorted(logged.user, np.stack([users, users + 1]))
    for i, (user, begin, end) in enumerate(zip(users.tolist(), *starts.tolist(), strict=True)):
        if i % 64 == 0:
            progress("test users", i, len(users))
        events = iter(range(begin, end))
        for t in range(n_steps):
            decision = recommender.choose(user, x, rng)
            match = next((e for e in events if logged.arm[e] == decision.arm), None)
            if match is None:
                break
            rewards[i, t] = logged.reward[match]
            recommender.update(user, decision, rewards[i, t])
    progress("test users", len(users), len(users))
    return rewards
