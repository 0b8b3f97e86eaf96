"""`lcb algorithms`: what can be run, by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, console, in_words, write_json


def algorithms(json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None) -> None:
    """List the algorithms that simulate, tune and reproduce know by name.

    \b
    Example:
      lcb algorithms
    """
    check_output("--json", json)
    rows = _rows()
    write_json(json, rows)
    if json != "-":
        _print(rows)


def _rows() -> list[dict[str, Any]]:
    from lcb.evaluate.algorithms import ALGORITHMS, tuned_settings

    tuned = tuned_settings()
    return [
        {
            "algorithm": name,
            "line": algorithm.line,
            "reference": algorithm.reference,
            "cost": algorithm.cost,
            "needs": algorithm.needs,
            "settings": {**algorithm.defaults, **tuned.get(name, {})},
            "tuned": name in tuned,
            "grid": {setting: list(values) for setting, values in algorithm.grid.items()},
        }
        for name, algorithm in ALGORITHMS.items()
    ]


def _print(rows: list[dict[str, Any]]) -> None:
    """Name and words side by side, folded where the terminal is narrow."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        state = "tuned" if row["tuned"] else "defaults"
        settings = f"{in_words(row['settings'])} ({state})" if row["settings"] else "no settings"
        details = [row["reference"]] * (row["reference"] != "-") + [f"cost {row['cost']}", settings]
        details += [f"needs {row['needs']}"] * bool(row["needs"])
        table.add_row(row["algorithm"], f"{row['line']}\n{'; '.join(details)}")
    terminal = console()
    terminal.print(table)
    terminal.print(f"\n{len(rows)} algorithms; cost: operations of one decision, N classes, K arms, d features")
