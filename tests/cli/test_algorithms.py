from __future__ import annotations

import json
import re

import pytest

from lcb.evaluate.algorithms import ALGORITHMS, tuned_settings


def test_every_algorithm_is_listed_with_its_line_reference_cost_and_settings(lcb):
    outcome = lcb("algorithms")
    assert outcome.code == 0
    words = " ".join(outcome.out.split())
    for algorithm in ALGORITHMS.values():
        assert f"{algorithm.name} {algorithm.line}" in words
        assert f"cost {algorithm.cost}; " in words
        assert algorithm.reference == "-" or algorithm.reference in words
        assert not algorithm.needs or f"needs {algorithm.needs}" in words
    assert f"{len(ALGORITHMS)} algorithms" in words


@pytest.mark.parametrize("tuned", [{}, {"lcb": {"eta": 0.5}}])
def test_the_json_has_the_settings_that_are_used(lcb, monkeypatch, tuned):
    monkeypatch.setattr("lcb.evaluate.algorithms.tuned_settings", lambda: tuned)
    rows = {row["algorithm"]: row for row in json.loads(lcb("algorithms", "--json", "-").out)}
    assert list(rows) == list(ALGORITHMS)
    assert rows["lcb"]["settings"] == ALGORITHMS["lcb"].defaults  # what evaluate uses
    assert rows["lcb"]["tuned"] == ({**ALGORITHMS["lcb"].defaults, "eta": 0.5} if tuned else None)
    assert rows["lcb"]["grid"] == {name: list(values) for name, values in ALGORITHMS["lcb"].grid.items()}
    assert not rows["random"]["settings"]


def test_the_packaged_settings_are_said_to_be_tuned(lcb):
    rows = json.loads(lcb("algorithms", "--json", "-").out)
    assert {row["algorithm"] for row in rows if row["tuned"] is not None} == set(tuned_settings())


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_shows_all_of_it(lcb, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = re.sub(r"\x1b\[[0-9;]*m", "", lcb("algorithms").out)
    lines = [line for line in out.splitlines() if "algorithms; cost" not in line]
    assert max(map(len, lines)) <= width
    words = " ".join(out.split())
    for algorithm in ALGORITHMS.values():
        assert algorithm.line in words


def test_the_list_is_not_written_where_it_cannot_be(lcb):
    assert lcb("algorithms", "--json", "nowhere/x.json").code == 2
