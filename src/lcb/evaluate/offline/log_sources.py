"""A log prepared for one method of evaluation: its arms, training rows and the rewards of test users.

filled, queue         arms are categories (or items) with queues of labels          `QueueSource`
replay                arms are items; events count if they show the arm chosen      `EventSource`
ips, snips, dr        arms are items; events are weighted by propensities           `EventSource`
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats, Index
from lcb.bandits.linear.linucb import LinUCB
from lcb.errors import InputError
from lcb.evaluate.offline.filled import Filling, evaluate_filled, prepare_filling
from lcb.evaluate.offline.history import SPECS, LabelledRows, choose_features
from lcb.evaluate.offline.label_use import LabelUse, measure_use
from lcb.evaluate.offline.labels import QueueLabels, Reading, read_labels
from lcb.evaluate.offline.logged_events import LoggedEvents, read_events
from lcb.evaluate.offline.off_policy import weigh_events
from lcb.evaluate.offline.queue import WhenEmpty, draw_uniform_history, evaluate_queue
from lcb.evaluate.offline.replay import evaluate_replay
from lcb.evaluate.offline.support import Support
from lcb.event_log import EventLog
from lcb.features import FeatureMap, fit_features
from lcb.recommenders.recommender import Recommender
from lcb.storage.logs.log import Log
from lcb.words import format_count

MOST_ARMS = 100  # items, where there are no categories; as `Log.arms`
Method = Literal["filled", "queue", "replay", "ips", "snips", "dr"]
METHODS = ("filled", "queue", "replay", "ips", "snips", "dr")
Diagnostics = Support | LabelUse


@dataclass(frozen=True, eq=False)
class ServingSetup:
    """How test users are served: features x (A, d) of the arms, steps, training rows, seed and generator."""

    x: Floats
    n_steps: int
    history: EventLog
    seed: int
    rng: np.random.Generator


class LogSource(Protocol):
    @property
    def method(self) -> Method: ...

    @property
    def n_arms(self) -> int: ...

    @property
    def arm_kind(self) -> str:
        """What an arm is: "category" or "item"."""

    @property
    def n_events(self) -> NDArray[np.int64]:
        """Events of each user that a test can use, (n_users,)."""

    @property
    def reward_range(self) -> tuple[float, float]: ...

    def logged_rate(self, users: Index, n_steps: int) -> float:
        """Return the mean reward of these users in the log."""

    def choose_features(self, users: Index) -> tuple[str, str]:
        """Return the features that `lcb learn` would choose from these users, and why."""

    def features(self, spec: str, users: Index) -> tuple[FeatureMap, Floats]:
        """Fit the feature map on these users; return it and the arms' features (A, d)."""

    def history(
        self, users: Index, x: Floats, names: tuple[str, ...], n_pulls: int | None, rng: np.random.Generator
    ) -> EventLog:
        """Return the training rows of these users: all, or `n_pulls` arms of each, drawn uniformly."""

    def rows(self, users: Index, x: Floats, names: tuple[str, ...]) -> EventLog:
        """Return all training rows of these users, kept one by one if rewards have more than two values."""

    def prepare(self, users: Index, n_steps: int, seed: int) -> LogSource:
        """Return a source that is ready to serve these users, so that this work is done once for all algorithms."""

    def rates(self, recommender: Recommender, users: Index, test: ServingSetup) -> tuple[Floats, Diagnostics | None]:
        """Return the mean reward from each of these users, (users,); nan for a user without a matching event.

        Also return what the log has for the recommender's choices; None without events.
        """


@dataclass(frozen=True, eq=False)
class QueueSource:
    labels: QueueLabels
    when_empty: WhenEmpty = "withhold"
    method: Method = "queue"
    arm_kind: str = "category"
    filling: Filling | None = field(default=None, repr=False)  # for the users it was prepared for

    @property
    def n_arms(self) -> int:
        return len(self.labels.arms)

    @property
    def n_events(self) -> NDArray[np.int64]:
        return self.labels.n_events

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.labels.reward_range

    def logged_rate(self, users: Index, n_steps: int) -> float:
        return self.labels.logged_rate(users)

    def choose_features(self, users: Index) -> tuple[str, str]:
        return SPECS[0], ""  # an arm is one category, for which all of them say the same

    def features(self, spec: str, users: Index) -> tuple[FeatureMap, Floats]:
        features = fit_features(spec, self.labels.arms, *self.labels.count_items(users))
        return features, features.arms

    def history(
        self, users: Index, x: Floats, names: tuple[str, ...], n_pulls: int | None, rng: np.random.Generator
    ) -> EventLog:
        if n_pulls is None:
            return self.labels.history(users, x, names)
        return draw_uniform_history(self.labels, users, x, names, n_pulls, rng)

    def rows(self, users: Index, x: Floats, names: tuple[str, ...]) -> EventLog:
        return self.labels.history(users, x, names, keep_rows=True)

    def prepare(self, users: Index, n_steps: int, seed: int) -> QueueSource:
        if self.method == "queue":
            return self
        return replace(self, filling=prepare_filling(self.labels, users, n_steps, seed))

    def rates(self, recommender: Recommender, users: Index, test: ServingSetup) -> tuple[Floats, Diagnostics | None]:
        labels, n_steps = self.labels, test.n_steps
        if self.method == "queue":
            found = evaluate_queue(
                recommender, labels, users, test.x, n_steps, seed=test.seed, rng=test.rng, when_empty=self.when_empty
            )
            rewards, withheld = found.rewards, found.is_short.mean()
        else:
            filling = self.filling or prepare_filling(labels, users, n_steps, test.seed)
            filled = evaluate_filled(recommender, labels, filling, test.x, n_steps, rng=test.rng)
            rewards, withheld = filled.rewards, filled.is_drawn.mean()
        return _mean_rewards(rewards), measure_use(self.method, labels, users, float(withheld), n_steps)


