"""Services forked off one process that has imported them: a start without the second of imports.

Each is a process of its own with its own signals, files and limits, as if `server.py` had been run.  That `lcb serve`
starts from nothing is tested in `tests/cli/test_serve.py` and in `tests/test_wheel.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

_IMPORTED = ["support.server", "support.preloaded"]


def start_process(arguments: list[str], output: Path, within: tuple[str, ...] = ()) -> Process:
    """Start `server.py` with these arguments, by the command `within` if there is one."""
    output.touch()
    if not within:
        return Forked(arguments, output)
    command = [*within, sys.executable, str(Path(__file__).with_name("server.py")), *arguments]
    with output.open("w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True, env=_environment())


def _environment() -> dict[str, str]:
    """The environment of this process, with the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Forked:
    """A forked service, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._process = _context().Process(target=_run, args=(arguments, str(output), _environment()))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("the service", seconds or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[str]


@cache
def _context() -> ForkServerContext:
    """Start the process that others are forked off."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", _environment()["PYTHONPATH"])  # it starts without our sys.path
        forkserver.ensure_running()
    return context


def _run(arguments: list[str], output: str, environment: dict[str, str]) -> None:
    """Be the service, in the new process."""
    from support.server import main

    file = os.open(output, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    main(arguments)
