"""Processes of one test run compile each function once: others wait for it and then read it from Numba's cache.

On an empty cache the processes of pytest-xdist would all compile the same functions at the same time, and of two that
write the index of a function together, one loses what it has compiled.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

_compile = Dispatcher.compile
_held: set[str] = set()  # changed only by the thread that has Numba's own lock


def compile_once() -> None:
    """Let functions of this process wait while another process compiles functions of the same file."""
    Dispatcher.compile = _compile_alone


def _compile_alone(self: Any, signature: Any) -> Any:
    """Compile, or read what another process has compiled meanwhile: Numba looks into its cache first."""
    if self._cache.cache_path is None:
        return _compile(self, signature)
    with global_compiler_lock, _alone(self.py_func.__code__.co_filename):
        return _compile(self, signature)


@contextmanager
def _alone(source: str) -> Iterator[None]:
    """Hold the lock of a source file, for functions that it calls in the same file, too.

    Files import each other one way, so no two processes wait for each other.
    """
    if source in _held:
        yield
        return
    with open(source, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _held.add(source)
        try:
            yield
        finally:
            _held.remove(source)
            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open, too
