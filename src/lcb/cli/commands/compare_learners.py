"""`lcb compare-learners`: every way to learn the classes on one log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, console, split_names, write_json


def compare_learners(
    events: Annotated[Path, typer.Argument(help="Event table: .parquet, .csv or .jsonl.", metavar="EVENTS")],
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of classes; chosen by each when not given.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Feature columns, as a,b,c; without it the list column x.", metavar="A,B,...")
    ] = None,
    user_columns: Annotated[
        str | None, typer.Option(help="Columns with features of the user, crossed with the arm's.", metavar="A,B,...")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and the learners.", min=0)] = 0,
    png: Annotated[Path | None, typer.Option(help="Draw the comparison here (.png, .svg, .html or .json).")] = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Fit every learner on the same log and score it on users it has not seen.

    Prints the held-out log likelihood per user, the classes found, the time and the memory of each.

    \b
    Example:
      lcb compare-learners events.csv --columns sport,arts,politics --png learners.png
    """
    from lcb.evaluate import compare_learners as compare
    from lcb.progress import bar
    from lcb.storage.tables.statistics import read_log

    check_output("--json", json, files=[events, png])
    check_output("--png", png, files=[events])
    if png is not None:
        from lcb import charts

        charts.require()
    with bar() as progress:
        log = read_log(
            events, columns=split_names(columns), user_columns=split_names(user_columns), keep_rows=True,
            progress=progress,
        )  # fmt: skip
        outcomes = compare.compare_learners(log, classes, seed=seed, progress=progress)
    gaps = compare.gap_to_best(outcomes)
    if png is not None:
        rows = [(f"{name} (± {error:.3f})", gap) for name, (gap, error) in gaps.items()]
        title = "Held-out log likelihood per user, behind the best (less is better)"
        charts.save(charts.bars(rows, "log likelihood per user behind the best", title=title), png)
    write_json(json, {"users": log.n_users, "events": log.stats.n_events, "results": [_row(o, gaps) for o in outcomes]})
    if json != "-":
        _print(outcomes, gaps)
        if png is not None:
            typer.echo(f"picture in {png}")


def _row(outcome: Any, gaps: dict[str, tuple[float, float]]) -> dict[str, Any]:
    if outcome.name not in gaps:
        return {"learner": outcome.name, "note": outcome.note}
    behind, error = gaps[outcome.name]
    return {
        "learner": outcome.name,
        "classes": outcome.n_classes,
        "held_out": outcome.score,
        "se": outcome.se,
        "behind_best": behind,
        "se_behind": error,
        "seconds": outcome.seconds,
        "megabytes": outcome.megabytes,
        "note": outcome.note,
    }


def _print(outcomes: list[Any], gaps: dict[str, tuple[float, float]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("learner", "classes", "held-out", "± se", "behind best", "± se", "seconds", "MB"):
        table.add_column(title, justify="left" if title == "learner" else "right", no_wrap=True)
    for outcome in outcomes:
        if outcome.name in gaps:
            behind, error = gaps[outcome.name]
            table.add_row(
                outcome.name, f"{outcome.n_classes}", f"{outcome.score:.3f}", f"{outcome.se:.3f}", f"{behind:.3f}",
                f"{error:.3f}", f"{outcome.seconds:.1f}", f"{outcome.megabytes:.0f}",
            )  # fmt: skip
    terminal = console()
    terminal.print(table)
    for outcome in outcomes:
        if outcome.note:
            terminal.print(f"{outcome.name}: {outcome.note}", soft_wrap=True)
