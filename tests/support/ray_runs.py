"""Runs a file of cases on a real Ray cluster, in a network of its own where the machine allows it, and with a token."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support.namespaces import in_own_network

# Ray starts as many workers as there are cores before anybody has work for them, and reports on itself.
_NOTHING_ELSE = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_num_prestart_python_workers": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def run_cases(cases: Path, *, timeout: float) -> None:
    """Run the cases in a process of their own; fail with their output."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--durations=8", str(cases)]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    path = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"  # for the work that the cases send
    with TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # its sockets need a short path
        env = os.environ | _NOTHING_ELSE | token | {"RAY_TMPDIR": folder, "PYTHONPATH": path}
        found = subprocess.run(in_own_network(command), env=env, capture_output=True, text=True, timeout=timeout)
    assert found.returncode == 0, found.stdout + found.stderr
