"""Sums that every version of Python rounds alike."""

from __future__ import annotations

import ast
from pathlib import Path

import lcb

SRC = Path(lcb.__file__).parent
COMPUTING = [
    *("learners", "bandits", "recommenders", "serve/decide", "evaluate/choice"),
    *("models", "stats.py", "policies.py", "features.py", "evaluate/user_rates.py"),
]


def find_sums(tree):
    """Return the lines with a call of the built-in sum."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "sum"]


def test_what_computes_does_not_use_the_built_in_sum():  # from Python 3.12 on it rounds floats otherwise
    assert find_sums(ast.parse("a = sum(b)")) == [1]
    files = [
        file for name in COMPUTING for file in ([SRC / name] if name.endswith(".py") else (SRC / name).rglob("*.py"))
    ]
    assert len(files) > 60
    found = {str(file.relative_to(SRC)): find_sums(ast.parse(file.read_text())) for file in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
