"""Numba's `njit`, for any place the package may be installed in.

Compiled code is kept on disk beside the source or in the user's cache folder, as Numba does.  Where neither can be
written it goes to a temporary folder that is the user's alone (Numba loads what it finds there as code); without that,
too, functions are compiled in every process anew, and a warning says so.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numba

_said = False


def njit(**settings: Any) -> Callable[[Any], Any]:
    """`numba.njit(**settings)`, kept on disk wherever a place is found for it."""

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(**settings)(function)
        except RuntimeError:  # no place to keep it
            pass
        try:
            return _kept_in(_private_folder(), settings, function)
        except (OSError, RuntimeError):
            _say_once()
            return numba.njit(**settings | {"cache": False})(function)

    return compiled


def _kept_in(folder: str, settings: dict[str, Any], function: Any) -> Any:
    """Numba asks for the folder when a function is decorated; other packages' functions keep theirs."""
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


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(
            "compiled code cannot be kept, so every start compiles anew; set NUMBA_CACHE_DIR to a folder of yours",
            stacklevel=4,
        )
