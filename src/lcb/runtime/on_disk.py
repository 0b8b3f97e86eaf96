"""Arrays in files, for statistics that are larger than memory.

The operating system keeps in memory what fits and writes out the rest.  A file has no name and is gone with its array,
also when the process is killed; its space is reserved at once, because a full disk would otherwise end the process.
"""

from __future__ import annotations

import math
import os
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lcb.errors import InputError


def allocate(shape: tuple[int, ...], dtype: DTypeLike, folder: str | os.PathLike[str] | None) -> NDArray[Any]:
    """Return zeros, in memory or in a file of `folder`.

    >>> allocate((2, 3), np.float32, ".").sum()
    np.float32(0.0)
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if folder is None or size == 0:
        return np.zeros(shape, dtype)
    try:
        with TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
    except OSError as error:
        raise InputError(
            f"{os.fspath(folder)} cannot hold {size / 1e9:.3g} GB of statistics ({error.strerror}); make room, name "
            "another folder, or learn from fewer users (--users)"
        ) from None
