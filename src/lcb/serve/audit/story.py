"""The story of one user: every decision with its reward and the class probabilities after it, read from the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lcb.arrays import Floats, unpack_bools
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.traits import keeps_posterior
from lcb.serve import events
from lcb.serve.audit.checks.decisions import rebuild_context
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.read_event import lighten, read_event
from lcb.serve.state.mixtures import View
from lcb.serve.state.users import LOST, WARMUP, User
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

SCORED = (LearnedClasses, PersonalClasses, PosteriorMean)  # they take the highest expected reward plus bonus
_SAME = 1e-9  # differences of expected rewards up to this are rounding


@dataclass(slots=True)
class StoryStep:
    """One slot of one decision; `reward` and the `posterior` after it are None until there is a reward.

    The body of a large decision has no arms and distributions (`lighten`).
    """

    decision_id: str
    reward_id: str
    seq: int
    at: float
    body: events.DecisionBody
    taken: events.ChosenArm
    model: int = WARMUP  # the version that decided
    reason: str | None = None  # "liked", "popular", "new" or "informative", of a rule with a bonus; "drawn" of others
    parts: tuple[float, float] | None = None  # with item effects: expected reward above others by features, and by item
    left: tuple[int, int] | None = None  # of a decision under rules: arms that were left, arms that the caller excluded
    reward: float | None = None
    posterior: Floats | None = None  # None also if it was of other classes than the user's now


def read_story(world: World, rows: Iterable[Row], views: Mapping[str, View] = MappingProxyType({})) -> list[StoryStep]:
    """Return the steps of a user; `rows` are all events of the user, read one after another.

    `views` are the mixtures of now, by name: the probabilities of their users are of these classes.  Rewards that were
    changed one after another have the probabilities after the last of them: no decision used those in between.
    """
    steps: dict[str, StoryStep] = {}
    found: dict[str, tuple[int, Floats]] = {}  # versions and posteriors
    last = WARMUP
    for row, body, user in world.fold.walk(rows):
        if row.kind == "decision":
            model = last = row.model or WARMUP
            parts = _find_parts(world, user, model, body)
            reason = _find_reason(world, user, model, body) if parts is None else _name_larger(*parts)
            left = [_count_left(body, i) for i in range(len(body.shown))]
            if (light := lighten(row)) is not row:
                body = read_event(light)
            for i, (id, one) in enumerate(body.slots(row.id).items()):
                steps[id] = StoryStep(row.id, id, row.seq, body.at, body, one, model, reason, parts, left[i])
            continue
        if row.kind != "reward":
            continue
        step = steps.get(slot_of_reward(row.id))
        if step is None:  # its decision is archived
            continue
        step.reward = body.reward
        bandit, _ = world.state.bandit(user.recommender, user.model)
        view = views.get(world.state.mixture_of(user.recommender) or "")
        if view is not None and user.state is not None:
            found[step.reward_id] = user.model, view.bandit.weights(user.state)
        elif user.state is not None and keeps_posterior(bandit):
            found[step.reward_id] = user.model, bandit.weights(user.state)
    for id, (model, posterior) in found.items():
        if model == last:
            steps[id].posterior = posterior
    return list(steps.values())


def _count_left(body: events.DecisionBody, slot: int) -> tuple[int, int] | None:
    if body.rules is None:
        return None
    return len(body.on_offer(slot)), int(unpack_bools(body.rules.excluded, body.n_arms).sum())


def _find_reason(world: World, user: User, model: int, body: events.DecisionBody) -> str | None:
    """Return why a rule with a bonus took its arm: it was the best on average, or its answer tells most.

    The arm of another rule with a posterior was drawn from it.  None for rules without one, for lists, for an arm taken
    at random, and where the items of that time are gone.
    """
    bandit, _ = world.state.bandit(user.recommender, model)
    taken = body.taken[0]
    if body.listed or taken.at_random:
        return None
    if not isinstance(bandit, SCORED):
        return "drawn" if keeps_posterior(bandit) else None
    if user.state is None or user.state is LOST:
        return None
    try:
        _, context = rebuild_context(world, body)
    except (KeyError, ValueError):
        return None
    expected = replace(bandit, bonus=0.0).scores(user.state, context)
    return "liked" if expected[taken.arm] >= expected[body.on_offer()].max() - _SAME else "informative"


def _find_parts(world: World, user: User, model: int, body: events.DecisionBody) -> tuple[float, float] | None:
    """Return by how much the arm's expected reward was above that of others: for this user, and for everybody.

    The first compares its features with those of all arms of the decision, the second its item with an item that nobody
    has seen.  None for a decision without item effects, for lists, for an arm that was drawn uniformly or that the
    caller chose, and where the items of that time are gone.
    """
    taken, learned = body.taken[0], world.state.item_effects(model)
    bandit, _ = world.state.bandit(user.recommender, model)
    left = body.on_offer()
    p = taken.full_distribution(body.n_arms)[left]
    unlikely = taken.propensity < 1 / len(left) and taken.propensity <= p.min()  # only the uniform share could draw it
    if taken.effect is None or taken.mean is None or learned is None or user.state is None or unlikely:
        return None
    if body.listed or body.chosen is not None or user.state is LOST or not isinstance(bandit, SCORED):
        return None
    try:
        _, context = rebuild_context(world, body)
    except (KeyError, ValueError):
        return None
    expected = replace(bandit, bonus=0.0).scores(user.state, context)
    return taken.mean - float(expected[left].mean()), taken.effect - learned.prior_mean


def _name_larger(own: float, item: float) -> str:
    """Name the larger part; an arm that is above others by neither was taken because its answer tells most.

    The effect of an item that nobody has answered to is that of a new one, and it is tried for those who come later.
    """
    if abs(item) <= _SAME:
        return "new"
    if max(own, item) <= _SAME:
        return "informative"
    return "liked" if own >= item else "popular"
