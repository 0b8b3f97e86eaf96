"""What commands print: text for people, JSON for scripts; and where they write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lcb.errors import InputError
from lcb.storage.files import check_writable, write_whole

if TYPE_CHECKING:
    from rich.table import Table

JSON_HELP = "Write the result as JSON to this file; - prints it to standard output instead of the table."
JSONOption = Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")]


def check_output(
    option: str, target: str | Path | None, *, files: Iterable[Path | None] = (), folders: Iterable[Path | None] = ()
) -> None:
    """Refuse before any work an output that cannot be written, is one of these files or lies in one of these folders.

    None stands for an option that was not given, `-` for standard output.
    """
    if target is None or str(target) == "-":
        return
    place = os.path.realpath(target)
    for file in files:
        if file is not None and (place == os.path.realpath(file) or _are_one(place, file)):
            raise InputError(f"{option} {target} is also {file}, which must not be overwritten; give another file")
    for folder in folders:
        if folder is not None and Path(os.path.realpath(folder)) in (Path(place), *Path(place).parents):
            raise InputError(f"{option} {target} lies in {folder}, which holds models only; give another place")
    check_writable(target)


def columns(*titles: str, left: Iterable[str] = (), wrapped: Iterable[str] = ()) -> Table:
    """An empty table: numbers to the right, those of `left` to the left, those of `wrapped` on several lines."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(title, justify="left" if title in left else "right", no_wrap=title not in wrapped)
    return table


def write_json(target: str | None, value: Any) -> None:
    """Write `value` to the file, or to standard output for `-`; nothing for None."""
    if target is None:
        return
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if target == "-":
        typer.echo(text, nl=False)
    else:
        write_whole(target, text.encode())


def unfolded(value: Any, levels: int, margin: str = "") -> str:
    """JSON with a line for each entry of the outermost levels, and what is further inside on one line.

    >>> print(unfolded({"a": [{"b": 1, "c": 2}, 3], "d": {}}, levels=2))
    {
      "a": [
        {"b": 1, "c": 2},
        3
      ],
      "d": {}
    }
    """
    if not levels or not value or not isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False)
    inner = margin + "  "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {unfolded(one, levels - 1, inner)}" for key, one in value.items()]
    else:
        lines = [f"{inner}{unfolded(one, levels - 1, inner)}" for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(lines), f"{margin}{last}"])


def split_names(text: str | None) -> tuple[str, ...]:
    """`a,b,c` as names."""
    if not text:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} has an empty name; separate names with single commas, as in a,b,c")
    return names


def algorithm_names(text: str | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """`a,b,c` as names of algorithms, `all` as all that need nothing special."""
    from lcb.evaluate.algorithms import ALGORITHMS

    if text == "":
        raise InputError("--algorithms names none; give a,b,c, or all, or leave it out")
    if text == "all":
        return tuple(name for name, algorithm in ALGORITHMS.items() if not algorithm.needs)
    return split_names(text) or otherwise


def format_number(value: float | None, digits: int = 4) -> str:
    """Return the number with so many digits after the point; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def in_words(settings: Mapping[str, Any]) -> str:
    """`eta 0.5, gamma 0`; a dash where there are none."""
    words = (f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items())
    return ", ".join(words) or "-"


def console() -> Console:
    """Where tables go: standard output, as wide as the terminal, or 100 columns; text is printed as it is."""
    found = _Terminal(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else _Terminal(highlight=False, markup=False, emoji=False, width=100)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for `main` to answer


def _are_one(one: str, other: Path) -> bool:
    """Whether two paths lead to one file, by links of any kind."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
