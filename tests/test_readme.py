"""The README's console blocks are run, and print what they show (... stands for anything)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def examples() -> list[tuple[str, str]]:
    """Command and expected output of every `$ ` line in a console block."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the log the README learns from."""
    place, rng = tmp_path_factory.mktemp("readme"), np.random.default_rng(0)
    lines = ["user,reward,sport,arts,science"]
    for u in range(60):
        liked = (0.9, 0.1, 0.3) if u % 2 else (0.1, 0.8, 0.4)
        for x in rng.random((20, 3)):
            lines.append(f"u{u},{x @ liked + 0.1 * rng.standard_normal():.4f}," + ",".join(f"{v:.4f}" for v in x))
    (place / "events.csv").write_text("\n".join(lines) + "\n")
    return place


def test_the_readme_shows_what_its_commands_print(folder):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shown = examples()
    assert len(shown) == 4
    for command, expected in shown:
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
        printed = re.match(".*".join(pieces), " ".join(done.stdout.split()))
        assert printed, f"$ {command}\nprinted\n{done.stdout}\nthe README shows\n{expected}"
