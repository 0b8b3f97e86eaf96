"""Learns classes as `lcb learn` does: kind and number chosen or given, with item effects where items come again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lcb.evaluate.choice.candidates import Classes
from lcb.evaluate.choice.choose import N_STEPS, Choice, choose, draw_able, draw_names, learn_chosen
from lcb.evaluate.choice.serving import can_serve
from lcb.evaluate.offline.history import History
from lcb.event_log import EventLog
from lcb.features import FeatureMap
from lcb.learners import fit
from lcb.learners.effects.learn import (
    LEAST_EFFECT,
    describe_effects,
    learn_with_effects,
    measure_effects,
    start_effects,
)
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import RatedItems, find_items
from lcb.learners.fitting import Place, count_classes
from lcb.learners.likelihood import NOT_TWO_VALUED, check_counted
from lcb.learners.registry import get_learner
from lcb.learners.shared.n_classes import MOST_USERS as COUNTED_USERS
from lcb.learners.shared.users import Users, find_users, map_here
from lcb.models import Fit, LatentModels, Likelihood
from lcb.models.item_effects import SMALL_EFFECTS
from lcb.progress import Progress, silent
from lcb.storage.tables.sample import HashedUsers, UserSample
from lcb.words import format_count

DEFAULT_LEARNER = "em"
_WITH_EFFECTS = ("em", "personal", "mixture")  # learners whose classes are of r - a_i as well
_TOL_WITH_EFFECTS = 2e-5  # gain per user of many users at which em ends: the effects are not known better
_LESS_EFFECTS = "rewards less the effects of items are not of two values"
_FIRST = 20_000  # users with the smallest hashes, of whom those with many rewards are chosen on
_COUNTING = 0xC0  # stream of random numbers
_FEWEST_USERS = 0.5  # a class that expects fewer is left out


@dataclass(frozen=True, eq=False)
class LearningData:
    """What to learn from: statistics made elsewhere, or also a way to read the rows of some users again."""

    name: str  # of the file or folder
    log: EventLog | Users
    read: Callable[..., EventLog] | None = None  # None: there are statistics only
    feature_map: FeatureMap | None = None
    table: Path | None = None  # if the events are rows of a table
    history: History | None = None  # if they are those of an imported log
    sample: UserSample | None = None  # of the users, if not all were asked for
    choice: Choice | None = None  # of the classes, if it was made together with that of the features

    @property
    def n_events(self) -> int:
        """Events that were logged; of choices, and for learned features, `log` has labels, another number."""
        logged = None if self.history is None else self.history.n_logged
        return self.log.n_events if logged is None else logged

    def read_few(self, rng: np.random.Generator, progress: Progress = silent) -> EventLog:
        """Return the users to choose on, with their rows unless counts of clicks are enough."""
        assert self.read is not None
        if isinstance(self.log, EventLog) and self.log.order is None:
            return self.log if can_serve(self.log) else self.read(keep_rows=True, users=draw_names(self.log, rng))
        users = find_users(self.log, map_here)
        some = users.take(np.arange(min(_FIRST, users.n_users)))
        chosen = draw_able(some.stats.count >= N_STEPS)
        few = some.take(chosen).sort_arms()
        if can_serve(few):
            return few
        if not isinstance(self.log, EventLog):
            return self.read(chosen, progress)
        assert self.log.hashes is not None
        own = HashedUsers(self.log.hashes[self.log.order][chosen])
        found = find_users(self.read(keep_rows=True, sample=own, folder=None), map_here)
        return found.take(np.arange(found.n_users))


def learn_classes(
    data: LearningData,
    *,
    seed: int,
    learner: str | None = None,
    n_classes: int | None = None,
    likelihood: Likelihood | None = None,
    item_effects: bool = True,
    on: Place | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Fit:
    """Learn the classes, largest first and without empty ones; the result says why they are as they are.

    Without `learner` and `settings` (those of a learner; threads do not count), kind and number are chosen by serving
    held-out users, if there is more than statistics.  `on` is a cluster to learn on.
    """
    may_have = item_effects and likelihood != "bernoulli" and takes_effects(learner) and data.log.constant is None
    rows = data.history.item_rows() if may_have and data.history is not None else None
    with nullcontext(rows) if rows is None or on is None else on.hold_items(rows, progress) as items:
        return _learn(
            data,
            items,
            seed=seed,
            learner=learner,
            n_classes=n_classes,
            likelihood=likelihood,
            on=on,
            progress=progress,
            **settings,
        )


def _learn(
    data: LearningData,
    items: ItemRows | RatedItems | None,
    *,
    seed: int,
    learner: str | None,
    n_classes: int | None,
    likelihood: Likelihood | None,
    on: Place | None,
    progress: Progress,
    **settings: Any,
) -> Fit:
    """Do the same; `items` are the rewards of items, where effects may be learned."""
    rng = np.random.default_rng(seed)
    why = [data.history.why] if data.history is not None and data.history.why else []
    effects, left_out = None, False
    if items is not None:
        effects = start_effects(items, progress=progress)
        if measure_effects(items, effects) < LEAST_EFFECT:
            why.append(f"items have no effects of their own: they explain under {LEAST_EFFECT:.1%} of rewards")
            items = None
            left_out = True
    run: Callable[[EventLog | Users], Fit]
    if learner is None and settings.keys() <= {"n_threads"} and data.read is not None:
        choice = data.choice if likelihood is None else None
        choice = choice or _choose_classes(data, n_classes, likelihood, rng, progress)
        classes = choice.classes
        if items is not None and isinstance(classes, Classes) and classes.likelihood != "gaussian":
            told = (*choice.why, f"{_LESS_EFFECTS}: learned as Gaussian")
            choice = replace(choice, classes=replace(classes, likelihood="gaussian"), why=told)
        run = partial(learn_chosen, choice=choice, rng=rng, on=on, progress=progress, **settings)
    else:
        learner = learner or DEFAULT_LEARNER
        asked: dict[str, Any] = {
            "rng": rng,
            "learner": learner,
            "likelihood": likelihood,
            "progress": progress,
            **settings,
        }
        if n_classes is None and not get_learner(learner).finds_n_classes:
            count_on = _read_rows_to_count(data, seed, progress)
            n_classes, reasons = _count_classes(data, count_on, items is not None, asked)
            why += reasons
            asked["count_on"] = count_on
        if learner == "em" and items is not None and data.log.n_users > COUNTED_USERS:
            asked.setdefault("tol", _TOL_WITH_EFFECTS)
        run = partial(fit, n_classes=n_classes, on=on, **asked)
    if items is None:
        result = run(data.log)
    else:
        result = learn_with_effects(items, lambda own, _: run(own), effects=effects, n_rounds=1)
        why.append(describe_effects(items, result.models))
        result = replace(result, models=_allow_unlike(result.models, items))
        result = _correct_reason(result, _LESS_EFFECTS)
    if data.read is None:
        result = _correct_reason(result, "statistics do not show whether rewards are clicks")
    if data.sample is not None:
        why.insert(0, f"learned from {data.sample.describe()}")
    models = _drop_empty_classes(result.models, data.log.n_users)
    if models.n_classes < result.models.n_classes:
        n_all = result.models.n_classes
        why.append(f"left out of {format_count(n_all, 'class')}: {n_all - models.n_classes} without users")
    if data.feature_map is not None:
        models = replace(models, features=data.feature_map.names)
    models = models.with_provenance(_describe_origin(models, data, seed))
    if left_out:
        models = models.with_provenance({**models.provenance, SMALL_EFFECTS: LEAST_EFFECT})
    return replace(result, models=models, why=(*why, *result.why))


def _choose_classes(
    data: LearningData,
    n_classes: int | None,
    likelihood: Likelihood | None,
    rng: np.random.Generator,
    progress: Progress,
) -> Choice:
    """Choose kind and number of classes on some users."""
    if likelihood is None:
        check_counted(data.log)
    few = data.read_few(rng, progress)
    n_events = None if data.history is None else data.history.n_events  # None: as many as rewards
    able = None if n_events is None else n_events >= N_STEPS
    return choose(few, n_classes=n_classes, rng=rng, able=able, likelihood=likelihood, progress=progress)


def _read_rows_to_count(data: LearningData, seed: int, progress: Progress) -> EventLog | None:
    """Return the rows of some users, to choose the number of classes on; None where the log itself has what it takes.

    Clicks are counted, and are enough; of other rewards the log has sums, in which noise looks like classes.
    """
    if data.read is None or data.log.two_valued or data.log.constant is not None:
        return None
    if isinstance(data.log, EventLog) and data.log.rows is not None:
        return None
    return data.read_few(np.random.default_rng((seed, _COUNTING)), progress)


def _count_classes(
    data: LearningData, count_on: EventLog | None, has_effects: bool, asked: dict[str, Any]
) -> tuple[int | None, list[str]]:
    """Return the number of classes and why; None if it is found while they are learned."""
    if data.history is None:
        return None, []
    n_classes, why = data.history.count_classes(asked["progress"])
    if n_classes is None and has_effects:  # rewards less effects are no clicks, which would be split
        counted = count_classes(count_on or data.log, **asked)
        asked.update(counted.settings)
        return counted.n_classes, [*why, *(f"counted without effects of items: {one}" for one in counted.why[1:])]
    return n_classes, why


def _allow_unlike(models: LatentModels, items: ItemRows | RatedItems) -> LatentModels:
    """Return the models with effects that a service can offer new items by."""
    assert models.item_effects is not None
    return replace(models, item_effects=models.item_effects.allow_unlike(find_items(items).variance))


def _correct_reason(result: Fit, reason: str) -> Fit:
    """Return the result with another reason for rewards that are modelled as Gaussian."""
    return replace(result, why=tuple(line.replace(NOT_TWO_VALUED, reason) for line in result.why))


def _drop_empty_classes(models: LatentModels, n_users: int) -> LatentModels:
    """Return the classes that expect users, largest first; also the new class of a mixture, which has none yet."""
    expected = models.pi * n_users
    if models.new_class is not None:
        expected[models.new_class] = max(expected[models.new_class], _FEWEST_USERS)
    order = np.argsort(-models.pi, kind="stable")
    return models.take(order[expected[order] >= _FEWEST_USERS])


def _describe_origin(models: LatentModels, data: LearningData, seed: int) -> dict[str, Any]:
    """Return the provenance of the models, with what they were learned from."""
    origin = {**models.provenance, "events": data.name, "seed": seed}
    if data.sample is not None:
        origin |= {"users_kept": data.sample.n_users, "users_in_all": data.sample.n_in_all, "users_drawn_by": "hash"}
    return origin


def takes_effects(learner: str | None) -> bool:
    """Whether classes of this learner are learned beside item effects, where items have them."""
    return (learner or DEFAULT_LEARNER) in _WITH_EFFECTS
