"""`--on`: the cluster that a command runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.errors import InputError
from lcb.progress import Progress
from lcb.runtime.parallel import spread

if TYPE_CHECKING:
    from lcb.cluster.cluster import Cluster

OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Work on a Ray cluster: ray (this machine's), HOST:PORT of its head, or local (docs/cluster.md).",
        metavar="CLUSTER",
    ),
]


@contextmanager
def open_cluster(on: str | None) -> Iterator[Cluster | None]:
    """Connect for the time of the block; None without `--on`."""
    if on is None:
        yield None
        return
    from lcb.cluster.connect import connect

    with _keep_stdout_clean(), connect(on) as cluster:
        yield cluster


@contextmanager
def spread_runs(on: str | None, workers: int | None = None) -> Iterator[Callable[[Progress], Progress]]:
    """Have the runs of an evaluation carried out on a cluster; yield how its progress is reported."""
    if on is not None and workers is not None:
        raise InputError("--workers is for this machine; a cluster uses all its CPUs: leave out one of the two")
    with open_cluster(on) as cluster, spread(None if cluster is None else cluster.run):
        yield (lambda progress: progress) if cluster is None else cluster.report


@contextmanager
def _keep_stdout_clean() -> Iterator[None]:
    """Send to standard error what is written to standard output in the block: Ray reports its troubles there."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
