"""What the log says of the service itself: recommenders, catalogue, model versions, and the bandits these make."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.bandits.traits import DescribedBandit
from lcb.errors import ModelError, StoreError
from lcb.features import FeatureMap
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.model_version import Damaged, Version
from lcb.serve.state.users import WARMUP


def policy_name(spec: RecommenderSpec, model: int) -> str:
    """Return the bandit that decides for users of these models: LinUCB until there are classes.

    >>> policy_name(RecommenderSpec("lcb", "thompson"), 0), policy_name(RecommenderSpec("lcb", "thompson"), 2)
    ('linucb', 'thompson')
    """
    return "linucb" if spec.over_classes and model == WARMUP else spec.bandit


class Standing:
    """The part of the world that is nobody's in particular."""

    def __init__(self) -> None:
        self.service: events.ServiceBody | None = None
        self.feature_map: FeatureMap | None = None
        self.recommenders: dict[str, RecommenderSpec] = {}
        self.catalogue = Catalogue()
        self.versions: dict[int, Version] = {}
        self.activations = [WARMUP]  # versions in the order they were put to use
        self.n_features: int | None = None
        self._bandits: dict[tuple[str, int], tuple[DescribedBandit, str | None]] = {}

    def apply_service(self, kind: str, seq: int, body: Any) -> None:
        if kind == "service":
            self.service = body
            if body.feature_map is not None:
                self.feature_map = FeatureMap.from_json(msgspec.json.decode(body.feature_map))
                self.n_features = self.feature_map.n_features
            elif body.features is not None:
                self.n_features = len(body.features)
        elif kind == "recommender":
            spec = RecommenderSpec.from_json(body.spec)
            self.recommenders[spec.name] = spec
        elif kind == "items":
            self.catalogue.apply(body)
            self.n_features = self.n_features or self.catalogue.n_features
        elif kind == "model":
            version = Version(body, seq)
            self.versions[body.version] = version
            if version.readable:
                self.n_features = self.n_features or version.models().n_features
                version.check_size(self.n_features)
            version.reason = body.reason
            if body.active:
                self._put_to_use(body.version)
        elif kind == "activate":
            self._put_to_use(body.version)
            if body.version in self.versions:
                self.versions[body.version].reason = f"activated by hand: {body.reason}"
        else:
            raise StoreError(f"an event of kind {kind!r}; install the lcb that wrote this log")

    def _put_to_use(self, version: int) -> None:
        self.activations.append(version)
        if version in self.versions:
            self.versions[version].served = True

    def bandit(self, recommender: str, model: int, n_features: int | None = None) -> tuple[DescribedBandit, str | None]:
        """The bandit that decides for such users, and the name of its state if they share it.

        `n_features` is of the very first decision, when the log does not say yet.
        """
        found = self._bandits.get((recommender, model))
        if found is None:
            size = self.n_features or n_features
            assert size is not None
            found = self._made(self.recommenders[recommender], model, size)
            if self.n_features is not None:
                self._bandits[recommender, model] = found
        return found

    def _made(self, spec: RecommenderSpec, model: int, n_features: int) -> tuple[DescribedBandit, str | None]:
        reward_range = self.service.reward_range if self.service else None
        if not spec.over_classes:
            return spec.make(None, n_features, reward_range), spec.name if spec.scope == "everyone" else None
        if model == WARMUP:
            return spec.make_warmup(n_features), f"{spec.name}/warmup"
        try:
            return spec.make(self.versions[model].models(), n_features, reward_range), None
        except ModelError as error:
            raise Damaged(f"{error}; activate another version, and restore this one from a backup") from None

    def model_for_newcomers(self, recommender: str) -> int:
        return self.active if self.recommenders[recommender].over_classes else WARMUP

    @property
    def active(self) -> int:
        """The version newcomers get: what was put to use last, of those that can be read."""
        last = self.activations[-1]
        if last == WARMUP or self.versions[last].readable:
            return last
        return next(one for one in reversed(self.activations) if one == WARMUP or self.versions[one].readable)
