"""One run of an evaluation, in a process of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from socket import gethostname
from typing import Any

from lcb.cluster.heads import describe_version
from lcb.errors import ClusterError
from lcb.runtime import parallel
from lcb.version import __version__

_given: dict[str, tuple[Any, Sequence[Any]]] = {}  # the work and all tasks, by the object that holds them


def run_task(given: Sequence[Any], i: int, version: str) -> Any:
    """Run one task; what all tasks share is fetched once by a process.  Refuse another version of lcb."""
    import ray

    if version != __version__:
        raise ClusterError(describe_version(gethostname(), __version__, version))
    (reference,) = given
    name = reference.hex()
    if name not in _given:
        _given.clear()
        _given[name] = ray.get(reference)
    work, tasks = _given[name]
    with parallel.threads(1):  # one thread of BLAS
        return work(tasks[i])
