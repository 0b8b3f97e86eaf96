"""Start-up: loads the log, refuses settings that contradict it, and appends what the settings add."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lcb.errors import InputError, StoreError, StoreUnavailable
from lcb.features import FeatureMap, fit_features
from lcb.learners.mixture.served import ServedMixture
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import NEW_RANGE, READER, Settings
from lcb.serve.event_ids import event_id
from lcb.serve.log.check_whole import check_whole
from lcb.serve.read_event import read_event, reading_within
from lcb.serve.state.mixtures import read_settings
from lcb.serve.state.packed_mixture import pack_mixture
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.users import WARMUP, UserGone
from lcb.serve.state.world import World
from lcb.storage.models.folder import load_feature_map, load_models, pack_models
from lcb.storage.store.base import NewRow, Store

_PLAIN = re.compile(r"x\d+")  # a default feature name, which says only the position


class FirstItems(NamedTuple):
    """Items for an empty catalogue, as a JSON body of PUT /v1/items; error messages call them `name`.

    A new log gets `categories` if its settings have neither models nor categories.
    """

    name: str
    body: bytes
    categories: tuple[str, ...] | None = None


def read_first_items(path: str) -> FirstItems:
    try:
        return FirstItems(path, Path(path).read_bytes())
    except OSError as error:
        words = f"items {path}: the file could not be read ({error.strerror})"
        raise InputError(f"{words}; give a JSON file like a body of PUT /v1/items") from None


def keep_recommenders(settings: Settings, store: Store) -> Settings:
    """Return the settings with the recommenders of the log, if it has any."""
    rows = [row for row in store.events_of_service() if row.kind == "recommender"]
    kept: dict[str, RecommenderSpec] = {}
    for row in rows:
        with reading_within(row):
            spec = RecommenderSpec.from_json(read_event(row).spec)
        kept[spec.name] = spec
    own = tuple(one for one in kept.values() if one.name != READER)
    return replace(settings, recommenders=own) if own else settings


def prepare_log(
    settings: Settings,
    store: Store,
    world: World,
    now: Callable[[], float],
    seed: Callable[[], bytes],
    items: FirstItems | None = None,
) -> None:
    """Load the log and append what the settings add: the first event, new recommenders, new models."""
    if world.seq == 0:
        check_whole(store)
        _load(store, world)
    state = world.state
    models = None if settings.models is None else load_models(settings.models)
    feature_map = None if settings.models is None else load_feature_map(settings.models)
    categories = settings.categories
    if categories is None and models is None and state.settings is None and items is not None:
        categories = items.categories
    if feature_map is None and categories is not None:
        feature_map = fit_features("one-hot", categories, [])
    body: Any
    new: list[NewRow] = []
    reward_range = NEW_RANGE if state.settings is None else state.settings.reward_range
    reward_range = settings.choose_range(reward_range and (reward_range[0], reward_range[1]))
    if state.settings is None:
        encoded = None if feature_map is None else msgspec.json.encode(feature_map.to_json())
        features = None if models is None or feature_map is not None else list(models.features)
        body = events.ServiceBody(
            now(),
            seed(),
            settings.rewards,
            reward_range,
            encoded,
            features,
            has_key_events=True,
            counts_users=True,
            exact=True,
        )
        new.append(_build_row("service", "service", body))
    else:
        _check_same(settings, reward_range, state, feature_map, models)
    specs = [spec.complete(state.recommenders.get(spec.name)) for spec in settings.all_recommenders]
    for spec in specs:
        known = state.recommenders.get(spec.name)
        if known is None:
            body = events.RecommenderBody(now(), replace(spec, teach=spec.teach or "auto").to_json())
            new.append(_build_row(event_id("recommender", spec.name), "recommender", body))
        elif known != spec:
            raise InputError(
                f"recommender {spec.name} is {known.to_json().decode()} in this log, but the settings say "
                f"{spec.to_json().decode()}; give the new one another name"
            )
    if models is not None:
        manifest, tensors = pack_models(models, feature_map)
        if not any(version.body.tensors == tensors for version in state.versions.values()):
            n, n_users = max(state.versions, default=0) + 1, int(models.provenance.get("n_users", 0))
            body = events.ModelBody(now(), n, manifest, tensors, True, f"from {settings.models}", n_users, None, None)
            new.append(_build_row(event_id("model", n), "model", body))
        new += _start_mixtures(settings, world, models, now())
    if models is not None:
        _check_usable(reward_range, specs, models, str(settings.models))
    elif state.active != WARMUP:
        _check_usable(reward_range, specs, state.versions[state.active].models(), f"version {state.active} of this log")
    if new:
        appended = store.append(new, world.seq)
        for row in appended.rows:
            world.apply(row)
        if appended.refused:  # another replica started at the same time
            prepare_log(settings, store, world, now, seed, items)


def _load(store: Store, world: World) -> None:
    """Load the log; refuse one with an event that does not fit those before it."""
    head = store.head()
    try:
        world.load()
    except (StoreError, MemoryError):
        raise
    except Exception as error:  # whatever a changed event raises is told in one sentence
        if isinstance(error, UserGone) and any(row.kind == "erase" for row in store.events(head)):
            raise StoreUnavailable(f"a user of {store.url} was erased while the log was read; start again") from None
        which = f"event {world.seq + 1}" if world.seq else "an event"
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise StoreError(
            f"{which} of {store.url} cannot be applied ({why}): it is not what was written; "
            f"run lcb log verify {store.url}, and restore the log from a backup"
        ) from error


def _start_mixtures(settings: Settings, world: World, models: LatentModels, at: float) -> list[NewRow]:
    """Let new mixtures go on from the classes of `models`; a mixture of the log goes on from its own users.

    A mixture beside recommenders that use these classes starts from nothing if they are of another learner.
    """
    if models.sums is None and any(spec.over_classes for spec in settings.all_recommenders):
        return []
    rows, names = [], []
    for spec in settings.all_recommenders:
        spec = spec.complete(world.state.recommenders.get(spec.name))
        if not spec.traits.seats_users or spec.settings in names or spec.name in world.state.recommenders:
            continue
        names.append(spec.settings)
        try:
            mixture = ServedMixture.from_models(models, read_settings(spec), at)
        except InputError as error:
            raise InputError(f"recommender {spec.name} cannot use the models of {settings.models}: {error}") from None
        body = events.MixtureBody(at, spec.name, 0, pack_mixture(mixture), f"from {settings.models}")
        rows.append(_build_row(event_id("mixture", spec.name), "mixture", body))
    return rows


def _build_row(id: str, kind: str, body: Any) -> NewRow:
    return NewRow(id, kind, None, None, events.encode(body))


def _check_same(
    settings: Settings,
    reward_range: tuple[float, float] | None,
    state: ServiceState,
    feature_map: FeatureMap | None,
    models: LatentModels | None,
) -> None:
    """Refuse settings that contradict the log, where the reward rule, reward range and features never change."""
    log = state.settings
    assert log is not None
    for name, kept, wanted in (
        ("rewards", log.rewards, settings.rewards),
        ("reward_range", log.reward_range and tuple(log.reward_range), reward_range),
    ):
        if kept != wanted:
            raise InputError(f"{name} is {kept} in this log, but {wanted} in the settings; keep it, or use a new store")
    if feature_map is not None and state.feature_map is not None:
        if feature_map.to_json() != state.feature_map.to_json():
            known = state.feature_map
            raise InputError(
                f"categories {_join_names(feature_map.categories)} ({feature_map.spec}), but this log has "
                f"{_join_names(known.categories)} ({known.spec}); give those in that order, or learn models from the "
                "table of the log (lcb log export STORE events.parquet)"
            )
    elif settings.categories is not None and state.feature_map is None:
        size = "no" if state.n_features is None else f"{state.n_features}"
        raise InputError(
            f"categories {_join_names(settings.categories)}, but this log began without categories and has {size} "
            "features; leave them out, or use a new store"
        )
    kept_names, named = tuple(log.features or ()), () if models is None else models.features
    if kept_names and named and kept_names != named and not all(map(_PLAIN.fullmatch, named)):
        raise InputError(
            f"models of the features {_join_names(named)}, but this log has {_join_names(kept_names)}; learn them "
            "from the table of the log (lcb log export STORE events.parquet), which has its features in their order"
        )
    if models is not None and state.n_features not in (None, models.n_features):
        raise InputError(
            f"models of {models.n_features} features, but this log has {state.n_features}; learn them from this log"
        )


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _check_usable(
    reward_range: tuple[float, float] | None, specs: list[RecommenderSpec], models: LatentModels, source: str
) -> None:
    """Refuse a recommender that cannot use these models."""
    for spec in specs:
        if spec.over_classes and models.item_effects is not None and not spec.item_effects:
            raise InputError(
                f"recommender {spec.name} uses no item effects, but the classes of {source} were learned beside some; "
                "learn them with --no-item-effects, or use learned-classes with item_effects in a new store"
            )
        if spec.over_classes:
            try:
                spec.make(models, models.n_features, reward_range)
            except InputError as error:
                raise InputError(f"recommender {spec.name} cannot use the models of {source}: {error}") from None
