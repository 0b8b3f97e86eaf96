"""Errors of tables that name the file, the row and what is wrong."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from lcb.errors import EventError, InputError

MEND = "correct or drop the row"
OnBadRow = Callable[[str, int, str, str], None]  # path, row (1: the first row of data), reason to count by, message


@dataclass(frozen=True)
class Place:
    """Some rows of a file; row 1 is the first row of data.

    >>> str(Place("clicks.csv", first_row=100).error(5, "reward is missing; correct or drop the row"))
    'clicks.csv row 105: reward is missing; correct or drop the row'
    """

    path: str
    first_row: int = 1

    def error(self, index: int, what: str) -> EventError:
        return EventError(to_one_line(f"{self.path} row {self.first_row + index}: {what}"))


def refuse_row(path: str, row: int, reason: str, message: str) -> NoReturn:
    """Raise an error that names the row; the `OnBadRow` that stops at the first bad row."""
    raise Place(path, row).error(0, f"{message}{', ' if '; ' in message else '; '}{MEND}")


def to_one_line(text: object) -> str:
    """Return a message without line breaks.

    >>> to_one_line("no such\\ncolumn")
    'no such column'
    """
    return " ".join(str(text).splitlines())


@contextmanager
def name_file_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the reading library into an InputError in one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        remedy = "write or download it again, or check its permissions"
        raise InputError(to_one_line(f"{path} could not be read ({error}); {remedy}")) from None


def find_first_failing(values: Any, works: Callable[[Any], bool]) -> int:
    """Return the index of the first value for which a whole-array operation fails, in log2(n) tries.

    >>> find_first_failing([4, 9, -1, 2], lambda part: min(part) >= 0)
    2
    """
    return bisect_left(range(len(values)), True, key=lambda i: not works(values[: i + 1]))
