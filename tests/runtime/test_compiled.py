"""Compiled functions work wherever they are installed, kept on disk where there is a place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from lcb.runtime import compiled

PACKAGE = Path(compiled.__file__).parents[1]
ACCUMULATE = """
import numpy as np
from lcb._stats_numba import accumulate
sums = np.zeros((1, 4))
accumulate(sums, np.array([0]), np.array([[2.0]]), np.array([3.0]))
assert sums.tolist() == [[4.0, 6.0, 9.0, 1.0]], sums
"""


def run_without_a_home(tmp_path: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of the package that cannot write beside itself, with a file in place of the home folder."""
    copy = tmp_path / "site" / "lcb"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "cli", "charts"))
    (copy / "__pycache__").touch()  # a file where numba wants a folder: root is refused, too
    home = tmp_path / "home"
    home.touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(copy.parent)}
    return subprocess.run([sys.executable, "-c", ACCUMULATE], env=environment, capture_output=True, text=True)


def test_without_a_home_compiled_code_is_kept_in_a_private_temporary_folder(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run_without_a_home(tmp_path, temporary)
    assert (done.returncode, done.stderr) == (0, "")
    folder = temporary / f"lcb-compiled-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.rglob("*.nbc"))


def test_a_temporary_folder_that_others_may_write_is_not_trusted(tmp_path):
    folder = tmp_path / "temporary" / f"lcb-compiled-{os.getuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    done = run_without_a_home(tmp_path, folder.parent)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
    assert list(folder.iterdir()) == []


def test_with_no_place_at_all_functions_compile_and_it_is_said_once(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    monkeypatch.setattr(compiled, "_warned", False)
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR") as said:
        functions = [compiled.njit(cache=True, nogil=True)(add) for add in (lambda a, b: a + b, lambda a, b: a - b)]
    assert len(said) == 1
    assert [function(2, 1) for function in functions] == [3, 1]


def test_the_fallback_is_for_our_own_functions_only():
    before = numba.config.CACHE_DIR
    compiled.njit(cache=True)(lambda a: a)
    assert before == numba.config.CACHE_DIR
