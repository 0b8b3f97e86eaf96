"""`--on`: the cluster that a command runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

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
