"""Progress where there is no terminal: lines that say how much is done and how long the rest will take."""

from __future__ import annotations

import pytest

from lcb.progress import bar, count_up


def test_lines_tell_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr("lcb.progress.time.monotonic", lambda: now)
    with bar() as progress:
        done = count_up(progress, "percent of serving", 12)
        for i in range(1, 4):
            now += 8.0
            done(i)
        again = count_up(progress, "percent of serving", 4)
        now += 20.0
        again(1)
        progress("rows", 5, None)
        now += 10.0
        progress("rows", 9, None)
    assert capsys.readouterr().err.splitlines() == [
        "percent of serving: 2 of 12, about 80 s left",
        "percent of serving: 1 of 4, about 60 s left",
        "rows: 9",
    ]
