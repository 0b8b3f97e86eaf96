"""Rejection replay (Li, Chu, Langford & Wang 2011, arXiv:1003.5956): runs a recommender on the events of a log.

The recommender chooses an arm for a user; the next event of that user that shows this arm gives the reward, and events
before it are skipped.  A user ends with the last event.  All events offer the same arms, so the decision is kept while
events are skipped, and the arms that count are distributed as the recommender draws them, whatever the log's
propensities.  This assumes that, given the user, the arm shown does not depend on the reward.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats, Index
from lcb.evaluate.offline.logged_events import LoggedEvents
from lcb.evaluate.offline.support import Support, find_missing
from lcb.progress import Progress, silent
from lcb.recommenders.recommender import Recommender


@dataclass(frozen=True, eq=False)
class Replayed:
    """The rewards of the matching events, (users, n_steps), nan after a user's last event; and the log's support."""

    rewards: Floats = field(repr=False)
    support: Support


def evaluate_replay(
    recommender: Recommender,
    logged: LoggedEvents,
    users: Index,
    x: Floats,
    n_steps: int,
    *,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Replayed:
    """Run the recommender on the events of these users, for at most `n_steps` matching events of each.

    What is missing of the support is the recommender's probability of arms that no event of these users shows.
    """
    shown = np.bincount(logged.of_users(users).arm, minlength=len(x)).astype(np.float64)
    missing, n_decisions = 0.0, 0
    rewards = np.full((len(users), n_steps), np.nan)
    starts = np.searchsorted(logged.user, np.stack([users, users + 1]))
    for i, (user, begin, end) in enumerate(zip(users.tolist(), *starts.tolist(), strict=True)):
        if i % 64 == 0:
            progress("test users", i, len(users))
        events = iter(range(begin, end))
        for t in range(n_steps):
            decision = recommender.choose(user, x, rng)
            p = decision.distribution
            missing += float(shown[decision.arm] == 0 if p is None else find_missing(p, shown))
            n_decisions += 1
            match = next((e for e in events if logged.arm[e] == decision.arm), None)
            if match is None:
                break
            rewards[i, t] = logged.reward[match]
            recommender.update(user, decision, rewards[i, t])
    progress("test users", len(users), len(users))
    n_matching = int(np.isfinite(rewards).sum())
    unanswered = 1 - n_matching / max(rewards.size, 1)
    support = Support(n_matching, missing / max(n_decisions, 1), None, None, float(n_matching), unanswered)
    return Replayed(rewards, support)
