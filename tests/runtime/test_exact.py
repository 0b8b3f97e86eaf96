"""Compiled functions give a decision the same bits in every process, whether it compiles them or loads them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lcb.bandits
import lcb.learners.mixture

WEIGH = """
import hashlib
import numpy as np
from lcb import Decision
from lcb.bandits.over_classes.mixture import MixtureBandit
from lcb.models.first_models import first_models

rng, bandit, found = np.random.default_rng(0), MixtureBandit(4), hashlib.sha256()
for _ in range(40):
    state = bandit.start()
    for _ in range(8):
        state = bandit.update(state, Decision(0, 1.0, rng.integers(0, 2, 4).astype(float)), float(rng.integers(2)))
        found.update(bandit.over(first_models(state, 4)).weights(state).tobytes())
print(found.hexdigest())
"""


def test_a_process_that_compiles_weighs_classes_as_one_that_loads_what_was_compiled(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run([sys.executable, "-c", WEIGH], env=env, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert any(tmp_path.rglob("*.nbc")), "nothing was compiled"
    assert found[0] == found[1]


@pytest.mark.parametrize("room", [lcb.bandits, lcb.learners.mixture])
def test_nothing_that_decisions_are_computed_with_may_reorder_sums(room: object) -> None:
    names = [one.name for one in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]  # type: ignore[attr-defined]
    modules = [importlib.import_module(name) for name in names if name.endswith("_numba")]
    compiled = [one for module in modules for one in vars(module).values() if hasattr(one, "targetoptions")]
    assert len(compiled) > 5
    assert [one.py_func.__qualname__ for one in compiled if one.targetoptions.get("fastmath")] == []
