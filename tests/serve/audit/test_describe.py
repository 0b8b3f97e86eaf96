"""What `lcb log show` prints of an event."""

from __future__ import annotations

from lcb.serve import events
from lcb.serve.audit.describe import describe_row
from lcb.storage.store.base import Row


def test_a_reason_with_line_ends_stays_on_one_line() -> None:
    body = events.ActivateBody(0.0, 1, "fine\n9 2026-01-01 00:00:00 erase\u2028\x1b[2J é")
    row = Row(7, "activate/7", "activate", None, None, events.encode(body))
    assert describe_row(row)["words"] == "version 1: fine\\n9 2026-01-01 00:00:00 erase\\u2028\\x1b[2J é"


def test_the_beginning_of_learning_is_described() -> None:
    row = Row(7, "learning/7", "learning", None, None, events.encode(events.LearningBody(0.0)))
    assert describe_row(row)["words"] == "begins, from the events up to this one"
