"""Work spread over the cores so that the numbers do not depend on how many there are.

Threads share arrays: `threads` hands fixed spans of users to a pool while BLAS is held to one thread
(its own threads would fight with ours: an EM step of 40,000 users with 40 features takes 88 ms then, 81 ms pinned).
Processes share nothing: `processes` runs independent tasks and returns their results in order.  Ctrl-C is this
process's to hear: workers are deaf to it, and are ended.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from lcb.errors import InputError

T = TypeVar("T")
R = TypeVar("R")


def n_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def threads(n_threads: int | None) -> Iterator[Callable[[Callable[[T], R], Sequence[T]], list[R]]]:
    """Yield a `map` over `n_threads` threads (all cores when None), with BLAS held to one thread."""
    n_threads = _at_least_one("n_threads", n_threads)
    with _blas().limit(limits=1, user_api="blas"):
        if n_threads == 1:
            yield lambda work, items: [work(item) for item in items]
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield (
                lambda work, items: list(pool.map(work, items)) if len(items) > 1 else [work(item) for item in items]
            )


def processes(
    work: Callable[[T], R],
    tasks: Sequence[T],
    n_workers: int | None = None,
    done: Callable[[int], None] | None = None,
) -> list[R]:
    """Run `work` on every task in its own processes; results come in the order of the tasks.

    `done(n)` is called as the n-th result arrives.  One worker, or one task, stays in this process.
    """
    n_workers = min(_at_least_one("n_workers", n_workers), len(tasks))
    if n_workers <= 1:
        results = []
        for task in tasks:
            results.append(work(task))
            if done:
                done(len(results))
        return results
    pool = None
    try:
        with _ctrl_c_held():
            pool = ProcessPoolExecutor(n_workers, mp_context=get_context("spawn"), initializer=_end_with_parent)
            with _deaf_children():
                futures = [pool.submit(work, task) for task in tasks]
        for n, future in enumerate(as_completed(futures), start=1):
            future.result()
            if done:
                done(n)
        return [future.result() for future in futures]
    except BaseException:
        for process in list(((pool and pool._processes) or {}).values()):
            process.terminate()
        raise
    finally:
        if pool:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _at_least_one(name: str, n: int | None) -> int:
    if n is not None and n < 1:
        raise InputError(f"{name}={n}; it must be at least 1")
    return n_cores() if n is None else n


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Hear Ctrl-C at the end of the block only: a worker half started could neither be ended nor waited for."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C never comes here
        return
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started in the block are born with Ctrl-C blocked, and say nothing of it even while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
