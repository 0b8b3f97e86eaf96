"""Numba's `njit` with a cache folder that works wherever the package is installed.

Numba caches compiled code beside the source or in the user's cache folder.  If neither is writable, the cache is a
temporary folder that only the user can write (Numba runs the code it finds there).  If that fails too, functions are
compiled in every process, with a warning.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numba

_warned = False
# Of functions that decisions are computed with.  No fast math: where sums may be reordered, LLVM orders them anew in
# every function that it puts a copy of them into, and which copy is called depends on what else the process has
# compiled or loaded.  In source order a decision has the same bits in every process.
EXACT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


def njit(**settings: Any) -> Callable[[Any], Any]:
    """`numba.njit(**settings)`, cached in the first folder that can be written."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(**settings)(function)
        except RuntimeError:  # Numba found no folder for its cache
            return _compile_elsewhere(settings, function)

    return decorate


def _compile_elsewhere(settings: dict[str, Any], function: Any) -> Any:
    try:
        return _compile_into(_private_folder(), settings, function)
    except (OSError, RuntimeError):
        _warn_once()
        return numba.njit(**settings | {"cache": False})(function)


def _compile_into(folder: str, settings: dict[str, Any], function: Any) -> Any:
    """Set the cache folder for this function only: Numba reads the setting when a function is decorated."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        return numba.njit(**settings)(function)
    finally:
        numba.config.CACHE_DIR = before


def _private_folder() -> str:
    folder = os.path.join(tempfile.gettempdir(), f"lcb-compiled-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to others")
    return folder


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "no folder for compiled code is writable, so every start compiles again; set NUMBA_CACHE_DIR", stacklevel=4
        )
