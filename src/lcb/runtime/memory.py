"""Refuses work that would not fit into memory, before it starts, and gives memory back after work."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from lcb.errors import InputError

SHARE = 0.9  # of the memory that is free
_SMALL = 1e6
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def need_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise InputError if `what` needs more than is available; `remedy` says what to do.

    >>> need_memory(1e18, "statistics of 9 users", "ask for fewer features")
    Traceback (most recent call last):
    lcb.errors.InputError: statistics of 9 users need about 1,000,000,000 GB of memory, ...; ask for fewer features
    """
    if n_bytes < _SMALL:  # not worth a look at what is free
        return
    free = read_free_memory()
    if n_bytes > SHARE * free:
        wanted = f"{n_bytes / 1e9:,.0f} GB" if n_bytes >= 1e10 else f"{n_bytes / 1e9:,.1f} GB"
        raise InputError(f"{what} need about {wanted} of memory, {free / 1e9:,.1f} GB are free; {remedy}")


def read_free_memory() -> float:
    """Return the bytes that can be used: what the system has free, at most what a container may use."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        try:
            free = min(free, float(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return free


def give_back_memory() -> None:
    """Return free memory to the system, where the C library can do so: it keeps what a thread has freed."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
