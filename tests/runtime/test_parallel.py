from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import resource_tracker, spawn
from pathlib import Path

import pytest

from lcb.errors import InputError, WorkerLost
from lcb.runtime import parallel


def is_deaf_to_ctrl_c(task: int) -> bool:
    os.kill(os.getpid(), signal.SIGINT)
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_do_not_hear_ctrl_c():
    code = (
        "from lcb.runtime import parallel; from test_parallel import is_deaf_to_ctrl_c\n"
        "if __name__ == '__main__': print(parallel.processes(is_deaf_to_ctrl_c, [0, 1], 2))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[True, True]\n", "")


def count_blas_threads(task: int) -> int:
    import numpy as np
    from threadpoolctl import threadpool_info

    np.eye(2) @ np.eye(2)
    return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")


def test_workers_use_one_thread_of_blas_each_and_the_environment_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    assert parallel.processes(count_blas_threads, [1, 2], 2) == [1, 1]
    assert dict(os.environ) == before


def test_this_process_still_hears_ctrl_c_when_workers_have_started():
    handler = signal.getsignal(signal.SIGINT)
    assert parallel.processes(abs, [-1, -2], 2) == [1, 2]
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def at_each_start(monkeypatch, do):
    """Call `do` when a worker is about to be started."""

    def prepare(name):
        do()
        return prepare_as_ever(name)

    prepare_as_ever = spawn.get_preparation_data
    monkeypatch.setattr(spawn, "get_preparation_data", prepare)


def test_ctrl_c_while_workers_start_is_heard_when_they_have(monkeypatch):
    at_each_start(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        parallel.processes(abs, [-1, -2], 2)
    assert not multiprocessing.active_children()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_than_one_thread_or_worker_is_refused(n):
    with pytest.raises(InputError, match=f"n_threads={n}; it must be at least 1"), parallel.threads(n):
        pass
    with pytest.raises(InputError, match=f"n_workers={n}; it must be at least 1"):
        parallel.processes(abs, [1], n)


def tell_and_wait(file: str) -> None:
    with open(file, "a") as told:
        told.write(f"{os.getpid()}\n")
    time.sleep(600)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    file = tmp_path / "workers"
    code = (
        "from lcb.runtime import parallel; from test_parallel import tell_and_wait\n"
        f"if __name__ == '__main__': parallel.processes(tell_and_wait, [{str(file)!r}] * 2, 2)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (file.exists() and len(file.read_text().split()) == 2):
        assert time.monotonic() < until
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    workers = [int(pid) for pid in file.read_text().split()]
    while any(map(_is_alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    """A zombie is not: nobody has waited for it yet, that is all."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Log:
    """Counts how often it is sent."""

    n_sent = 0

    def __getstate__(self) -> dict[str, int]:
        type(self).n_sent += 1
        return {}


def give_number(task: tuple[Log, int]) -> int:
    return task[1]


def test_what_tasks_share_is_sent_once_and_not_with_every_task():
    log, Log.n_sent = Log(), 0
    assert parallel.processes(give_number, [(log, i) for i in range(12)], 2) == list(range(12))
    assert Log.n_sent == 1


def die(task: bytes) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_until_workers_are_dead() -> None:
    for worker in multiprocessing.active_children():
        worker.join()
    for thread in threading.enumerate():  # one that has heard of it has time to close what workers share
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(1)


@pytest.mark.parametrize("when", ["at the start", "while the next one starts", "at work"])
def test_a_worker_that_dies_ends_the_work_with_an_error(when, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    if when != "at work":  # before it has read anything
        resource_tracker.ensure_running()
        monkeypatch.setattr(spawn, "get_executable", lambda: os.fsencode("/bin/false"))
    if when == "while the next one starts":
        at_each_start(monkeypatch, wait_until_workers_are_dead)
    tasks = [bytes(1_000_000), b"", b""]  # more than a pipe holds
    signal.alarm(60)  # ends a test that waits for ever
    try:
        with pytest.raises(WorkerLost, match="one of 2 worker processes ended before its work was done"):
            parallel.processes(die, tasks, 2)
    finally:
        signal.alarm(0)
    assert not list(tmp_path.iterdir())


def test_tasks_run_elsewhere_inside_spread():
    def run(work, tasks, done):
        return [work(task) + 100 for task in tasks]

    with parallel.spread(run):
        assert parallel.processes(abs, [-1, -2], 1) == [101, 102]
    assert parallel.processes(abs, [-1, -2], 1) == [1, 2]
