"""Options that several commands have, and the parsing of their text."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lcb.errors import InputError

_JSON_HELP = "Write the result as JSON to this file; - prints it to standard output instead of the table."
_X_HELP = "Feature columns, as a,b,c; without it the list column x."
_USER_X_HELP = "Columns with features of the user, crossed with those of the arm."
JSONOption = Annotated[str | None, typer.Option(help=_JSON_HELP, metavar="FILE")]
ColumnsOption = Annotated[str | None, typer.Option(help=_X_HELP, metavar="A,B,...")]
UserColumnsOption = Annotated[str | None, typer.Option(help=_USER_X_HELP, metavar="A,B,...")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Processes; without it one per core.")]


class ReadingName(StrEnum):
    labels = "labels"
    choices = "choices"


def parse_names(text: str | None) -> tuple[str, ...]:
    """Split `a,b,c` into names.

    >>> parse_names("a, b")
    ('a', 'b')
    """
    if not text:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} has an empty name; separate names with single commas, as in a,b,c")
    return names


def parse_algorithms(text: str | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Split `a,b,c` into names of algorithms; `all` means every one that needs no special input."""
    from lcb.evaluate.algorithms import ALGORITHMS

    if text == "":
        raise InputError("--algorithms is empty; give a,b,c, or all, or leave it out")
    if text == "all":
        return tuple(name for name, algorithm in ALGORITHMS.items() if not algorithm.needs)
    return parse_names(text) or otherwise


def parse_range(text: str | None) -> tuple[float, float] | None:
    """Read `low,high` of --reward-range.

    >>> parse_range("0,1")
    (0.0, 1.0)
    """
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--reward-range {text!r}; give two numbers, as in 0,1") from None
    if not low < high:
        raise InputError(f"--reward-range {text!r}; the first number must be the smaller")
    return low, high
