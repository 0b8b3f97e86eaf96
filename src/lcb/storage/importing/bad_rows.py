"""Bad rows: counted by reason, the first of them listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcb.storage.tables.row_errors import to_one_line

N_LISTED = 20


class Problems:
    """Bad rows by reason, with the first N_LISTED of them.

    >>> problems = Problems()
    >>> problems.add("clicks.csv", [7, 9], "rating is no number", ["rating is 'five'", "rating is 'two'"])
    >>> problems.n_rows, dict(problems.counts), problems.lines()[0]
    (2, {'rating is no number': 2}, "clicks.csv row 7: rating is 'five'")
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.listed: list[tuple[str, int, str]] = []  # file, row, what is wrong
        self.n_unread = 0  # bad rows that could not be split into cells, so that no batch has them

    @property
    def n_rows(self) -> int:
        return self.counts.total()

    def add(self, path: str, rows: Sequence[int], reason: str, said: Iterable[str]) -> None:
        """Add rows of a file; `said` are messages of the rows, in order, of at least the first, which are listed."""
        self.counts[reason] += len(rows)
        self.listed += [(path, row, to_one_line(text)) for row, text in zip(rows, said, strict=False)]
        self.listed = sorted(self.listed)[:N_LISTED]

    def add_unread(self, path: str, row: int, reason: str, said: str) -> None:
        """Add a row that could not be split into cells."""
        self.n_unread += 1
        self.add(path, [row], reason, [said])

    def lines(self) -> tuple[str, ...]:
        """Return the first bad rows, one line each."""
        return tuple(f"{path} row {row}: {said}" for path, row, said in self.listed)

    def summary(self) -> str:
        """Return the counts in one line, the most frequent reason first."""
        return ", ".join(f"{reason} ({n:,})" for reason, n in self.counts.most_common())


class Check:
    """Marks the good rows of one chunk; a row with two errors counts once."""

    def __init__(self, path: str, rows: NDArray[np.int64], problems: Problems) -> None:
        self.path = path
        self.rows = rows
        self.problems = problems
        self.good = np.ones(len(rows), bool)

    def refuse(self, wrong: NDArray[np.bool_], reason: str, say: Callable[[int], str]) -> None:
        """Mark these rows (a mask) as bad; `say(i)` is the message for row i of the chunk."""
        found = np.flatnonzero(wrong & self.good)
        if len(found):
            self.good[found] = False
            said = [say(int(i)) for i in found[:N_LISTED]]
            self.problems.add(self.path, self.rows[found].tolist(), reason, said)


def show_cell(column: Any, i: int) -> str:
    """Return a cell as short text for a message, even if it is not UTF-8."""
    cell = column[i]
    try:
        value = cell.as_py()
    except UnicodeDecodeError:
        value = cell.as_buffer().to_pybytes().decode(errors="replace")
    return short(value)
