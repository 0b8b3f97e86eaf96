"""The recommenders of a service: each has a name, a bandit of `lcb.bandits.registry` and its settings.

    needs classes    one state per user; during warm-up one LinUCB for all users (phase 1 of Algorithm 1)
    mixture          one state per user, the user's statistics; users who have left are seated in classes
    other bandits    one state per user, or one for everyone ("Population LinUCB")

Every recommender draws a share `uniform` of its decisions uniformly, so that the log supports estimates of any policy;
the stated propensities are those of the mixture.  The log stores each recommender with all its settings, which never
change in that log.  Only `teach` may be given anew: from which event on visitors do not teach is an event of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.registry import BANDITS, build_bandit, default_settings, list_settings
from lcb.bandits.traits import DescribedBandit, Traits
from lcb.errors import InputError
from lcb.models import LatentModels

Range = tuple[float, float]
TEACH = ("auto", "everyone", "callers")
UNIFORM = 0.01  # of a recommender that is new in a log, if its settings do not say
ITEM_BONUS = 1.0  # the same; people who come later gain by what is learned about an item
ITEM_SHARE = 0.2  # the same; of offers that many newcomers may take

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
    warmup: dict[str, Any] = field(default_factory=dict)  # `uniform` and settings of the LinUCB that serves in warm-up
    # who teaches the classes and shared states: everyone, callers (users of the API, not visitors of the pages), or
    # auto (callers where there are keys); None: as the log has it
    teach: str | None = field(default=None, compare=False)
    uniform: float | None = None  # share of uniform decisions; None: that of the log, or `UNIFORM` if it is new there
    pin: bool = True  # users keep the model version they first met; False: they are served by the newest
    settles: bool = False  # users known by statistics count as settled too; false in logs written before they did
    item_effects: bool | None = None  # items have effects of their own; None: as the log has it, on if it is new there

    def __post_init__(self) -> None:
        former = ("uniform", "gamma") if self.bandit == "thompson" else ("uniform",)
        for name in former:  # once a setting of some bandits, and named gamma by Thompson; drawn the same way
            if name in self.settings:
                object.__setattr__(self, "uniform", self.settings[name])
                object.__setattr__(self, "settings", {k: v for k, v in self.settings.items() if k != name})
        if self.bandit not in BANDITS:
            known = ", ".join(BANDITS)
            raise InputError(f"recommender {self.name}: unknown bandit {self.bandit!r}; the bandits are {known}")
        if self.scope not in ("user", "everyone"):
            raise InputError(f"recommender {self.name}: scope is {self.scope!r}; it must be 'user' or 'everyone'")
        if self.scope == "everyone" and (self.over_classes or self.traits.seats_users):
            raise InputError(
                f"recommender {self.name}: {self.bandit} needs classes and has one state per user; "
                "use scope 'user', or a bandit that needs no classes"
            )
        if self.teach not in (None, *TEACH):
            raise InputError(f"recommender {self.name}: teach is {self.teach!r}; it must be one of {', '.join(TEACH)}")
        for share in (self.uniform, self.warmup.get("uniform")):
            if share is not None and not (isinstance(share, int | float) and 0 <= share <= 1):
                raise InputError(f"recommender {self.name}: uniform is {share!r}; it is a share and must lie in [0, 1]")
        if not self.pin and not self.traits.keeps_statistics:
            raise InputError(
                f"recommender {self.name}: pin is false, but the state of {self.bandit} belongs to one model version; "
                "use learned-classes, or set pin to true"
            )
        if self.item_effects and not self.can_use_effects:
            raise InputError(
                f"recommender {self.name}: item_effects is true, but {self.bandit} does not use item effects here; "
                "use learned-classes, or leave item_effects out"
            )
        self.check_settings()

    @property
    def can_use_effects(self) -> bool:
        """Whether the bandit can add item effects: it takes them, and learns from rewards of any value without them."""
        return self.traits.takes_effects and self.traits.keeps_statistics

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
        return LinUCB(n_features, **{name: value for name, value in self.warmup.items() if name != "uniform"})

    def get_uniform(self, *, in_warmup: bool) -> float:
        """Return the share of uniform decisions; a log written before there was one for warm-up has none there."""
        return (self.warmup.get("uniform", 0.0) if in_warmup and self.over_classes else self.uniform) or 0.0

    def complete(self, known: RecommenderSpec | None) -> RecommenderSpec:
        """Return the recommender with all settings: those not given are those of `known` in the log, else defaults."""
        if known is not None:
            uniform = known.uniform if self.uniform is None else self.uniform
            return replace(
                self,
                settings={**known.settings, **self.settings},
                warmup={**known.warmup, **self.warmup},
                uniform=uniform,
                settles=known.settles,
                item_effects=known.item_effects if self.item_effects is None else self.item_effects,
            )
        uniform = UNIFORM if self.uniform is None else self.uniform
        warmup = {**default_settings("linucb"), "uniform": uniform, **self.warmup} if self.over_classes else self.warmup
        defaults = {name: value for name, value in default_settings(self.bandit).items() if name != "uniform"}
        effects = self.can_use_effects if self.item_effects is None else self.item_effects
        if effects:
            defaults |= {"item_bonus": ITEM_BONUS, "item_share": ITEM_SHARE}
        return replace(
            self,
            settings={**defaults, **self.settings},
            warmup=warmup,
            uniform=uniform,
            settles=self.traits.keeps_statistics and self.over_classes,
            item_effects=effects,
        )

    def to_json(self) -> bytes:
        kept: dict[str, Any] = {name: getattr(self, name) for name in ("name", "bandit", "scope", "settings")}
        kept |= {name: value for name in ("teach", "uniform") if (value := getattr(self, name)) is not None}
        kept |= ({} if self.pin else {"pin": False}) | ({"settles": True} if self.settles else {})
        kept |= {"item_effects": True} if self.item_effects else {}
        return msgspec.json.encode(kept | {"warmup": self.warmup}, order="sorted")

    @classmethod
    def from_json(cls, kept: bytes) -> RecommenderSpec:
        """Read a recommender of a log; what it does not have, there was not when it was written."""
        known = {"uniform": 0.0, "item_effects": False, **msgspec.json.decode(kept)}
        if "item_bonus" in known.get("settings", ()):
            known["settings"] = {"item_horizon": 0.0, **known["settings"]}
        return cls(**known)
