"""The settings of a service: one frozen object, each setting with its default."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lcb.bandits.registry import is_revisable
from lcb.errors import InputError
from lcb.learners.registry import LEARNERS
from lcb.serve.config.recommenders import RecommenderSpec

RewardRule = Literal["once", "first", "sum", "last"]
AUTO = "auto"  # kind and number of classes and the bonus are chosen, see `lcb.evaluate.choice` and `Settings.learner`
CHOSEN = RecommenderSpec("lcb", "learned-classes")  # serves what the choice makes
READER = "reader"  # the recommender of the visitors' page; not part of any trial
NEW_RANGE = (0.0, 1.0)  # of the rewards of a new log, unless another one is declared
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_RULES = ("once", "first", "sum", "last")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("0.0.0.0"), is_loopback("shop.example")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Learning:
    """When and how model versions are learned (Algorithm 1 of the paper)."""

    n_warmup_users: int = 50  # users with a reward before the first version is learned (J in the paper)
    retrain_every: int | None = 50  # new users between two runs; None: only on demand
    learner: str = AUTO
    n_classes: int | None = None  # None: chosen by held-out users
    held_out: float = 0.2  # share of users kept out of learning, to compare versions by
    max_seconds: float = 3600.0
    max_memory: int | None = None  # bytes the learning process may use; None: no limit
    idle: float = 1800.0  # seconds after which a user of a mixture has left and is seated in a class
    canary: float = 0.0  # share of newcomers that get a new version until it is promoted or withdrawn; 0: all do
    canary_users: int = 100  # of these, with a reward, before a version is promoted or withdrawn
    pin: bool = False  # users keep their version under every recommender, also where the newest could serve them

    def __post_init__(self) -> None:
        if self.learner not in (AUTO, *LEARNERS):
            raise InputError(f"unknown learner {self.learner!r}; the learners are {', '.join((AUTO, *LEARNERS))}")
        if not 0 <= self.canary < 1:
            raise InputError(f"canary is {self.canary}; it is a share of the newcomers and must lie in [0, 1)")
        if self.canary_users < 2:
            raise InputError(f"canary_users is {self.canary_users}; it must be at least 2")
        for name in ("n_warmup_users", "retrain_every", "n_classes", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; it is a share of the users and must lie in [0, 1)")
        if not 0 < self.idle < math.inf:
            raise InputError(f"idle is {self.idle}; give a finite number of seconds above 0")
        if not self.max_seconds > 0:
            raise InputError(f"max_seconds is {self.max_seconds}; it must be above 0")


@dataclass(frozen=True)
class Limits:
    """Limits on requests, connections and memory."""

    max_body: int = 4_000_000  # bytes
    rate: float = 0.0  # requests per second and key (address, where there are no keys); 0: no limit
    failures: float = 100.0  # answers 401 and 404 per second and address, with bursts of 10 s; 0: no limit
    deadline: float = 10.0  # seconds for a request to arrive, and for a client to read its answer
    max_connections: int = 2000
    max_per_address: int = 500  # connections of one address; those of `proxies` have no such limit
    streams: int = 20  # open event streams of the dashboard per key (address, where there are no keys)
    max_waiting: int = 2000  # requests waiting for the store
    patience: float = 10.0  # seconds a request waits for the store
    visitor_rate: float = 5.0  # visits and answers per second and address on the pages; 0: no limit
    open_visits: int = 1000  # visits begun within the last hour and not finished; of one address a twentieth
    sign_ins: float = 0.05  # sign-ins per second and key on the pages, with bursts of 400 s; 0: no limit
    drain: float = 1.0  # seconds from SIGTERM, when /readyz turns 503, until the socket is closed
    cached_bytes: int = 128_000_000  # of the states of users held in memory


@dataclass(frozen=True)
class Settings:
    """All settings of a service."""

    store: str = "lcb.db"
    host: str = "127.0.0.1"
    port: int = 8000
    # names that requests may give as their host; None: those of this machine, or any if others can reach it
    hosts: tuple[str, ...] | None = None
    proxies: tuple[str, ...] | None = None  # addresses of proxies whose X-Forwarded-For and -Proto are believed
    models: str | None = None  # folder written by lcb learn: the first model version
    categories: tuple[str, ...] | None = None  # without models: features are one-hot over these
    items: str | None = None  # JSON file, like a body of PUT /v1/items, that fills an empty catalogue
    recommenders: tuple[RecommenderSpec, ...] = (CHOSEN,)
    # share of new users by recommender: 0 for those not named; if none is named, all have equal shares
    shares: dict[str, float] = field(default_factory=dict)
    # serve the visitors' page, the study and the dashboard; None: only if this machine alone can reach the service
    pages: bool | None = None
    simulated_visitors: float = 0.0  # simulated visitors of the study per minute
    archive: str | None = None  # folder of what lcb log compact has archived; None: STORE.archive beside an SQLite file
    shadow: bool = False  # the caller chooses the arms; the service logs what it would have chosen
    rewards: RewardRule = "once"  # the rule for several rewards of one decision
    reward_range: tuple[float, float] | None = None  # None: that of the log, [0, 1] in a new one
    learning: Learning = Learning()
    limits: Limits = Limits()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"  # auto: text on a terminal, JSON lines elsewhere
    tracing: str | None = None  # OpenTelemetry: send spans with this exporter, such as otlp or console; None: no traces

    def __post_init__(self) -> None:
        self._check_numbers()
        names = [one.name for one in self.recommenders]
        if not names or len(set(names)) != len(names):
            raise InputError(f"recommenders are {', '.join(names) or 'none'}; give at least one, with unique names")
        for name in names:
            if not _NAME.fullmatch(name):
                raise InputError(f"recommender name {name!r}; use 1 to 64 letters, digits and _ . : -")
            if name == READER:
                raise InputError(f"recommender name {name!r} is that of the visitors' page; choose another")
        if self.categories is not None:
            blank = [name for name in self.categories if not name.strip()]
            if not self.categories or blank or len(set(self.categories)) != len(self.categories):
                raise InputError(f"categories are {list(self.categories)}; give at least one, unique and not blank")
        if not (math.isfinite(self.simulated_visitors) and self.simulated_visitors >= 0):
            raise InputError(f"simulated_visitors is {self.simulated_visitors}; give visitors per minute, 0 for none")
        self._check_names_of_hosts()
        for name, share in self.shares.items():
            if name not in names:
                known = ", ".join(names)
                raise InputError(f"shares has {name!r}, which is not a recommender; the recommenders are {known}")
            if not 0 <= share <= 1:
                raise InputError(f"the share of {name} is {share}; it must lie in [0, 1]")
        if self.shares and not sum(self.shares.values()) > 0:
            raise InputError("all shares are 0, so no recommender would get users; give at least one a share above 0")
        if self.rewards not in _RULES:
            raise InputError(f"rewards is {self.rewards!r}; it must be one of {', '.join(_RULES)}")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(f"reward_range is {low:g}, {high:g}; give two finite numbers, the smaller first")
        if self.shadow and self.learning.canary:
            raise InputError(
                f"shadow is true and learning.canary is {self.learning.canary:g}: callers choose the arms, so rewards "
                "of a canary's users tell nothing about its version; set learning.canary to 0"
            )
        for one in self.recommenders:
            if self.shadow and one.traits.needs_propensity_of_every_arm:
                raise InputError(
                    f"recommender {one.name}: {one.bandit} needs the probability of every arm, which callers in shadow "
                    "mode do not send; use another bandit, such as exp4"
                )
        if self.rewards in ("sum", "last"):
            for one in self.recommenders:
                if one.scope == "everyone" and not is_revisable(one.bandit):
                    raise InputError(
                        f"rewards is {self.rewards!r}, so rewards can change later, and the shared state of {one.name} "
                        f"({one.bandit}) cannot take a reward back; set rewards to once or first, or scope to 'user'"
                    )

    def _check_names_of_hosts(self) -> None:
        for name in self.hosts or ():
            if not name or not name.isascii() or not name.isprintable() or set(name) & set("/ "):
                raise InputError(f"hosts has {name!r}; give names such as shop.example, without a port, or * for any")
        for address in self.proxies or ():
            try:
                ipaddress.ip_network(address)
            except ValueError:
                words = f"proxies has {address!r}; give addresses such as 10.0.0.1, or networks such as 10.0.0.0/8"
                raise InputError(words) from None

    def _check_numbers(self) -> None:
        limits = self.limits
        for name, value, low, high in (
            ("port", self.port, 0, 65535),
            ("limits.max_body", limits.max_body, 1, math.inf),
            ("limits.rate", limits.rate, 0, 1e9),
            ("limits.visitor_rate", limits.visitor_rate, 0, 1e9),
            ("limits.open_visits", limits.open_visits, 1, math.inf),
            ("limits.sign_ins", limits.sign_ins, 0, 1e9),
            ("limits.failures", limits.failures, 0, 1e9),
            ("limits.deadline", limits.deadline, 0.01, 3600),
            ("limits.max_connections", limits.max_connections, 1, math.inf),
            ("limits.max_per_address", limits.max_per_address, 1, math.inf),
            ("limits.streams", limits.streams, 1, math.inf),
            ("limits.max_waiting", limits.max_waiting, 1, math.inf),
            ("limits.patience", limits.patience, 0.01, 3600),
            ("limits.drain", limits.drain, 0, 60),
            ("limits.cached_bytes", limits.cached_bytes, 1, math.inf),
        ):
            if value is not None and not low <= value <= high:
                allowed = f"at least {low}" if high == math.inf else f"in [{low}, {high:g}]"
                raise InputError(f"{name} is {value}; it must be {allowed}")

    def choose_range(self, log: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range of rewards that a log must have; `log` is what it has, None: any number.

        Logs of earlier versions may take any number, unless a bandit needs a range.
        """
        if self.reward_range is not None:
            return self.reward_range
        needed = any(one.traits.needs_reward_range for one in self.recommenders)
        return NEW_RANGE if log is None and needed else log

    @cached_property
    def over_classes(self) -> bool:
        """Whether any recommender uses classes."""
        return any(one.over_classes for one in self.recommenders)

    @property
    def learner(self) -> str:
        """The learner: `auto` is EM if a recommender cannot serve classes of either kind."""
        either = all(one.traits.keeps_statistics for one in self.recommenders if one.over_classes)
        return "em" if self.learning.learner == AUTO and not either else self.learning.learner

    @property
    def is_reachable(self) -> bool:
        """Whether other machines can reach the service: by its address, by another host name or through a proxy."""
        return bool(self.proxies) or not all(is_loopback(host) for host in (self.host, *(self.hosts or ())))

    @property
    def has_pages(self) -> bool:
        return not self.is_reachable if self.pages is None else self.pages

    @property
    def all_recommenders(self) -> tuple[RecommenderSpec, ...]:
        """The recommenders and, with pages, that of the visitors' page: a copy of the first one that uses classes."""
        own = tuple(self._choose_pin(one) for one in self.recommenders)
        if not self.has_pages:
            return own
        like = next((one for one in own if one.over_classes or one.traits.seats_users), own[0])
        return (*own, replace(like, name=READER))

    def _choose_pin(self, spec: RecommenderSpec) -> RecommenderSpec:
        """Let users of a recommender whose state is statistics follow the newest version, unless `learning.pin`."""
        pin = self.learning.pin and not spec.traits.seats_users
        return replace(spec, pin=pin or not spec.traits.keeps_statistics)

    @property
    def share(self) -> dict[str, float]:
        """The relative share of new users by recommender."""
        names = [one.name for one in self.recommenders]
        return {name: self.shares.get(name, 0.0) for name in names} if self.shares else dict.fromkeys(names, 1.0)
