"""When model versions are learned (Algorithm 1 in production).

    first     once `n_warmup_users` users have given a reward and there is no version yet
    again     after every `retrain_every` new users
              visitors of the pages count only where they teach
    never     if no recommender uses classes, or, after the first version, if `retrain_every` is none
    not yet   while a canary is open

An operator can start learning at any time (POST /v1/models/retrain).  After a failure the next automatic run waits for
as many new users again.
"""

from __future__ import annotations

from lcb.serve.config.settings import Learning, Settings
from lcb.serve.state.world import World


def next_training_at(world: World, settings: Settings, learning: Learning, not_before: int) -> int | None:
    """Return the number of users at which learning starts automatically, at least `not_before`; None: never.

    Before the first version only users with a reward count, so each user without one raises the number by one.
    """
    if not settings.over_classes:
        return None
    if not world.state.versions:
        return max(world.n_started + learning.n_warmup_users - world.n_rewarded, not_before)
    if learning.retrain_every is None or world.state.canary is not None:
        return None
    return max(world.started_at_training + learning.retrain_every, not_before)


def retry_at(world: World, learning: Learning) -> int:
    """Return the number of users at which learning is tried again after a failure."""
    return world.n_started + (learning.retrain_every or learning.n_warmup_users)
