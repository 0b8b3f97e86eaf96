"""Draws arms with random numbers computed from the log's seed and the decision's id, so that draws can be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.bandits.bandit import add_advice, count_decision
from lcb.bandits.over_classes.mixture import MixtureBandit
from lcb.bandits.traits import DescribedBandit
from lcb.decision import Choices, Decision, rescale, rescale_many
from lcb.errors import InputError
from lcb.models.item_effects import ArmEffects
from lcb.serve.chance import draw_number, draw_numbers
from lcb.serve.decide.rules import Rules
from lcb.serve.errors import Problem
from lcb.serve.event_ids import slot_id
from lcb.serve.events import ChosenArm, RulesBody
from lcb.serve.sparse import FEWEST_ARMS, pack_distribution
from lcb.serve.state.model_version import UnreadableModels
from lcb.serve.state.users import WARMUP, User
from lcb.serve.state.world import World


class Draw(NamedTuple):
    """What a draw for one user needs of the state; it does not change when the state does."""

    bandit: DescribedBandit
    state: Floats
    share: float  # of uniform decisions
    seed: bytes
    effects: ArmEffects | None  # of the arms' items


class CommonDraws:
    """The draws of decisions from the same arms and the same state of the service: those of other users follow fast."""

    def __init__(self, world: World, ids: Sequence[str], n_features: int, rows: Index | None) -> None:
        self.world, self.ids, self.n_features, self.rows = world, ids, n_features, rows
        self._known: dict[tuple[str, int], tuple[Draw, bool]] = {}  # by recommender and model; whether to share states

    def begin(self, user: User, model: int) -> Draw:
        """Do the same as `begin_draw`."""
        found = self._known.get((user.recommender, model))
        if found is None:
            draw = begin_draw(self.world, user, model, self.ids, self.n_features, self.rows)
            if self.world.state.mixture_of(user.recommender) is None:  # the classes of a mixture differ between users
                self._known[user.recommender, model] = draw, draw.state is not user.state
            return draw
        draw, shared = found
        if shared:
            return draw
        assert user.state is not None
        return Draw(draw.bandit, user.state, draw.share, draw.seed, draw.effects)


def begin_draw(
    world: World, user: User, model: int, ids: Sequence[str], n_features: int, rows: Index | None = None
) -> Draw:
    """Return what a draw for a user under a model version needs, among the arms `ids`; `rows` are of the catalogue."""
    try:
        bandit, shared = world.state.bandit(user.recommender, model, n_features)
    except UnreadableModels as error:
        raise Problem(503, str(error), retry_after=60) from None
    if isinstance(bandit, MixtureBandit):
        bandit = world.mixtures.bandit(user, bandit)
    state = user.state if shared is None else world.shared.get(shared, bandit)
    assert state is not None
    share = world.state.recommenders[user.recommender].get_uniform(in_warmup=model == WARMUP)
    uses = world.uses_effects(user.recommender, model)
    return Draw(bandit, state, share, world.state.seed, world.items.of_arms(ids, rows) if uses else None)


def can_draw_together(draw: Draw) -> bool:
    """Whether `draw_together` takes draws of this bandit."""
    return getattr(draw.bandit, "choose_many", None) is not None


def draw_together(
    draw: Draw, states: Sequence[Floats], ids: list[str], context: Floats, decision_ids: Sequence[str]
) -> list[tuple[ChosenArm, tuple[float, ...]]]:
    """Return the arms for many users from the same arms, each as `draw_arms` draws it, without lists.

    The draws differ in their states alone.  With each arm comes the distribution that the answer has; users with the
    same arm and distribution have the same object.
    """
    bandit: Any
    bandit, _, share, seed, effects = draw
    numbers = draw_numbers(seed, decision_ids)
    stacked = np.concatenate(states).reshape(len(states), -1)  # 5 times as fast as np.array
    of_items = () if effects is None else (effects,)
    choices = bandit.choose_many(stacked, context, rescale_many(numbers, share) if share else numbers, *of_items)
    return _record_choices(choices.with_uniform(share, numbers) if share else choices, ids, context, effects)


def _record_choices(
    choices: Choices, ids: list[str], context: Floats, effects: ArmEffects | None
) -> list[tuple[ChosenArm, tuple[float, ...]]]:
    """Do the same as `ChosenArm.from_decision` for many decisions; `effects` are those that they were made with."""
    arms, distributions = choices.arms, choices.distributions
    n_arms, places, rows = distributions.shape[1], arms.tolist(), np.arange(len(arms))
    whole, size = distributions.tobytes(), 8 * n_arms
    beside: list[tuple[float | None, float | None]] = [(None, None)] * len(places)
    if effects is not None and choices.means is not None:
        beside = list(zip(effects.effect[arms].tolist(), choices.means[rows, arms].tolist(), strict=True))
    propensities = distributions[rows, arms].tolist()
    known: dict[tuple[int, bytes, float | None], tuple[ChosenArm, tuple[float, ...]]] = {}
    found = []
    for i, arm in enumerate(places):
        packed = b"" if propensities[i] == 1 else whole[size * i : size * (i + 1)]
        key = arm, packed, beside[i][1]
        one = known.get(key)
        if one is None:
            distribution = distributions[i].tolist() if packed else [0.0] * arm + [1.0] + [0.0] * (n_arms - 1 - arm)
            stored = (
                (None, None)
                if not packed
                else (packed, None)
                if n_arms < FEWEST_ARMS
                else pack_distribution(distributions[i])
            )
            chosen = ChosenArm(
                arm, ids[arm], propensities[i], context[arm].tobytes(), stored[0], False, None, *beside[i], stored[1]
            )
            one = known[key] = chosen, tuple(distribution)
        found.append(one)
    return found


def draw_arms(draw: Draw, ids: list[str], context: Floats, decision_id: str, k: int | None) -> list[ChosenArm]:
    """Return the arms for a user, one per slot, without changing any state; `k` is None if no list was asked for."""
    _check_k(k, len(ids))
    try:
        if k is None:
            number = draw_number(draw.seed, decision_id)
            one = choose_arm(draw.bandit, draw.state, context, draw.share, number, draw.effects)
            return [ChosenArm.from_decision(one, ids[one.arm])]
        return _draw_list(draw, ids, context, decision_id, k)
    except InputError as error:
        raise Problem(422, str(error), field="arms") from None


def choose_arm(
    bandit: DescribedBandit,
    state: Floats,
    context: Floats,
    share: float,
    number: float,
    effects: ArmEffects | None = None,
) -> Decision:
    """Choose with the bandit, or uniformly with probability `share`; the propensities are those of the mixture.

    `number` is uniform in [0, 1) and decides both.
    """
    if not share:
        return _choose(bandit, state, context, number, effects)
    own = _choose(bandit, state, context, rescale(number, share), effects)
    mixed = own.with_uniform(share, context, number)
    traits = bandit.traits
    if number < share or traits.needs_propensity_of_chosen or traits.needs_propensity_of_every_arm:
        return add_advice(bandit, mixed, context)
    return mixed


def _choose(
    bandit: DescribedBandit, state: Floats, context: Floats, number: float, effects: ArmEffects | None
) -> Decision:
    rng: Any = OneNumber(number)
    if effects is None:
        return bandit.choose(state, context, rng)
    return bandit.choose(state, context, rng, effects)  # type: ignore[call-arg]


def draw_under_rules(
    draw: Draw, ids: list[str], context: Floats, decision_id: str, rules: Rules
) -> tuple[list[ChosenArm], RulesBody]:
    """Do the same as `draw_arms` among the arms that the rules leave; the list may be shorter than asked for."""
    _check_k(rules.k, len(ids))
    state, left, taken = draw.state, rules.left, Counter[str]()
    arms, offers = [], []
    try:
        for i in range(rules.k or 1):
            if not len(left):
                break
            name = decision_id if rules.k is None else slot_id(decision_id, i)
            one, arm = _draw_slot(draw, state, ids, context, left, name)
            state = count_decision(draw.bandit, state, one)
            arms.append(arm)
            offers.append(left)
            left = rules.narrow(left, taken, arm.arm)
    except InputError as error:
        raise Problem(422, str(error), field="arms") from None
    return arms, rules.record(offers)


def _check_k(k: int | None, n_arms: int) -> None:
    if k is not None and k > n_arms:
        raise Problem(422, f"k is {k}, but there are {n_arms} arms; send k of at most {n_arms}", field="k")


def _draw_list(draw: Draw, ids: list[str], context: Floats, decision_id: str, k: int) -> list[ChosenArm]:
    """Draw slot after slot from the remaining arms; a propensity is conditional on the slots above."""
    state, left = draw.state, np.arange(len(ids))
    arms = []
    for i in range(k):
        one, arm = _draw_slot(draw, state, ids, context, left, slot_id(decision_id, i))
        state = count_decision(draw.bandit, state, one)
        arms.append(arm)
        left = np.delete(left, one.arm)
    return arms


def _draw_slot(
    draw: Draw, state: Floats, ids: list[str], context: Floats, left: NDArray[np.intp], name: str
) -> tuple[Decision, ChosenArm]:
    """Draw one of the arms `left`; return the decision among these, and its record among all arms."""
    bandit, _, share, seed, effects = draw
    of_left = None if effects is None else effects.take(left)
    one = choose_arm(bandit, state, context[left], share, draw_number(seed, name), of_left)
    arm = ChosenArm.from_decision(one, ids[left[one.arm]])
    if one.distribution is not None and arm.distribution is not None:
        whole = np.zeros(len(ids))
        whole[left] = one.distribution
        arm.distribution, arm.rest = pack_distribution(whole)
    arm.arm = int(left[one.arm])
    return one, arm


def record_callers_arm(draw: Draw, ids: list[str], context: Floats, id: str, propensity: float) -> ChosenArm:
    """Return the record of an arm that the caller chose, with the advice of our bandit's experts on it."""
    arm = ids.index(id)
    decision = add_advice(draw.bandit, Decision(arm, propensity, context[arm]), context)
    if draw.effects is not None:
        own = _choose(draw.bandit, draw.state, context, 0.0, draw.effects)
        assert own.means is not None
        decision = decision.with_effects(draw.effects.effect, own.means)
    return ChosenArm.from_decision(decision, id)


class OneNumber:
    """The random generator of one decision: `random` returns the number it was given."""

    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number
