"""What happened to one user, step by step, read off the log: offered, chosen, rewarded, believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lcb.bandits.traits import keeps_posterior
from lcb.events import Floats
from lcb.serve import events
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.state.world import World
from lcb.storage.store.base import Row


@dataclass(slots=True)
class Step:
    """One slot of one decision; `reward` and `posterior` (after it) are None until the reward has come."""

    decision_id: str
    reward_id: str
    seq: int
    at: float
    body: events.DecisionBody
    taken: events.ChosenArm
    reward: float | None = None
    posterior: Floats | None = None


def story(world: World, rows: Sequence[Row]) -> list[Step]:
    """The steps of a user from all of their events."""
    steps: dict[str, Step] = {}
    user = None
    for i, row in enumerate(rows):
        body = events.decode(row.kind, row.body)
        if user is None:
            user = world.fold.start(body.recommender, row.model or 0, row.seq)
        if row.kind == "decision":
            world.fold.step(user, row, body, 0.0)
            for id, one in body.slots(row.id).items():
                steps[id] = Step(row.id, id, row.seq, body.at, body, one)
            continue
        if body.before is None:
            world.fold.step(user, row, body, body.reward)
        else:
            user = world.fold.fold(rows[: i + 1])
            assert user is not None
        step = steps[slot_of_reward(row.id)]
        step.reward = body.reward
        bandit, _ = world.state.bandit(user.recommender, user.model)
        if user.state is not None and keeps_posterior(bandit):
            step.posterior = bandit.weights(user.state)
    return list(steps.values())