@dataclass(frozen=True, eq=False)
class EventSource:
    logged: LoggedEvents = field(repr=False)
    method: Method

    def __post_init__(self) -> None:
        if self.method != "replay" and self.logged.propensity is None:
            raise InputError(
                f"method {self.method} needs the propensity of every event, but the log has none; "
                "import it with --propensity COLUMN, or use method filled"
            )
        offers = self.logged.offers
        n_partial = 0 if offers is None else int((offers.size < self.n_arms).sum())
        if self.method == "replay" and n_partial:
            raise InputError(
                f"{n_partial:,} of {format_count(len(self.logged.user), 'event')} offered only some of the "
                f"{self.n_arms:,} items, but replay assumes that all were on offer; use method ips, snips or dr"
            )

    @property
    def n_arms(self) -> int:
        return len(self.logged.vectors)

    @property
    def arm_kind(self) -> str:
        return "item"

    @property
    def n_events(self) -> NDArray[np.int64]:
        return self.logged.n_events

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.logged.reward_range

    def logged_rate(self, users: Index, n_steps: int) -> float:
        steps = None if self.method == "replay" else n_steps
        return float(self.logged.of_users(users, steps).reward.mean())

    def choose_features(self, users: Index) -> tuple[str, str]:
        own = self.logged.of_users(users)
        chosen, why = choose_features(LabelledRows(own.names, own.vectors, own.user, own.arm, own.reward))
        return chosen.spec, why

    def features(self, spec: str, users: Index) -> tuple[FeatureMap, Floats]:
        n = np.bincount(self.logged.of_users(users).arm, minlength=self.n_arms)
        features = fit_features(spec, self.logged.names, self.logged.vectors, n)
        return features, features(self.logged.vectors)

    def history(
        self, users: Index, x: Floats, names: tuple[str, ...], n_pulls: int | None, rng: np.random.Generator
    ) -> EventLog:
        if n_pulls is not None:
            raise InputError(f"method {self.method} trains on all rows; set train_on=all, or use queue")
        return self.logged.of_users(users).history(x, names)

    def rows(self, users: Index, x: Floats, names: tuple[str, ...]) -> EventLog:
        return self.logged.of_users(users).history(x, names, keep_rows=True)

    def prepare(self, users: Index, n_steps: int, seed: int) -> EventSource:
        return self

    def rates(self, recommender: Recommender, users: Index, test: ServingSetup) -> tuple[Floats, Diagnostics | None]:
        if self.method == "replay":
            found = evaluate_replay(recommender, self.logged, users, test.x, test.n_steps, rng=test.rng)
            return _mean_rewards(found.rewards), found.support
        bandit, events = LinUCB(test.x.shape[1]), self.logged.of_users(users, test.n_steps)
        theta = bandit.theta(bandit.train(test.history.stats))
        weighted = weigh_events(recommender, events, test.x, theta=theta, rng=test.rng)
        sums = np.bincount(weighted.user, weighted.terms(self.method), self.logged.n_users)
        return sums[users] / test.n_steps, weighted.support


def open_source(
    log: Log, method: Method, reading: Reading, like: float | None = None, when_empty: WhenEmpty = "withhold"
) -> LogSource:
    """Prepare a log for a method."""
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")
    if len(np.unique(log.item)) < 2 and len(log.categories) > 1:
        raise InputError(
            "every event of this log is of the same item, whose categories would be the arms; "
            "give a log of two or more items"
        )
    if log.item_features is not None and not log.categories and log.n_items > MOST_ARMS:
        often = np.sort(np.bincount(log.item, minlength=log.n_items))[-MOST_ARMS:].sum() / log.n_events
        raise InputError(
            f"the items have {format_count(len(log.inputs), 'number')} of their own and no categories: with the "
            f"{MOST_ARMS} most frequent of {log.n_items:,} items as arms, only {100 * often:.0f} % of the events would "
            "count, and the numbers would not; evaluate over items: --arms items"
        )
    if method in ("filled", "queue"):
        return QueueSource(read_labels(log, reading, like), when_empty, method, log.arm_kind)
    if reading != "labels":
        raise InputError(f"method {method} needs a reward for every event; for choices, use method filled or queue")
    return EventSource(read_events(log, like), method)


def _mean_rewards(rewards: Floats) -> Floats:
    """Return the mean of each row over its finite values; nan if it has none."""
    n = np.isfinite(rewards).sum(axis=1)
    return np.where(n > 0, np.nansum(rewards, axis=1) / np.maximum(n, 1), np.nan)
