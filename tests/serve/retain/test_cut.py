"""Where a log is cut."""

from __future__ import annotations

import pytest

from lcb.progress import silent
from lcb.serve import events
from lcb.serve.retain.cut import find_cut
from lcb.storage.store.base import NewRow
from lcb.storage.store.sqlite.store import SQLite


@pytest.fixture
def store(tmp_path):
    made = SQLite(tmp_path / "lcb.db")
    yield made
    made.close()


def write(store, *times_and_seen):
    """Write decisions with a time and the seq they were made from; without either, what is left of an erased one."""
    rows = []
    for i, one in enumerate(times_and_seen):
        if one is None:
            body = events.encode(events.ErasedDecision("r", False, []))
            rows.append(NewRow(f"erased/{i}", "erased decision", None, None, body))
        else:
            at, seen = one
            arm = events.ChosenArm(0, "a", 1.0, b"", None, False, None)
            body = events.encode(events.DecisionBody(at, seen, "r", 1, ["a"], None, None, [arm], None))
            rows.append(NewRow(f"d{i}", "decision", "u", 0, body))
    store.append(rows, 0)


def cut(store, until, after=0):
    return find_cut(store, after, until, silent).upto


def test_events_up_to_the_first_new_one_are_old(store):
    write(store, (1.0, 0), (2.0, 1), (9.0, 2), (3.0, 3))
    assert cut(store, 5.0) == 2
    assert cut(store, 0.5) == 0
    assert cut(store, 99.0) == 4
    assert cut(store, 5.0, after=2) == 2


def test_what_is_left_of_erased_events_follows_old_ones_only(store):
    write(store, None, (1.0, 1), None, (9.0, 3))
    assert cut(store, 5.0) == 2
    assert cut(store, 0.5) == 0


def test_a_clock_that_was_ahead_holds_nothing_back(store):
    """Events 2, 3 and 6 say that they were written later than now, which is 10; event 5 is new."""
    write(store, (1.0, 0), (99.0, 1), (99.0, 2), (2.0, 3), (9.0, 4), (99.0, 5))
    assert find_cut(store, 0, 5.0, silent, now=10.0) == (4, 3)
    assert find_cut(store, 1, 5.0, silent, now=10.0) == (4, 3)
    assert find_cut(store, 4, 5.0, silent, now=10.0) == (4, 1)
    assert find_cut(store, 0, 5.0, silent, now=100.0) == (1, 0)


def test_after_old_events_a_clock_that_was_ahead_may_have_written_new_ones(store):
    write(store, (1.0, 0), (99.0, 1), (99.0, 2), (9.0, 3))
    assert find_cut(store, 0, 5.0, silent, now=10.0) == (1, 2)


def test_the_cut_lies_where_no_decision_rests_on_what_is_before(store):
    """Events 4 and 5 were both made from event 3, and event 6 from event 4."""
    write(store, (1.0, 0), (1.0, 1), (1.0, 2), (1.0, 3), (1.0, 3), (9.0, 4))
    assert cut(store, 5.0) == 3


def test_if_there_is_no_such_place_the_fewest_decisions_lie_across(store):
    """Across event 4 lie three decisions, across event 3 two."""
    write(store, (1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0), (9.0, 0), (9.0, 3), (9.0, 3))
    assert cut(store, 5.0) == 3
