"""The story of one user: every decision with its reward and the class probabilities after it, read from the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lcb.arrays import Floats
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.traits import keeps_posterior
from lcb.serve import events
from lcb.serve.audit.recompute import rebuild_context
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.state.users import LOST, WARMUP, User
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

SCORED = (LearnedClasses, PersonalClasses, PosteriorMean)  # they take the highest expected reward plus bonus
_SAME = 1e-9  # differences of expected rewards up to this are rounding


@dataclass(slots=True)
class StoryStep:
    """One slot of one decision; `reward` and the `posterior` after it are None until there is a reward."""

    decision_id: str
    reward_id: str
    seq: int
    at: float
    body: events.DecisionBody
    taken: events.ChosenArm
    model: int = WARMUP  # the version that decided
    reason: str | None = None  # "liked" or "informative", of a rule with a bonus
    reward: float | None = None
    posterior: Floats | None = None  # None also if it was of other classes than the user's now


def read_story(world: World, rows: Sequence[Row]) -> list[StoryStep]:
    """Return the steps of a user; `rows` are all events of the user."""
    steps: dict[str, StoryStep] = {}
    found: dict[str, tuple[int, Floats]] = {}  # versions and posteriors
    last = WARMUP
    for row, body, user in world.fold.walk(rows):
        if row.kind == "decision":
            model = last = row.model or WARMUP
            for id, one in body.slots(row.id).items():
                steps[id] = StoryStep(
                    row.id, id, row.seq, body.at, body, one, model, _find_reason(world, user, model, body)
                )
            continue
        step = steps[slot_of_reward(row.id)]
        step.reward = body.reward
        bandit, _ = world.state.bandit(user.recommender, user.model)
        if user.state is not None and keeps_posterior(bandit):
            found[step.reward_id] = user.model, bandit.weights(user.state)
    for id, (model, posterior) in found.items():
        if model == last:
            steps[id].posterior = posterior
    return list(steps.values())


def _find_reason(world: World, user: User, model: int, body: events.DecisionBody) -> str | None:
    """Return why a rule with a bonus took its arm: it was the best on average, or its answer tells most.

    None for other rules, for lists, for an arm taken at random, and where the items of that time are gone.
    """
    bandit, _ = world.state.bandit(user.recommender, model)
    taken = body.taken[0]
    if body.listed or taken.at_random or not isinstance(bandit, SCORED):
        return None
    if user.state is None or user.state is LOST:
        return None
    try:
        _, context = rebuild_context(world, body)
    except (KeyError, ValueError):
        return None
    expected = replace(bandit, bonus=0.0).scores(user.state, context)
    return "liked" if expected[taken.arm] >= expected.max() - _SAME else "informative"
