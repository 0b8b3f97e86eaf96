"""The recommenders of a service: each has a name, a bandit of `lcb.bandits.registry` and its settings.

    needs classes    one state per user; during warm-up one LinUCB for all users (phase 1 of Algorithm 1)
    other bandits    one state per user, or one for everyone ("Population LinUCB")

The log stores each recommender with its settings, which never change in that log; only `teach`, which changes no
decision, may be given anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.registry import BANDITS, build_bandit, list_settings
from lcb.bandits.traits import DescribedBandit, Traits
from lcb.errors import InputError
from lcb.models import LatentModels

Range = tuple[float, float]
TEACH = ("auto", "everyone", "callers")

_TRIAL = LatentModels(np.full(2, 0.5), np.eye(2), np.ones(2)).with_covariance(np.tile(np.eye(2), (2, 1, 1)))


@dataclass(frozen=True)
class RecommenderSpec:
    """One recommender of a service.

    >>> RecommenderSpec("population", "linucb", scope="everyone", settings={"width": 0.25}).to_json()
    b'{"bandit":"linucb","name":"population","scope":"everyone","settings":{"width":0.25},"warmup":{}}'
    >>> RecommenderSpec("lcb", "thomson")
    Traceback (most recent call last):
    lcb.errors.InputError: recommender lcb: unknown bandit 'thomson'; the bandits are thompson, posterior-mean, ...
    """

    name: str
    bandit: str = "thompson"
    scope: Literal["user", "everyone"] = "user"
    settings: dict[str, Any] = field(default_factory=dict)
    warmup: dict[str, Any] = field(default_factory=dict)  # settings of the LinUCB that serves during warm-up
    # who teaches the classes: everyone, callers (users of the API, not visitors of the pages), or auto (callers where
    # there are keys); None: as the log has it
    teach: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.bandit not in BANDITS:
            known = ", ".join(BANDITS)
            raise InputError(f"recommender {self.name}: unknown bandit {self.bandit!r}; the bandits are {known}")
        if self.scope not in ("user", "everyone"):
            raise InputError(f"recommender {self.name}: scope is {self.scope!r}; it must be 'user' or 'everyone'")
        if self.scope == "everyone" and self.over_classes:
            raise InputError(
                f"recommender {self.name}: {self.bandit} needs classes and has one state per user; "
                "use scope 'user', or a bandit that needs no classes"
            )
        if self.teach not in (None, *TEACH):
            raise InputError(f"recommender {self.name}: teach is {self.teach!r}; it must be one of {', '.join(TEACH)}")
        self.check_settings()

    @property
    def traits(self) -> Traits:
        return BANDITS[self.bandit].traits

    @property
    def over_classes(self) -> bool:
        return self.traits.needs_classes

    def check_settings(self) -> None:
        """Refuse settings that the bandit does not have, or values it does not take, by building it once."""
        try:
            self.make(_TRIAL, 2, (0.0, 1.0))
            self.make_warmup(2)
        except TypeError as error:
            words = f"recommender {self.name}: {self.bandit} does not take {self.settings} ({error})"
            raise InputError(f"{words}; its settings are {', '.join(list_settings(self.bandit))}") from None
        except InputError as error:
            raise InputError(f"recommender {self.name}: {error}") from None

    def make(self, models: LatentModels | None, n_features: int, reward_range: Range | None) -> DescribedBandit:
        """Build the bandit, over the classes of `models` if it needs them."""
        return build_bandit(self.bandit, self.settings, models=models, n_features=n_features, reward_range=reward_range)

    def make_warmup(self, n_features: int) -> DescribedBandit:
        """Build the LinUCB that serves until there are classes."""
        return LinUCB(n_features, **self.warmup)

    def to_json(self) -> bytes:
        kept = {"name": self.name, "bandit": self.bandit, "scope": self.scope, "settings": self.settings}
        kept |= {} if self.teach is None else {"teach": self.teach}
        return msgspec.json.encode(kept | {"warmup": self.warmup}, order="sorted")

    @classmethod
    def from_json(cls, kept: bytes) -> RecommenderSpec:
        return cls(**msgspec.json.decode(kept))
