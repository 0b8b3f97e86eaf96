"""Drill 2: the process ends at the n-th write, for every n; the log that remains is complete and can be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.errors import LCBError
from support.crashing_stores import MortalStore, Opened, Session, WithoutTransactions
from support.harness import LONG


def drill(folder: Path, opened: Opened = MortalStore, *, first: int = 1, every: int = 1) -> int:
    """Crash at each write; return the number of crashes."""
    whole = Session(folder / "whole.db", opened)
    whole.run()
    n_writes = whole.life.n_written
    assert whole.n_deaths == 0
    for n in range(first, n_writes + 1, every):
        session = Session(folder / f"{n}.db", opened, die_at=n)
        session.run()
        assert session.n_deaths == 1
        assert session.chosen == whole.chosen, "other arms than without a crash"
        (folder / f"{n}.db").unlink()
    return n_writes


def test_after_a_crash_at_any_write_the_log_is_whole(tmp_path: Path) -> None:
    assert drill(tmp_path, every=1 if LONG else 5) > 50


def test_without_transactions_something_half_done_is_left(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, LCBError)):
        drill(tmp_path, WithoutTransactions, first=30)
