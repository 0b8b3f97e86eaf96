"""`lcb algorithms`: what can be run, by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import check_output, format_settings, get_console, write_json


def algorithms(
    bandits: Annotated[bool, typer.Option("--bandits", help="List the bandits that a service can serve with.")] = False,
    json: JSONOption = None,
) -> None:
    """List the algorithms that evaluate, simulate, tune and reproduce know by name, or the bandits that serve knows.

    Evaluate uses the defaults, or settings that it finds with --tune; simulate and reproduce use the tuned settings.

    \b
    Example:
      lcb algorithms
      lcb algorithms --bandits
    """
    check_output("--json", json)
    rows = _list_bandits() if bandits else _list_algorithms()
    write_json(json, rows)
    if json != "-":
        _print_bandits(rows) if bandits else _print(rows)


def _list_algorithms() -> list[dict[str, Any]]:
    from lcb.evaluate.algorithms import ALGORITHMS, tuned_settings

    tuned = tuned_settings()
    return [
        {
            "algorithm": name,
            "line": algorithm.line,
            "reference": algorithm.reference,
            "cost": algorithm.cost,
            "needs": algorithm.needs,
            "settings": algorithm.defaults,
            "tuned": {**algorithm.defaults, **tuned[name]} if name in tuned else None,
            "grid": {setting: list(values) for setting, values in algorithm.grid.items()},
        }
        for name, algorithm in ALGORITHMS.items()
    ]


def _list_bandits() -> list[dict[str, Any]]:
    from lcb.bandits.registry import describe_bandits

    return list(describe_bandits())


def _print(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        settings = f"defaults {format_settings(row['settings'])}" if row["settings"] else "no settings"
        details = [row["reference"]] * (row["reference"] != "-") + [f"cost {row['cost']}", settings]
        if row["tuned"] and row["tuned"] != row["settings"]:
            details.append(f"tuned {format_settings(row['tuned'])}")
        details += [f"needs {row['needs']}"] * bool(row["needs"])
        lines.append((row["algorithm"], f"{row['line']}\n{'; '.join(details)}"))
    _print_lines(lines, "algorithms")


def _print_bandits(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        details = [
            f"settings {', '.join(row['settings'])}" if row["settings"] else "no settings",
            f"cost {row['cost']}",
        ]
        details += [f"needs {', '.join(row['needs'])}"] * bool(row["needs"])
        lines.append((row["bandit"], f"{row['line']}\n{'; '.join(details)}"))
    _print_lines(lines, "bandits")


def _print_lines(lines: list[tuple[str, str]], what: str) -> None:
    """Print names and words side by side, folded where the terminal is narrow."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(*line)
    terminal = get_console()
    terminal.print(table)
    terminal.print(f"\n{len(lines)} {what}; cost: operations of one decision, N classes, K arms, d features")
