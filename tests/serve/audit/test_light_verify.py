"""A verification does not load what only an archive, a mixture or a running service needs: it would take longest."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numba", "pyarrow", "structlog")
SCRIPT = f"""
import sys
import lcb.cli.commands.service.log
import lcb.serve.audit.verify
import lcb.serve.retain.folder
print([name for name in {HEAVY!r} if name in sys.modules])
"""


def test_heavy_packages_are_not_loaded() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
