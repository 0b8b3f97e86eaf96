"""What the settings say of a log that it does not have yet, written into it; what contradicts it, refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lcb.errors import InputError
from lcb.features import FeatureMap, fit_features
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.event_ids import model_id, recommender_id
from lcb.serve.state.users import WARMUP
from lcb.serve.state.world import World
from lcb.storage.models.folder import load_feature_map, load_models, pack_models
from lcb.storage.store.base import NewRow, Store

_PLAIN = re.compile(r"x\d+")  # a feature that has no name but its place


class FirstItems(NamedTuple):
    """Items that fill an empty catalogue: a name for messages and a JSON body of PUT /v1/items.

    `categories` are those of a new log that has neither models nor categories in its settings.
    """

    name: str
    body: bytes
    categories: tuple[str, ...] | None = None


def read_first_items(path: str) -> FirstItems:
    """Read the items of the setting `items` from a file."""
    try:
        return FirstItems(path, Path(path).read_bytes())
    except OSError as error:
        raise InputError(
            f"items {path}: the file could not be read ({error.strerror}); give a JSON file as PUT /v1/items takes it"
        ) from None


def prepare(
    settings: Settings, store: Store, world: World, now: Callable[[], float], new_id: Callable[[], str],
    seed: Callable[[], bytes], items: FirstItems | None = None,
) -> None:  # fmt: skip
    """Load the log, and write into it what the settings say that it does not have yet."""
    if world.seq == 0:
        world.load()
    models = None if settings.models is None else load_models(settings.models)
    feature_map = None if settings.models is None else load_feature_map(settings.models)
    categories = settings.categories
    if categories is None and models is None and world.state.settings is None and items is not None:
        categories = items.categories
    if feature_map is None and categories is not None:
        feature_map = fit_features("one-hot", categories, [])
    rows: list[tuple[str, str, Any]] = []
    if world.state.settings is None:
        kept_map = None if feature_map is None else msgspec.json.encode(feature_map.to_json())
        features = None if models is None or feature_map is not None else list(models.features)
        body = events.ServiceBody(now(), seed(), settings.rewards, settings.range, kept_map, features)
        rows.append(("service", "service", body))
    else:
        _check_same(settings, world, feature_map, models)
    for one in settings.all_recommenders:
        known = world.state.recommenders.get(one.name)
        if known is None:
            rows.append((recommender_id(one.name), "recommender", events.RecommenderBody(now(), one.to_json())))
        elif known != one:
            raise InputError(
                f"recommender {one.name} is {_words(known)} in this log, the settings say {_words(one)}; "
                "give the new one another name"
            )
    if models is not None:
        manifest, tensors = pack_models(models, feature_map)
        if not any(version.body.tensors == tensors for version in world.state.versions.values()):
            n, n_users = max(world.state.versions, default=0) + 1, int(models.provenance.get("n_users", 0))
            given = events.ModelBody(now(), n, manifest, tensors, True, f"from {settings.models}", n_users, None, None)
            rows.append((model_id(n), "model", given))
    _check_usable(settings, models if models is not None else _served(world), models is not None)
    if rows:
        new = [NewRow(id, kind, None, None, events.encode(body)) for id, kind, body in rows]
        appended = store.append(new, world.seq)
        for row in appended.rows:
            world.apply(row)
        if appended.refused:  # another replica came up at the same time
            prepare(settings, store, world, now, new_id, seed, items)


def _check_same(settings: Settings, world: World, feature_map: FeatureMap | None, models: LatentModels | None) -> None:
    """What a log is about does not change under it."""
    service = world.state.settings
    assert service is not None
    for name, kept, wanted in (
        ("rewards", service.rewards, settings.rewards),
        ("reward_range", service.reward_range and tuple(service.reward_range), settings.range),
    ):
        if kept != wanted:
            raise InputError(
                f"{name} is {kept} in this log, the settings say {wanted}; keep it, or start another store"
            )
    if feature_map is not None and world.state.feature_map is not None:
        if feature_map.to_json() != world.state.feature_map.to_json():
            known = world.state.feature_map
            raise InputError(
                f"categories {_some(feature_map.categories)} ({feature_map.spec}), but this log has "
                f"{_some(known.categories)} ({known.spec}); give those in that order, or learn models from the "
                "table of the log (lcb log export STORE events.parquet)"
            )
    elif settings.categories is not None and world.state.feature_map is None:
        size = "no" if world.state.n_features is None else f"{world.state.n_features}"
        raise InputError(
            f"--categories {_some(settings.categories)} for a log that began without categories and has {size} "
            "features; leave them out, or take another store"
        )
    kept_names, named = tuple(service.features or ()), () if models is None else models.features
    if kept_names and named and kept_names != named and not all(map(_PLAIN.fullmatch, named)):
        raise InputError(
            f"models of the features {_some(named)} for a log of {_some(kept_names)}; learn them from the table of the "
            "log (lcb log export STORE events.parquet), which has its features in their order"
        )
    if models is not None and world.state.n_features not in (None, models.n_features):
        raise InputError(
            f"models of {models.n_features} features for a log of {world.state.n_features}; learn them from this log"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _served(world: World) -> LatentModels | None:
    return None if world.state.active == WARMUP else world.state.versions[world.state.active].models()


def _check_usable(settings: Settings, models: LatentModels | None, given: bool) -> None:
    """Refuse a recommender that could not serve a single newcomer."""
    if models is None:
        return
    for one in settings.all_recommenders:
        if one.over_classes:
            try:
                one.make(models, models.n_features, settings.range)
            except InputError as error:
                of = settings.models if given else "the version of this log that is served"
                raise InputError(f"recommender {one.name} cannot use the models of {of}: {error}") from None


def _words(spec: RecommenderSpec) -> str:
    return spec.to_json().decode()
