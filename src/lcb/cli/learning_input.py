"""What `lcb learn` learns from: the options that say it, and how a table, a log or statistics are read by them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lcb.cli.options import parse_names, parse_range
from lcb.datasets import find_dataset
from lcb.errors import InputError
from lcb.evaluate.items.learned_factors import needs_factors, read_factor_history
from lcb.evaluate.offline.history import read_history
from lcb.evaluate.offline.labels import Reading
from lcb.evaluate.offline.learn_classes import LearningData
from lcb.event_log import EventLog
from lcb.features import is_learned
from lcb.learners.registry import get_learner
from lcb.progress import Progress
from lcb.storage.importing.open_any import open_any
from lcb.storage.importing.table_source import Columns
from lcb.storage.logs.files import LogFiles, find_table, read_feature_map
from lcb.storage.logs.log import Log, open_log
from lcb.storage.tables.sample import draw_users
from lcb.storage.tables.statistics import read_log
from lcb.storage.tables.user_statistics import read_user_statistics

if TYPE_CHECKING:
    from lcb.cluster.cluster import Cluster

_OF_EVENTS = ("users", "features", "reading", "like", "user_columns", "reward_range", "on_disk", "no_item_effects")
_OF_TABLES = ("columns", "user_columns", "reward_range", "float32", "on_disk")
_NAMES_IN_TABLES = ("user", "item", "reward")
_OF_LOGS = ("reading", "like", "no_item_effects")


@dataclass(frozen=True, kw_only=True)
class LearningInput:
    """The options of `lcb learn` that say what to read; each is called as on the command line."""

    events: Path | None
    statistics: Path | None
    users: int | None
    columns: str | None
    user: str | None
    item: str | None
    reward: str | None
    user_columns: str | None
    features: str | None
    reading: Reading | None
    like: float | None
    reward_range: str | None
    float32: bool
    on_disk: Path | None
    classes: int | None = None  # for features that are chosen by serving
    seed: int = 0
    no_item_effects: bool | None = None  # None: not given
    with_effects: bool = True  # whether effects of items may be learned
    chooses: bool = True  # whether classes are chosen by serving
    on: str | None = None

    def check_source(self) -> Path:
        """Return what to learn from; raise if both or none was given, or an option of events with statistics."""
        source = self.events or self.statistics
        if source is None or (self.events and self.statistics):
            came = "both came" if source else "neither came"
            raise InputError(f"give either EVENTS or --statistics FILE; {came}")
        for name in (*_OF_EVENTS, *_NAMES_IN_TABLES):
            if self.statistics and getattr(self, name) is not None:
                instead = "apply it" if name in _OF_EVENTS else "name that column"
                raise InputError(
                    f"{_spell(name)} is for events, not for --statistics; leave it out, or {instead} in the query "
                    "that makes the statistics"
                )
        return source

    def read(
        self, learner: str, progress: Progress, cluster: Cluster | None = None, held: ExitStack | None = None
    ) -> LearningData:
        """Read what this learner needs; raise if an option is of another kind of input.

        With a cluster, a table is read and held there until `held` is closed; an imported log is read here.
        """
        if self.statistics is not None:
            return self._read_statistics(self.statistics, learner, progress)
        assert self.events is not None
        if self.item is not None and self.columns is None:
            columns = Columns(user=self.user, item=self.item, reward=self.reward)
            return self._read_history(open_any(self.events, columns, with_offers=False, progress=progress), progress)
        if self.columns is not None and self.features is not None:
            raise InputError(
                f"--features {self.features} is for an imported log, --columns for an event table: leave out "
                "--features, or import the table (lcb import) and leave out --columns"
            )
        table = None if self.features is not None else find_event_table(self.events, self.columns)
        if table is not None and cluster is not None and held is not None:
            return self._read_on(table, cluster, held, progress)
        if table is not None:
            return self._read_table(table, learner, progress)
        self._refuse(_NAMES_IN_TABLES, "an event table")
        return self._read_history(self.events, progress)

    def _read_statistics(self, statistics: Path, learner: str, progress: Progress) -> LearningData:
        if get_learner(learner).needs_rows:
            raise InputError(f"--learner {learner} learns from rows, which statistics do not have; give EVENTS")
        columns = parse_names(self.columns)
        stats = read_user_statistics(statistics, features=columns, dtype=self._dtype, progress=progress)
        return LearningData(statistics.name, EventLog(stats))

    def _read_history(self, opened: Path | Log, progress: Progress) -> LearningData:
        """Read an imported log, or a table whose items are features."""
        assert self.events is not None
        self._refuse(_OF_TABLES, "an event table")
        log = opened if isinstance(opened, Log) else open_log(opened, progress=progress, with_offers=False)
        choice, features = None, self.features
        if features is None and self.with_effects and needs_factors(log, self.reading, self.like):
            features = "factors"
        if is_learned(features):
            assert features is not None
            history, choice = read_factor_history(
                log,
                features,
                reading=self.reading,
                like=self.like,
                n_users=self.users,
                n_classes=self.classes,
                chooses=self.chooses,
                seed=self.seed,
                progress=progress,
            )
        else:
            history = read_history(
                log, features, reading=self.reading, like=self.like, n_users=self.users, progress=progress
            )
        return LearningData(
            self.events.name,
            history.log,
            history.read,
            history.feature_map,
            history=history,
            sample=history.sample,
            choice=choice,
        )

    def _read_table(self, table: Path, learner: str, progress: Progress) -> LearningData:
        assert self.events is not None
        self._refuse(_OF_LOGS, "an imported log")
        feature_map = None if self.columns or self.user_columns else read_feature_map(table)
        if (self.users is not None or self.on_disk is not None) and self.user not in (None, "user"):
            raise InputError(f"--users and --on-disk read a column called user, not {self.user}; rename the column")
        sample = None if self.users is None else draw_users(table, self.users, progress)
        read = partial(
            read_log,
            table,
            sample=sample,
            folder=self.on_disk,
            columns=parse_names(self.columns),
            user_columns=parse_names(self.user_columns),
            reward_range=parse_range(self.reward_range),
            user=self.user or "user",
            reward=self.reward or "reward",
            dtype=self._dtype,
            progress=progress,
        )
        log = read(keep_rows=get_learner(learner).needs_rows)
        if feature_map is not None and feature_map.n_features != log.stats.n_features:
            feature_map = None  # x was crossed with features of the user
        return LearningData(self.events.name, log, read, feature_map, table=table, sample=sample)

    def check_on(self, learner: str, threads: int | None) -> None:
        """Refuse at once what a cluster cannot do."""
        if self.on is None:
            return
        if threads is not None:
            raise InputError("--threads is for this machine; the nodes of a cluster use their own CPUs: leave it out")
        if self.on_disk is not None:
            raise InputError(
                "--on-disk is for one machine; a cluster keeps statistics in memory: leave out one of the two"
            )
        if reason := get_learner(learner).only_here:
            raise InputError(f"--learner {learner}: {reason}; leave out --on, or use --learner em, personal or blocked")

    def _read_on(self, table: Path, cluster: Cluster, held: ExitStack, progress: Progress) -> LearningData:
        assert self.events is not None
        self._refuse(_OF_LOGS, "an imported log")
        feature_map = None if self.columns or self.user_columns else read_feature_map(table)
        if self.users is not None and self.user not in (None, "user"):
            raise InputError(f"--users reads a column called user, not {self.user}; rename the column")
        sample = None if self.users is None else draw_users(table, self.users, progress)
        users = held.enter_context(
            cluster.read_log(
                table,
                columns=parse_names(self.columns),
                user_columns=parse_names(self.user_columns),
                reward_range=parse_range(self.reward_range),
                user=self.user or "user",
                reward=self.reward or "reward",
                sample=sample,
                dtype=self._dtype,
                progress=progress,
            )
        )
        if feature_map is not None and feature_map.n_features != users.n_features:
            feature_map = None  # x was crossed with features of the user
        return LearningData(self.events.name, users, users.read_few, feature_map, table=table, sample=sample)

    @property
    def _dtype(self) -> type[np.floating]:
        return np.float32 if self.float32 else np.float64

    def _refuse(self, names: tuple[str, ...], other: str) -> None:
        """Raise if an option of the other kind of input was given."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value is not False:
                raise InputError(
                    f"{_spell(name)} is for {other}; an imported log has --features, --reading and --like, "
                    "an event table --columns"
                )


def find_event_table(events: Path, columns: str | None) -> Path | None:
    """Return the event table at a path, None if it is an imported log; refuse a data set that is not imported yet."""
    known = find_dataset(events) if events.is_dir() and not LogFiles.at(events).events.is_file() else None
    if known is not None:
        raise InputError(f"{events} is {known.title}; import it first: lcb import {events} --out log")
    return find_table(events, named=columns is not None)


def _spell(name: str) -> str:
    return f"--{name.replace('_', '-')}"
