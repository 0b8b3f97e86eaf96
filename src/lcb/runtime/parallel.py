"""Threads and processes whose results do not depend on their number.

Threads share arrays: `threads` maps functions over fixed spans of users, with BLAS limited to one thread (its own
threads would compete: an EM step of 40,000 users with 40 features takes 88 ms with them, 81 ms without).  Processes
share nothing: `processes` runs independent tasks, each with one thread of BLAS, and returns their results in order.
Only this process handles Ctrl-C (SIGINT): its workers block the signal and are terminated.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from multiprocessing import Pipe, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from queue import Full, Queue
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from lcb.errors import InputError, WorkerLost

T = TypeVar("T")
R = TypeVar("R")
_ITEMS_AHEAD = 4
_END = object()
Run = Callable[[Callable[[Any], Any], Sequence[Any], Callable[[int], None] | None], list[Any]]
_elsewhere: ContextVar[Run | None] = ContextVar("elsewhere", default=None)
_BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def n_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    import_module("scipy.linalg.cython_blas")  # with which compiled functions multiply: what is loaded can be limited
    return ThreadpoolController()


@contextmanager
def threads(n_threads: int | None) -> Iterator[Callable[[Callable[[T], R], Sequence[T]], list[R]]]:
    """Yield a `map` over `n_threads` threads (None: all cores), with BLAS limited to one thread."""
    n_threads = _check_count("n_threads", n_threads)
    with _blas().limit(limits=1, user_api="blas"):
        if n_threads == 1:
            yield lambda work, items: [work(item) for item in items]
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield (
                lambda work, items: list(pool.map(work, items)) if len(items) > 1 else [work(item) for item in items]
            )


def read_ahead(sources: Sequence[Callable[[], Iterator[T]]], n_threads: int | None = None) -> Iterator[T]:
    """Yield the items of all sources, one source after the other, while threads read the next ones.

    Each thread reads at most a few items ahead, so memory does not grow.

    >>> list(read_ahead([lambda: iter("ab"), lambda: iter("c")], n_threads=2))
    ['a', 'b', 'c']
    """
    n_threads = min(_check_count("n_threads", n_threads), len(sources))
    if n_threads <= 1:
        for source in sources:
            yield from source()
        return
    stop = threading.Event()
    queues: list[Queue[Any]] = [Queue(_ITEMS_AHEAD) for _ in sources]
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for source, queue in zip(sources, queues, strict=True):
                pool.submit(_fill, queue, source, stop)  # in order, so the first sources are read first
            for queue in queues:
                while (item := queue.get()) is not _END:
                    if isinstance(item, _Failure):
                        raise item.error
                    yield item
        finally:
            stop.set()


def _fill(queue: Queue[Any], source: Callable[[], Iterator[Any]], stop: threading.Event) -> None:
    """Put the items of a source into a queue, then its end or its error, until told to stop."""

    def put(item: Any) -> None:
        while not stop.is_set():
            try:
                return queue.put(item, timeout=0.1)
            except Full:
                continue

    try:
        if stop.is_set():
            return
        for item in source():
            put(item)
            if stop.is_set():
                return
    except BaseException as error:  # noqa: BLE001  # raised again by the reader
        put(_Failure(error))
    put(_END)


@dataclass(frozen=True)
class _Failure:
    error: BaseException


def processes(
    work: Callable[[T], R], tasks: Sequence[T], n_workers: int | None = None, done: Callable[[int], None] | None = None
) -> list[R]:
    """Run `work` on every task in worker processes; return the results in the order of the tasks.

    `done(n)` is called when the n-th result arrives.  With one worker or one task, no process is started.  The tasks
    are written to one private file that every worker reads, so what they share (a log) is written once.  (Python would
    send them through the pipe by which a worker starts, and wait for ever if it dies before it has read them.)  Inside
    `spread` they run elsewhere.
    """
    if (elsewhere := _elsewhere.get()) is not None:
        return elsewhere(work, tasks, done)
    n_workers = min(_check_count("n_workers", n_workers), len(tasks))
    if n_workers <= 1:
        results = []
        for task in tasks:
            results.append(work(task))
            if done:
                done(len(results))
        return results
    with TemporaryDirectory(prefix="lcb-") as folder:
        given = os.path.join(folder, "tasks")
        with open(given, "wb") as file:
            ForkingPickler(file).dump((work, tasks))
        return _run_in_workers(given, len(tasks), n_workers, done)


@contextmanager
def spread(run: Run | None) -> Iterator[None]:
    """Have `processes` call `run(work, tasks, done)` in the block: a cluster's, say; None changes nothing."""
    token = _elsewhere.set(run)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def _run_in_workers(given: str, n_tasks: int, n_workers: int, done: Callable[[int], None] | None) -> list[Any]:
    """Run the tasks of the file `given` in processes of its own, each asked for one task after the other.

    One thread starts, asks and hears them, so a worker may die at any moment: the pools of the standard library have a
    thread that closes what a next worker is just being started with.
    """
    workers: dict[Connection, BaseProcess] = {}
    results: dict[int, Any] = {}
    waiting = iter(range(n_tasks))
    try:
        with _hold_ctrl_c():
            resource_tracker.ensure_running()  # its start would end the block of signals
            with _block_ctrl_c_in_children(), _one_blas_thread_in_children():
                for _ in range(n_workers):
                    _start_worker(given, workers)
        for connection in workers:
            _send(connection, next(waiting), n_workers)
        while len(results) < n_tasks:
            for connection in cast(list[Connection], wait(list(workers))):
                i, result = _receive(connection, n_workers)
                results[i] = result
                if done:
                    done(len(results))
                if (task := next(waiting, None)) is not None:
                    _send(connection, task, n_workers)
    except BaseException:
        for process in workers.values():
            process.terminate()
        raise
    finally:
        for connection, process in workers.items():
            connection.close()  # at which a worker ends
            process.join()
    return [results[i] for i in range(n_tasks)]


