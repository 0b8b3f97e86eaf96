"""A Ray cluster that holds users: one process on each machine, with threads inside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from lcb.cluster.calls import MOST_RESTARTS, Calls, Lost
from lcb.cluster.items import FromItems, ItemShards
from lcb.cluster.runs import run_task
from lcb.cluster.shards import Shards
from lcb.cluster.sources import FromFiles, FromLog
from lcb.errors import ClusterError
from lcb.event_log import EventLog
from lcb.learners.effects.rows import ItemRows
from lcb.progress import Progress, silent
from lcb.storage.tables.event_rows import EventColumns
from lcb.storage.tables.parts import list_parts
from lcb.storage.tables.sample import UserSample
from lcb.version import __version__
from lcb.words import format_count

R = TypeVar("R")


class Cluster(Calls):
    """Machines that can hold users; `connect` makes it."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a local cluster ends with it."""
        self.ray.shutdown()

    def report(self, progress: Progress) -> Progress:
        """Return a progress that names the number of machines at work."""

        def told(what: str, done: int, total: int | None) -> None:
            progress(f"{what}, {format_count(self.n_nodes, 'node')} at work", done, total)

        return told if progress is not silent else silent

    def run(self, work: Callable[[Any], R], tasks: Sequence[Any], done: Callable[[int], None] | None = None) -> list[R]:
        """Run `work` on every task on the machines; return the results in the order of the tasks.

        This is for `lcb.runtime.parallel.spread`.  The tasks are sent to a machine once, together.
        """
        self.n_nodes = len(self.list_nodes())
        given = self.ray.put((work, tasks))
        run = self.ray.remote(run_task).options(num_cpus=1, max_retries=MOST_RESTARTS)
        found = self.wait(
            [run.remote([given], i, __version__) for i in range(len(tasks))], "a run", done, deadline=False
        )
        if lost := [one for one in found if isinstance(one, Lost)]:
            raise ClusterError(f"a run was lost {MOST_RESTARTS} times: {lost[0].reason}; use fewer or larger nodes")
        return found

    @contextmanager
    def hold(self, log: EventLog, progress: Progress = silent) -> Iterator[Shards]:
        """Send a log to the machines, for the time of the block."""
        users = Shards(self, FromLog(log))
        try:
            users.fill(progress)
            yield users
        finally:
            users.close()

    @contextmanager
    def hold_items(self, rows: ItemRows, progress: Progress = silent) -> Iterator[ItemShards]:
        """Send the rewards of items to the machines, for the time of the block."""
        source = FromItems(rows=rows)
        users = Shards(self, source)
        try:
            users.fill(progress)
            yield ItemShards(users, source)
        finally:
            users.close()

    @contextmanager
    def read_log(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] = (),
        user_columns: Sequence[str] = (),
        reward_range: tuple[float, float] | None = None,
        user: str = "user",
        reward: str = "reward",
        sample: UserSample | None = None,
        dtype: DTypeLike = np.float64,
        progress: Progress = silent,
    ) -> Iterator[Shards]:
        """Read an event table or its parts on the machines, for the time of the block; see `lcb.read_log`.

        Every machine must find the files under this path.
        """
        asked = EventColumns(tuple(columns), tuple(user_columns), reward_range, user, reward)
        files = [os.path.abspath(part) for part in list_parts(path)]
        users = Shards(self, FromFiles(files, asked, sample, np.dtype(dtype).name))
        try:
            users.fill(progress)
            yield users
        finally:
            users.close()
