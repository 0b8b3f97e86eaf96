"""How a service is set: one frozen object, every setting with its default and its words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from lcb.bandits.registry import is_revisable
from lcb.errors import InputError
from lcb.learners.registry import LEARNERS
from lcb.serve.config.recommenders import RecommenderSpec

RewardRule = Literal["once", "first", "sum", "last"]
READER = "reader"  # who chooses for the visitors of the reader's page; not part of any trial
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_RULES = ("once", "first", "sum", "last")


@dataclass(frozen=True)
class Learning:
    """Algorithm 1 in production."""

    n_warmup_users: int = 50  # the first J: users who have given a reward before there are classes
    retrain_every: int | None = 50  # new users; None: on demand only
    learner: str = "em"
    n_classes: int | None = None  # None: chosen by held-out users
    held_out: float = 0.2  # share of the users that judge a new version
    max_seconds: float = 3600.0
    max_memory: int | None = None  # bytes the learning process may have; None: any

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise InputError(f"unknown learner {self.learner!r}; the learners are {', '.join(LEARNERS)}")
        for name in ("n_warmup_users", "retrain_every", "n_classes", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; it is the share of the users who judge, below 1")
        if not self.max_seconds > 0:
            raise InputError(f"max_seconds is {self.max_seconds}; learning needs some time")


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the service."""

    max_body: int = 4_000_000  # bytes
    rate: float = 0.0  # requests a second for each key; 0: any
    deadline: float = 10.0  # seconds for a request to come in, and for a client to take its answer
    max_connections: int = 2000
    max_waiting: int = 2000  # requests that wait for the store
    patience: float = 10.0  # seconds a request waits for the store
    drain: float = 1.0  # seconds between SIGTERM, when /readyz says 503, and the end of listening
    cached_users: int = 50_000


@dataclass(frozen=True)
class Settings:
    """All of it.  `shares` are of new users, by recommender; those left out get none."""

    store: str = "lcb.db"
    host: str = "127.0.0.1"
    port: int = 8000
    models: str | None = None  # a folder to begin with
    categories: tuple[str, ...] | None = None  # features are one-hot over these, where there are no models
    items: str | None = None  # a file as PUT /v1/items takes it, for a catalogue that is empty; "headlines": our own
    recommenders: tuple[RecommenderSpec, ...] = (RecommenderSpec("lcb"),)
    shares: dict[str, float] = field(default_factory=dict)  # empty: alike
    pages: bool = True  # the reader's page, the study and the dashboard
    simulated_visitors: float = 0.0  # of the study, a minute; to see the pages live
    shadow: bool = False
    rewards: RewardRule = "once"
    reward_range: tuple[float, float] | None = None
    learning: Learning = Learning()
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal, JSON lines elsewhere

    def __post_init__(self) -> None:
        self._check_numbers()
        names = [one.name for one in self.recommenders]
        if not names or len(set(names)) != len(names):
            raise InputError(f"recommenders {', '.join(names) or 'none'}; give at least one, each with its own name")
        for name in names:
            if not _NAME.fullmatch(name):
                raise InputError(f"a recommender named {name!r}; give letters, digits and _ . : - , at most 64")
        if self.categories is not None:
            blank = [name for name in self.categories if not name.strip()]
            if not self.categories or blank or len(set(self.categories)) != len(self.categories):
                raise InputError(
                    f"categories {list(self.categories)}; give at least one, each once, none of them blank"
                )
        if not (math.isfinite(self.simulated_visitors) and self.simulated_visitors >= 0):
            raise InputError(f"simulated_visitors {self.simulated_visitors}; it is a number a minute, 0 for none")
        for name, share in self.shares.items():
            if name not in names:
                raise InputError(f"a share for {name!r}; the recommenders are {', '.join(names)}")
            if not 0 <= share <= 1:
                raise InputError(f"the share of {name} is {share}; it must lie in [0, 1]")
        if self.shares and not sum(self.shares.values()) > 0:
            raise InputError("no recommender has a share of the users; give one at least")
        if self.rewards not in _RULES:
            raise InputError(f"rewards {self.rewards!r}; it is one of {', '.join(_RULES)}")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(f"reward_range {low:g}, {high:g}; give two finite numbers, the smaller first")
        for one in self.recommenders:
            if self.shadow and one.traits.needs_propensity_of_every_arm:
                raise InputError(
                    f"{one.name} is {one.bandit}, which needs the probability of every arm and cannot learn as a "
                    "shadow; take exp4, or another"
                )
        if self.rewards in ("sum", "last"):
            for one in self.recommenders:
                if one.scope == "everyone" and not is_revisable(one.bandit):
                    raise InputError(
                        f"rewards {self.rewards!r} changes rewards that came before, which {one.name}'s shared "
                        f"{one.bandit} cannot undo; declare once or first, or give it scope 'user'"
                    )

    def _check_numbers(self) -> None:
        limits = self.limits
        for name, value, low, high in (
            ("port", self.port, 0, 65535),
            ("limits.max_body", limits.max_body, 1, math.inf),
            ("limits.rate", limits.rate, 0, 1e9),
            ("limits.deadline", limits.deadline, 0.01, 3600),
            ("limits.max_connections", limits.max_connections, 1, math.inf),
            ("limits.max_waiting", limits.max_waiting, 1, math.inf),
            ("limits.patience", limits.patience, 0.01, 3600),
            ("limits.drain", limits.drain, 0, 60),
            ("limits.cached_users", limits.cached_users, 1, math.inf),
        ):
            if value is not None and not low <= value <= high:
                wanted = f"at least {low}" if high == math.inf else f"in [{low}, {high:g}]"
                raise InputError(f"{name} is {value}; it must be {wanted}")

    @property
    def range(self) -> tuple[float, float] | None:
        """The declared range, or [0, 1] where a bandit cannot do without one."""
        if self.reward_range is None and any(one.traits.needs_reward_range for one in self.recommenders):
            return (0.0, 1.0)
        return self.reward_range

    @property
    def all_recommenders(self) -> tuple[RecommenderSpec, ...]:
        """Those of the settings and, with pages, the one behind the reader's page: the first that knows classes."""
        if not self.pages or any(one.name == READER for one in self.recommenders):
            return self.recommenders
        like = next((one for one in self.recommenders if one.over_classes), self.recommenders[0])
        return (*self.recommenders, replace(like, name=READER))

    @property
    def share(self) -> dict[str, float]:
        names = [one.name for one in self.recommenders]
        return {name: self.shares.get(name, 0.0) for name in names} if self.shares else dict.fromkeys(names, 1.0)
