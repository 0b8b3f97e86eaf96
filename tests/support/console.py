"""Runs the commands that a page of documentation shows, and compares what they print (... stands for anything)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fenced(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def examples(page: str) -> list[tuple[str, str]]:
    """Command and expected output of every `$ ` line in a console block."""
    found = []
    for block in fenced(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def environment(**more: str) -> dict[str, str]:
    """An environment in which `lcb` and `python` are those that run the tests."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **more}


def check_example(command: str, expected: str, folder: Path) -> None:
    """Run a command in `folder`; fail if it prints something else than the page shows."""
    done = subprocess.run(command, shell=True, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
    printed = re.match(".*".join(pieces), " ".join(done.stdout.split()))
    assert printed, f"$ {command}\nprinted\n{done.stdout}\nthe page shows\n{expected}"
