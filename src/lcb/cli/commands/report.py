"""`lcb report`: one page about the user's own log."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.options import JSONOption, ReadingName, WorkersOption
from lcb.cli.output import check_output, write_json
from lcb.errors import ConvergenceWarning, InputError

if TYPE_CHECKING:
    from lcb.evaluate.offline.labels import Reading


def report(
    path: Annotated[Path, typer.Argument(help="A log from lcb import, or a table of events.", metavar="LOG")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    user: Annotated[str | None, typer.Option(help="Table: column of the user.", metavar="COLUMN")] = None,
    item: Annotated[str | None, typer.Option(help="Table: column of the item.", metavar="COLUMN")] = None,
    reward: Annotated[str | None, typer.Option(help="Table: column of the reward.", metavar="COLUMN")] = None,
    rating: Annotated[str | None, typer.Option(help="Table: column of the rating.", metavar="COLUMN")] = None,
    item_categories: Annotated[
        str | None, typer.Option(help="Table: column of the item's categories.", metavar="COLUMN")
    ] = None,
    reading: Annotated[ReadingName | None, typer.Option(help="As in lcb evaluate.")] = None,
    like: Annotated[float | None, typer.Option(help="Smallest rating that counts as liked.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Splits of the users into training and test users.")] = 3,
    workers: WorkersOption = None,
    json: JSONOption = None,
) -> None:
    """Write one self-contained HTML page about a log.

    It says what is in the log, which kinds of users there are, who would gain from personal choices, how much and how
    sure that is, what the log cannot say, and what to do next.  lcb reproduce report writes the page on the paper.

    \b
    Example:
      lcb report goodbooks --like 5 --out books.html
      lcb report visits.csv --user visitor --item article --reward clicked
    """
    from lcb import charts
    from lcb.progress import bar
    from lcb.storage.files import write_whole

    if out.suffix not in (".html", ".htm"):
        raise InputError(f"--out {out}; give a name that ends in .html")
    inside = {"files": [path]} if path.is_file() else {"folders": [path]}
    check_output("--out", out, **inside)
    check_output("--json", json, files=[out, path] if path.is_file() else [out])
    charts.require()
    from lcb.reports.findings import study_log, to_json
    from lcb.reports.pages import render_findings
    from lcb.storage.importing.open_any import open_any
    from lcb.storage.importing.table_source import Columns

    columns = Columns(user=user, item=item, reward=reward, rating=rating, categories=item_categories)
    named = {"user": user, "item": item, "reward": reward, "rating": rating, "item-categories": item_categories}
    wanted: Reading | None = reading.value if reading else None
    with bar() as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        log = open_any(path, columns, with_offers=False, progress=progress)
        found = study_log(
            log,
            path,
            reading=wanted,
            like=like,
            n_seeds=seeds,
            n_workers=workers,
            columns={name: value for name, value in named.items() if value is not None},
            progress=progress,
        )
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"warning: {message}", err=True)
    write_whole(out, render_findings(found).encode())
    write_json(json, to_json(found))
    if json == "-":
        return
    if found.evaluation is not None:
        typer.echo(found.evaluation.describe())
    typer.echo(f"page in {out}")
