"""What commands print: text for people, JSON for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from lcb.errors import InputError, OutputError
from lcb.storage.files import check_writable, write_whole

JSON_HELP = "Write the result as JSON to this file; - prints it to standard output instead of the table."


def check_json(target: str | None) -> None:
    """Refuse an unwritable JSON file before any work."""
    if target not in (None, "-"):
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


def make_folder(out: Path) -> None:
    """The folder for figures, made if need be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} could not be made ({error.strerror}); give another folder") from None


def split_names(text: str | None) -> tuple[str, ...]:
    """`a,b,c` as names."""
    if not text:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} has an empty name; separate names with single commas, as in a,b,c")
    return names


def console() -> Console:
    """Where tables go: standard output, as wide as the terminal, or 100 columns."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=100)
