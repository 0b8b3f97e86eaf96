"""`lcb compare-learners`: fit every learner on one log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lcb.cli.options import ColumnsOption, JSONOption, UserColumnsOption, parse_names
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.errors import InputError


def compare_learners(
    events: Annotated[
        Path, typer.Argument(help="Event table (.parquet, .csv, .jsonl), or a log from lcb import.", metavar="EVENTS")
    ],
    learners: Annotated[
        str | None, typer.Option(help="Learners to compare; without it all.", metavar="A,B,...")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0.001, help="Stop and leave out a learner after so many seconds.", metavar="SECONDS"),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of classes; without it each learner chooses.")
    ] = None,
    columns: ColumnsOption = None,
    user: Annotated[str | None, typer.Option(help="Table: column of the user.", metavar="COLUMN")] = None,
    item: Annotated[
        str | None,
        typer.Option(
            help="Table: column of the item; each item is a feature, if there are no --columns.", metavar="COLUMN"
        ),
    ] = None,
    reward: Annotated[str | None, typer.Option(help="Table: column of the reward.", metavar="COLUMN")] = None,
    user_columns: UserColumnsOption = None,
    like: Annotated[float | None, typer.Option(help="Imported log: smallest rating that counts as liked.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and the learners.", min=0)] = 0,
    png: Annotated[
        Path | None, typer.Option(help="Draw the comparison to this .png, .svg, .html or .json file.")
    ] = None,
    json: JSONOption = None,
) -> None:
    """Fit every learner on the same log and score it on held-out users.

    Prints the log likelihood per held-out user, the number of classes, the time and the memory of each.

    \b
    Example:
      lcb compare-learners log --like 4 --learners em,personal --budget 60
      lcb compare-learners events.csv --columns sport,arts,politics --png learners.png
      lcb compare-learners visits.csv --user visitor --item article --reward clicked
    """
    from lcb.cli.learning_input import find_event_table
    from lcb.evaluate import compare_learners as compare
    from lcb.evaluate.offline.history import LabelledRows, choose_features
    from lcb.progress import bar
    from lcb.storage.importing.open_any import open_any
    from lcb.storage.importing.table_source import Columns
    from lcb.storage.tables.statistics import read_log

    check_output("--json", json, files=[events, png])
    check_output("--png", png, files=[events])
    if png is not None:
        from lcb import charts

        charts.require()
    with bar() as progress:
        by_item = item is not None and columns is None
        table = None if by_item else find_event_table(events, columns)
        if table is None:
            if columns or user_columns or ((user or reward) and not by_item):
                raise InputError(
                    "--columns, --user-columns, --user and --reward are for an event table; a log has its own features"
                )
            opened = open_any(events, Columns(user, item, reward), with_offers=False, progress=progress)
            labelled = LabelledRows.of_log(opened, like)
            log = labelled.history(choose_features(labelled)[0], keep_rows=True)
        else:
            log = read_log(
                table,
                columns=parse_names(columns),
                user_columns=parse_names(user_columns),
                user=user or "user",
                reward=reward or "reward",
                keep_rows=True,
                progress=progress,
            )
        outcomes = compare.compare_learners(
            log, classes, learners=parse_names(learners), budget=budget, seed=seed, progress=progress
        )
    gaps = compare.measure_gaps(outcomes)
    if png is not None:
        rows = [(f"{name} (± {error:.3f})", gap) for name, (gap, error) in gaps.items()]
        title = "Held-out log likelihood per user, behind the best (less is better)"
        charts.save(charts.bars(rows, "log likelihood per user behind the best", title=title), png)
    write_json(
        json, {"users": log.n_users, "events": log.stats.n_events, "results": [_to_row(o, gaps) for o in outcomes]}
    )
    if json != "-":
        _print(outcomes, gaps)
        if png is not None:
            typer.echo(f"figure in {png}")


def _to_row(outcome: Any, gaps: dict[str, tuple[float, float]]) -> dict[str, Any]:
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
    titles = ("learner", "classes", "held-out", "± se", "behind best", "± se", "seconds", "MB")
    table = build_table(*titles, left=["learner"])
    for outcome in outcomes:
        if outcome.name in gaps:
            numbers = (outcome.score, outcome.se, *gaps[outcome.name])
            cells = [f"{outcome.n_classes}", *(f"{n:.3f}" for n in numbers)]
            table.add_row(outcome.name, *cells, f"{outcome.seconds:.1f}", f"{outcome.megabytes:.0f}")
    terminal = get_console()
    terminal.print(table)
    for outcome in outcomes:
        if outcome.note:
            terminal.print(f"{outcome.name}: {outcome.note}", soft_wrap=True)