def _start_worker(given: str, workers: dict[Connection, BaseProcess]) -> None:
    here, there = Pipe()
    with there:
        process = get_context("spawn").Process(target=_work, args=(given, there))
        try:
            process.start()
        except BaseException:
            here.close()
            raise
    workers[here] = process


def _send(connection: Connection, task: int, n_workers: int) -> None:
    try:
        connection.send(task)
    except OSError:
        raise _say_lost(n_workers) from None


def _receive(connection: Connection, n_workers: int) -> tuple[int, Any]:
    """Return the number of a task and its result, or raise its error with the lines where it was raised."""
    try:
        sent = connection.recv_bytes()
    except (EOFError, OSError):
        raise _say_lost(n_workers) from None
    i, result, error, lines = ForkingPickler.loads(sent)
    if error is not None:
        raise error from _RaisedThere(lines)
    return i, result


def _say_lost(n_workers: int) -> WorkerLost:
    return WorkerLost(
        f"one of {n_workers} worker processes ended before its work was done, most often for lack of memory; "
        "use fewer workers, or less data"
    )


class _RaisedThere(Exception):
    """The lines in which a worker raised an error, shown above those of this process."""

    def __str__(self) -> str:
        return f"in a worker process\n{self.args[0]}"


def _work(given: str, connection: Connection) -> None:
    """Be a worker: do the tasks whose numbers come, until no more can come."""
    _end_with_parent()
    with open(given, "rb") as file:
        work, tasks = ForkingPickler.loads(file.read())
    while True:
        try:
            i = connection.recv()
        except EOFError:
            return
        try:
            answer = ForkingPickler.dumps((i, work(tasks[i]), None, ""))
        except BaseException as error:  # noqa: BLE001  # raised again by the parent
            answer = ForkingPickler.dumps((i, None, error, traceback.format_exc()))
        connection.send_bytes(answer)


def _end_with_parent() -> None:
    """Exit when the parent process has ended, instead of waiting for work for ever."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _check_count(name: str, n: int | None) -> int:
    if n is not None and n < 1:
        raise InputError(f"{name}={n}; it must be at least 1")
    return n_cores() if n is None else n


@contextmanager
def _hold_ctrl_c() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: a half-started worker can be neither terminated nor joined."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread only
        return
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _one_blas_thread_in_children() -> Iterator[None]:
    """Limit BLAS to one thread in processes started in the block; they read the variables when they load it."""
    before = {name: os.environ.get(name) for name in _BLAS_THREADS}
    os.environ.update(dict.fromkeys(_BLAS_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _block_ctrl_c_in_children() -> Iterator[None]:
    """Block SIGINT in processes started in the block, from their start, also while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
