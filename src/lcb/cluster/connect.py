"""Connects to a Ray cluster; Ray itself waits for minutes where none answers, so the port is probed first."""

from __future__ import annotations

import os
from typing import Any

from lcb.cluster.cluster import Cluster
from lcb.cluster.heads import Head, explain, find_head
from lcb.errors import ClusterError, InputError, need_extra


def connect(address: str = "ray", *, step_seconds: float = 600.0) -> Cluster:
    """Connect to a Ray cluster; use the result in a `with` block, and as `on=` of `lcb.fit`.

    `address` is HOST:PORT of the head, "ray" for the cluster of this machine (or of RAY_ADDRESS), or "local" for one
    that is started on this machine and ends with the block.  A step without any answer for `step_seconds` is given up.
    """
    if not step_seconds > 0:
        raise InputError(f"step_seconds={step_seconds}; it must be a positive number")
    # Without these, Ray ends this process when the cluster goes away, repeats itself, and sends usage statistics.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # of a local cluster: else its processes give way to all others
    with need_extra("ray"):
        import ray
    if ray.is_initialized():
        raise ClusterError("this process is connected to a Ray cluster already; end that connection: ray.shutdown()")
    head = None if address == "local" else find_head(address)
    if head is not None:  # it answers, so what is not understood at once never will be; Ray tries for up to 14 minutes
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "2")
        os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "10")
    _start(ray, head)
    return Cluster(ray, head, step_seconds)


def _start(ray: Any, head: Head | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    try:
        if head is None:
            ray.init("local", include_dashboard=False, **quiet)
        else:
            ray.init(f"{head[0]}:{head[1]}", **quiet)
    except Exception as error:  # noqa: BLE001  # Ray raises plain ones, too
        raise explain(str(error), head) from None
