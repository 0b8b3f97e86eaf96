"""What commands print and write: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import typer
from rich.console import Console

from lcb.errors import InputError
from lcb.storage.files import check_writable, is_same_file, write_whole

if TYPE_CHECKING:
    from rich.table import Table

Target = str | Path | None  # None: the option was not given; `-`: standard output


def check_output(option: str, target: Target, *, files: Iterable[Target] = (), folders: Iterable[Target] = ()) -> None:
    """Raise before any work if the target cannot be written, is one of `files` or lies in one of `folders`."""
    if not _is_file(target):
        return
    place = os.path.realpath(target)
    for file in files:
        if _is_file(file) and is_same_file(target, file):
            raise InputError(f"{option} {target} is also {file}, which must not be overwritten; give another file")
    for folder in folders:
        if _is_file(folder) and Path(os.path.realpath(folder)) in (Path(place), *Path(place).parents):
            raise InputError(f"{option} {target} lies in {folder}, which holds models only; give another place")
    check_writable(target)


def write_json(target: str | None, value: Any) -> None:
    """Write `value` to the file, or to standard output for `-`; nothing for None."""
    if target is None:
        return
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if target == "-":
        typer.echo(text, nl=False)
    else:
        write_whole(target, text.encode())


def format_json(value: Any, levels: int, margin: str = "") -> str:
    """Return JSON with one line per entry of the outermost levels; what is further inside stays on one line.

    >>> print(format_json({"a": [{"b": 1, "c": 2}, 3], "d": {}}, levels=2))
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
        lines = [f"{inner}{json.dumps(key)}: {format_json(one, levels - 1, inner)}" for key, one in value.items()]
    else:
        lines = [f"{inner}{format_json(one, levels - 1, inner)}" for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(lines), f"{margin}{last}"])


def format_number(value: float | None, digits: int = 4) -> str:
    """Return the number with so many digits after the point; a dash for None and nan."""
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as `eta 0.5, uniform 0`; a dash if there are none."""
    words = (f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items())
    return ", ".join(words) or "-"


def build_table(
    *titles: str, left: Iterable[str] = (), wrapped: Iterable[str] = (), caption: str | None = None
) -> Table:
    """Return an empty table.  Columns are aligned right and kept on one line, but for those of `left` and `wrapped`."""
    from rich import box
    from rich.table import Table

    table = Table(title=caption, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(
            title, justify="left" if title in left else "right", no_wrap=title not in wrapped, overflow="fold"
        )
    return table


def get_console() -> Console:
    """Return a console on standard output, as wide as the terminal, else 100 columns; markup in text is not parsed."""
    found = _Terminal(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else _Terminal(highlight=False, markup=False, emoji=False, width=100)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # handled by `lcb.cli.main`


def _is_file(target: Target) -> TypeGuard[str | Path]:
    return target is not None and str(target) != "-"
