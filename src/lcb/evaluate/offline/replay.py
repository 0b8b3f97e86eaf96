"""Rejection replay (Li, Chu, Langford & Wang 2011, arXiv:1003.5956): runs a recommender on the events of a log.

The recommender chooses an arm for a user; the next event of that user that shows this arm gives the reward, and events
before it are skipped.  A user ends with the last event.  All events offer the same arms, so the decision is kept while
events are skipped, and the arms that count are distributed as the recommender draws them, whatever the log's
propensities.  This assumes that, given the user, the arm shown does not depend on the reward.
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
    """Return the rewards of the matching events, (users, n_steps); nan after a user's last event."""
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
