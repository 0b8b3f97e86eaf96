from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from conftest import rows_of
from lcb import progress
from lcb.cli.main import main
from lcb.evaluate.worlds.paper import paper_classes


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch):
    for name in os.environ:
        if name.startswith("LCB_"):
            monkeypatch.delenv(name)


@pytest.fixture
def lcb(monkeypatch, capsys, tmp_path):
    """Run a command line in an empty folder; on a slow machine, too, no progress is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "_PLAIN_EVERY", math.inf)

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["lcb", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Outcome(left.value.code or 0, out, err)

    return run


@pytest.fixture
def events(tmp_path):
    """A log of 200 users of the paper's classes, as JSON lines."""
    user, x, reward, _ = rows_of(paper_classes(), 200, 20, seed=0)
    path = tmp_path / "events.jsonl"
    rows = zip(user.tolist(), x.tolist(), reward.tolist(), strict=True)
    path.write_text("".join(json.dumps({"user": u, "x": row, "reward": r}) + "\n" for u, row, r in rows))
    return path


@pytest.fixture
def clicks(tmp_path):
    """A small log as CSV, with features of the user."""
    rng = np.random.default_rng(0)
    path = tmp_path / "clicks.csv"
    lines = ["user,reward,sport,arts,age"]
    for u in range(30):
        for _ in range(6):
            sport, arts = rng.random(2)
            lines.append(f"u{u},{int(rng.random() < (sport if u % 2 else arts))},{sport:.4f},{arts:.4f},{u % 3}")
    path.write_text("\n".join(lines) + "\n")
    return path
