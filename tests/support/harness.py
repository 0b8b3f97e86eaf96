"""What the drills share: a service in its own process, somebody who asks it, a world to learn from.

A drill is a function that raises AssertionError when what it watches does not hold.  Every drill runs twice: as it is,
and with the protection it watches taken out, when it must fail.  `LONG` is set by `scripts/drills`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from lcb.models import LatentModels
from lcb.storage.models.folder import save_models
from support.forked import Process, start_process

LONG = bool(os.environ.get("LCB_DRILLS_LONG"))


class Server:
    """A running service; `address` is where it listens."""

    def __init__(self, process: Process, address: str, output: Path) -> None:
        self.process, self.address, self.output = process, address, output

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = 60) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def client(self, **more: Any) -> httpx.Client:
        """Return a client; it reads no certificates, which would take 20 ms of CPU each time."""
        return httpx.Client(base_url=self.address, timeout=60, trust_env=False, verify=False, **more)


@contextmanager
def serving(folder: Path, *, without: tuple[str, ...] = (), **settings: Any) -> Iterator[Server]:
    """Run a service whose store is in `folder`; kill it at the end if it still runs."""
    server = start(folder, without=without, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def start(
    folder: Path, *, without: tuple[str, ...] = (), seconds: float = 120, within: tuple[str, ...] = (), **settings: Any
) -> Server:
    """Start a service, with the command `within` in front if it is given, and wait until it is ready."""
    limits = {"drain": 0.0, **settings.pop("limits", {})}  # nobody is sent elsewhere meanwhile
    given = {"store": str(folder / "lcb.db"), "port": 0, "limits": limits, **settings}
    output = folder / f"output-{time.monotonic_ns()}.txt"
    process = start_process([json.dumps(given), *without], output, within)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        said = [line for line in output.read_text().splitlines() if line.startswith("ready ")]
        if said:
            return Server(process, said[0].split()[1], output)
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with {process.returncode}:\n{output.read_text()}")
        time.sleep(0.01)
    process.kill()
    raise RuntimeError(f"the service was not ready in {seconds} s:\n{output.read_text()}")


def wait_until(happens: Callable[[], Any], words: str, seconds: float = 60) -> None:
    """Wait for what must happen, on a busy machine too; AssertionError with these words if it does not."""
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, words
        time.sleep(0.01)


def find_port() -> int:
    """Find a free port that stays free while a service is down: below those that the system gives to others."""
    chance = random.Random()
    while True:
        port = chance.randrange(10_000, 20_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def classes(seed: int = 0, n_classes: int = 5, n_features: int = 6) -> LatentModels:
    rng = np.random.default_rng(seed)
    beta = rng.normal(size=(n_classes, n_features)) / np.sqrt(n_features)
    return LatentModels(np.full(n_classes, 1 / n_classes), beta, np.full(n_classes, 0.1))


def models_folder(folder: Path, seed: int = 0) -> str:
    """Return a folder of models, created if it is missing."""
    place = folder / f"models-{seed}"
    if not place.exists():
        save_models(classes(seed), place)
    return str(place)


def arms(rng: np.random.Generator, n_arms: int = 20, n_features: int = 6) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "x": rng.normal(size=n_features).tolist()} for i in range(n_arms)]
