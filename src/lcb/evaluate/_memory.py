"""Peak memory of this process."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """Return the peak in MB; on Linux from /proc, because getrusage includes the peak of the parent."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def reset_peak() -> None:
    """Reset the peak to the present use; on systems without this, the peak stays that of the whole process."""
    if os.access(_CLEAR, os.W_OK):
        _CLEAR.write_text("5")
