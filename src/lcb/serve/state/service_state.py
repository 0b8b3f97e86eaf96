"""Service-wide state: settings, catalogue, model versions, recommenders and the bandits built from them."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb.bandits.traits import DescribedBandit
from lcb.errors import ModelError, StoreError
from lcb.features import FeatureMap
from lcb.models.item_effects import ItemEffects
from lcb.serve import events
from lcb.serve.base_bodies import CompactBody
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.event_ids import is_visitor
from lcb.serve.state.canary import ENDED, PROMOTED, WITHDRAWN, Canary
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.model_version import UnreadableModels, Version
from lcb.serve.state.users import WARMUP, User


def policy_name(spec: RecommenderSpec, model: int) -> str:
    """Return the name of the bandit for users of a model version; before there are classes it is LinUCB.

    >>> policy_name(RecommenderSpec("lcb", "thompson"), 0), policy_name(RecommenderSpec("lcb", "thompson"), 2)
    ('linucb', 'thompson')
    """
    return "linucb" if spec.over_classes and model == WARMUP else spec.bandit


class ServiceState:
    """The state that is not of one user."""

    def __init__(self) -> None:
        self.settings: events.ServiceBody | None = None  # None: the log is empty
        self.feature_map: FeatureMap | None = None
        self.recommenders: dict[str, RecommenderSpec] = {}
        self.catalogue = Catalogue()
        self.versions: dict[int, Version] = {}
        self.activations = [WARMUP]  # versions in the order they were activated
        self.canaries: list[Canary] = []  # in the order they began
        self.n_features: int | None = None  # None: no event has fixed it yet
        self.compacted: CompactBody | None = None  # the newest compaction, without its state
        self._closed: list[tuple[int, frozenset[str]]] = []  # seqs of `teachers` events, and the closed recommenders
        self._mixtures: dict[str, str | None] = {}  # recommender -> its mixture
        self._bandits: dict[tuple[str, int], tuple[DescribedBandit, str | None]] = {}
        self._with_effects: dict[tuple[str, int], bool] = {}

    def apply(self, kind: str, seq: int, body: Any) -> None:
        """Apply an event that is not of one user."""
        self._with_effects = {}
        if kind == "service":
            self.settings = body
            if body.feature_map is not None:
                self.feature_map = FeatureMap.from_json(msgspec.json.decode(body.feature_map))
                self.n_features = self.feature_map.n_features
            elif body.features is not None:
                self.n_features = len(body.features)
        elif kind == "recommender":
            spec = RecommenderSpec.from_json(body.spec)
            self.recommenders[spec.name] = spec
            self._mixtures = {}
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
                self._end_canary(seq, ENDED)
                self._activate(body.version)
            elif body.canary is not None and version.readable:
                self._end_canary(seq, ENDED)
                self.canaries.append(Canary(body.version, self.active, body.canary, body.canary_users, seq))
        elif kind == "canary":
            if self.canary is not None and self.canary.version == body.version:
                self._end_canary(seq, PROMOTED if body.promoted else WITHDRAWN)
                self.versions[body.version].reason = body.reason
                if body.promoted:
                    self._activate(body.version)
        elif kind == "activate":
            self._end_canary(seq, ENDED)
            self._activate(body.version)
            if body.version in self.versions:
                self.versions[body.version].reason = f"activated by hand: {body.reason}"
        elif kind == "teachers":
            self._closed.append((seq, frozenset(body.closed)))
        elif kind == "compact":
            self.compacted = msgspec.structs.replace(body, world=b"", kept=[])
        elif kind not in ("audit", "refused", "key", "refit", "mixture"):
            raise StoreError(f"unknown event kind {kind!r}; install the version of lcb that wrote this log")

    def _activate(self, version: int) -> None:
        self.activations.append(version)
        if version in self.versions:
            self.versions[version].served = True

    def _end_canary(self, seq: int, outcome: str) -> None:
        if (canary := self.canary) is not None:
            canary.until, canary.outcome = seq, outcome

    @property
    def archived_upto(self) -> int:
        """The last event that a compaction has archived; 0: none."""
        return 0 if self.compacted is None else self.compacted.upto

    @property
    def canary(self) -> Canary | None:
        """The canary that is open."""
        return self.canaries[-1] if self.canaries and self.canaries[-1].until is None else None

    def place_in_canary(self, recommender: str, model: int, seq: int) -> int:
        """Return `Canary.place` of a user whose first decision is `seq`."""
        if not self.recommenders[recommender].over_classes:
            return 0
        return next((place for one in reversed(self.canaries) if (place := one.place(seq, model))), 0)

    @property
    def seed(self) -> bytes:
        """The seed of all draws of this log."""
        assert self.settings is not None
        return self.settings.seed

    @property
    def counts_users(self) -> bool:
        """Whether the rewards of one user for one item move its effect as one, and few of all count in a mixture."""
        return self.settings is not None and self.settings.counts_users

    def bandit(self, recommender: str, model: int, n_features: int | None = None) -> tuple[DescribedBandit, str | None]:
        """Return the bandit for a recommender's users of a model version, and the name of their state if it is shared.

        `n_features` is needed for the first decision only, before the log has fixed the number.
        """
        found = self._bandits.get((recommender, model))
        if found is None:
            size = self.n_features or n_features
            assert size is not None
            found = self._build_bandit(self.recommenders[recommender], model, size)
            if self.n_features is not None:
                self._bandits[recommender, model] = found
        return found

    def _build_bandit(self, spec: RecommenderSpec, model: int, n_features: int) -> tuple[DescribedBandit, str | None]:
        reward_range = self.settings.reward_range if self.settings else None
        if not spec.over_classes:
            return spec.make(None, n_features, reward_range), spec.name if spec.scope == "everyone" else None
        if model == WARMUP:
            return spec.make_warmup(n_features), f"{spec.name}/warmup"
        try:
            return spec.make(self.versions[model].models(), n_features, reward_range), None
        except ModelError as error:
            words = f"{error}; activate another version, and restore this one from a backup"
            raise UnreadableModels(words) from None

    def item_effects(self, model: int) -> ItemEffects | None:
        """Return the item effects that a version brought; None if it has none or cannot be read."""
        version = self.versions.get(model)
        return version.models().item_effects if version is not None and version.readable else None

    def is_beside_effects(self, recommender: str, model: int) -> bool:
        """Whether a recommender uses item effects and a version has classes that were learned beside them."""
        found = self._with_effects.get((recommender, model))
        if found is None:
            found = bool(self.recommenders[recommender].item_effects) and self.item_effects(model) is not None
            self._with_effects[recommender, model] = found
        return found

    @property
    def closed(self) -> frozenset[str]:
        """The recommenders that visitors of the pages do not teach, from the next decision on."""
        return self._closed[-1][1] if self._closed else frozenset()

    def is_teaching(self, user: str, recommender: str, decision: int) -> bool:
        """Whether a user's decision of this seq counts for learning; for visitors of the pages the log says so."""
        if not self._closed or not is_visitor(user):
            return True
        closed = next((one for since, one in reversed(self._closed) if since < decision), frozenset())
        return recommender not in closed

    def model_for_newcomers(self, recommender: str, name: str) -> int:
        """Return the version that a new user of this name gets."""
        if self.canaries and (canary := self.canary) is not None and canary.takes(self.seed, name):
            return canary.version if self.recommenders[recommender].over_classes else WARMUP
        return self.active if self.recommenders[recommender].over_classes else WARMUP

    def mixture_of(self, recommender: str) -> str | None:
        """Return the name of the mixture that serves a recommender: that of the first one with the same settings.

        None if its bandit seats no users.
        """
        try:
            return self._mixtures[recommender]
        except KeyError:
            found = self._mixtures[recommender] = self._find_mixture(self.recommenders[recommender])
            return found

    def _find_mixture(self, spec: RecommenderSpec) -> str | None:
        if not spec.traits.seats_users:
            return None
        alike = (one.name for one in self.recommenders.values() if one.bandit == spec.bandit)
        return next(name for name in alike if self.recommenders[name].settings == spec.settings)

    def is_pinned(self, recommender: str) -> bool:
        """Whether users of a recommender keep the model version that they first met."""
        return self.recommenders[recommender].pin

    def model_for(self, user: User) -> int:
        """Return the version that serves a user's next decision: the user's own, the open canary's, or the newest."""
        if self.is_pinned(user.recommender):
            return user.model
        if not self.recommenders[user.recommender].over_classes:
            return WARMUP
        if user.canary > 0 and (canary := self.canary) is not None and user.canary > canary.since:
            return canary.version
        return self.active

    @property
    def active(self) -> int:
        """The version that new users get: the last activated one that can be read."""
        last = self.activations[-1]
        if last == WARMUP or self.versions[last].readable:
            return last
        return next(one for one in reversed(self.activations) if one == WARMUP or self.versions[one].readable)
