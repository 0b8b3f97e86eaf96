from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from lcb.evaluate.worlds.paper import paper_classes
from lcb.experiments import table_1
from lcb.theory import TABLE_1, theorem_1_margin


def test_the_sizes_are_those_of_the_papers_simulation():
    sizes = table_1.paper_sizes()
    assert (sizes.all_users, sizes.n_warmup_users, sizes.longest, sizes.all_steps) == (1000, 50, 20, 20_000)
    assert (sizes.n_arms, sizes.n_classes, sizes.n_features, sizes.n_contexts) == (20, 5, 10, math.inf)
    beta = paper_classes().beta
    distances = [sum((a - b) ** 2) ** 0.5 for i, a in enumerate(beta) for b in beta[:i]]
    assert sizes.gap == pytest.approx(min(distances))


def test_a_row_holds_its_bound_at_the_sizes():
    sizes = replace(table_1.paper_sizes(), n_arms=3)
    table = table_1.run(sizes=sizes)
    assert table.rows == tuple((bound, bound.growth(sizes)) for bound in TABLE_1)


def test_the_numbers_are_json_and_infinity_is_null():
    written = json.loads(json.dumps(table_1.to_json(table_1.run()), allow_nan=False))
    rows = {row["algorithm"]: row["growth"] for row in written["rows"]}
    assert rows["EXP4.P enum-policies"] is None
    assert rows["LCB (Theorem 1)"] == pytest.approx((950 * 19_000 * 5 * math.log(5)) ** 0.5)
    assert [row["bandit"] for row in written["theorems"]] == ["exp4p", "exp3", "epoch-greedy"]
    assert written["theorems"][0]["margin"] == pytest.approx(theorem_1_margin(table_1.paper_sizes()))
    assert written["theorems"][2]["schedule"]["n_warmup_users"] == 400
    assert written["sizes"]["all_steps"] == 20_000


def test_the_text_has_every_row_with_its_formula_and_every_note():
    text = "\n".join(table_1.summarise(table_1.run()))
    for bound in TABLE_1:
        (line,) = [line for line in text.splitlines() if line.startswith(bound.algorithm + " ")]
        assert line.endswith(bound.formula)
        assert all(f"] {note}" in text for note in bound.notes)
    assert "infinite  each user's true policy  sqrt(U~ T~ K C ln K)" in text
    assert "12,052  each user's true policy  sqrt(U T min{K,N} ln N)" in text
    assert "U T is 72.2 times max(1, d^2/K) J S" in text


def test_marks_point_at_the_notes_of_their_row():
    lines = table_1.summarise(table_1.run())
    notes = {line.split("]")[0] + "]": line.split("] ")[1] for line in lines if line.startswith("[")}
    for bound in TABLE_1:
        (line,) = [line for line in lines if line.startswith(bound.algorithm + " ")]
        marks = [word for word in line.split() if word.startswith("[")]
        assert tuple(notes[mark] for mark in marks) == bound.notes


def test_only_what_a_log_axis_can_hold_is_drawn():
    for sizes, n_drawn in ((table_1.paper_sizes(), 7), (replace(table_1.paper_sizes(), n_classes=1), 4)):
        data = [row for part in table_1.draw(table_1.run(sizes=sizes)).to_dict()["datasets"].values() for row in part]
        assert len({row["name"] for row in data if "name" in row}) == n_drawn
