"""Runs the cases on a real Ray cluster, in a network of their own where the machine allows it, and with a token."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support.namespaces import in_own_network


def test_learning_on_a_ray_cluster():
    cases = Path(__file__).with_name("ray_cases.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--durations=5", str(cases)]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # its sockets need a short path
        path = f"{cases.parents[1]}:{os.environ.get('PYTHONPATH', '')}"  # for the work that the cases send
        env = os.environ | token | {"RAY_TMPDIR": folder, "PYTHONPATH": path}
        found = subprocess.run(in_own_network(command), env=env, capture_output=True, text=True, timeout=400)
    assert found.returncode == 0, found.stdout + found.stderr
