"""The story of one user: every decision with its reward and the class probabilities after it, read from the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lcb.arrays import Floats
from lcb.bandits.traits import keeps_posterior
from lcb.serve import events
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.state.world import World
from lcb.storage.store.base import Row


@dataclass(slots=True)
class StoryStep:
    """One slot of one decision; `reward` and the `posterior` after it are None until there is a reward."""

    decision_id: str
    reward_id: str
    seq: int
    at: float
    body: events.DecisionBody
    taken: events.ChosenArm
    reward: float | None = None
    posterior: Floats | None = None


def read_story(world: World, rows: Sequence[Row]) -> list[StoryStep]:
    """Return the steps of a user; `rows` are all events of the user."""
    steps: dict[str, StoryStep] = {}
    for row, body, user in world.fold.walk(rows):
        if row.kind == "decision":
            for id, one in body.slots(row.id).items():
                steps[id] = StoryStep(row.id, id, row.seq, body.at, body, one)
            continue
        step = steps[slot_of_reward(row.id)]
        step.reward = body.reward
        bandit, _ = world.state.bandit(user.recommender, user.model)
        if user.state is not None and keeps_posterior(bandit):
            step.posterior = bandit.weights(user.state)
    return list(steps.values())
