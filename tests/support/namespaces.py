"""Networks and mounts of their own for a process: nothing outside can reach what listens there, or sees the mount."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_LO_UP = """
import fcntl, os, socket, struct, sys
with socket.socket() as one:  # SIOCSIFFLAGS: lo is up and running
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))
os.execv(sys.argv[1], sys.argv[1:])
"""


def in_own_network(command: list[str]) -> list[str]:
    """Return the command that runs `command` with no network but its own loopback, where the machine allows that."""
    for flags in ("-n", "-rn"):
        prefix = ["unshare", flags]
        if shutil.which("unshare") and not subprocess.run([*prefix, "true"], capture_output=True).returncode:
            return [*prefix, sys.executable, "-c", _LO_UP, *command]
    return command


def with_mount(source: Path, place: Path, command: list[str]) -> list[str] | None:
    """Return the command that runs `command` where `source` is mounted on `place`; None where nobody may mount."""
    for flags in ("-m", "-rm"):
        prefix = ["unshare", flags, "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh"]
        prefix += [str(source), str(place)]
        if shutil.which("unshare") and not subprocess.run([*prefix, "true"], capture_output=True).returncode:
            return [*prefix, *command]
    return None
