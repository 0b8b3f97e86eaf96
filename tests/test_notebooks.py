"""The notebooks of the docs run from the first cell to the last, with what they claim asserted in their cells.

They are stored without outputs: outputs grow stale, and nobody reviews them.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run_notebook(notebook: dict[str, Any]) -> list[Any]:
    """Run the code cells one after another, as a kernel does; return the values that cells would display."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]), cell["id"]).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
            shown += [] if value is None else [value]
    return shown


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["bandit", "dataframe"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run_notebook(read(path))
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert any("<table" in table for table in tables)
    if path.stem == "dataframe":
        assert sum(hasattr(value, "mark_bar") or hasattr(value, "layer") for value in shown) >= 2  # charts
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_in_the_format_of_jupyter(path):
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


def test_a_cell_that_fails_is_noticed():
    cell = {"cell_type": "code", "id": "one", "source": ["x = 1\n", "assert x == 2"]}
    with pytest.raises(AssertionError):
        run_notebook({"cells": [cell]})
