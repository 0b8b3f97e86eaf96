"""`lcb reproduce`: the paper's figures, one word each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lcb.cli.output import JSON_HELP, check_output, write_json
from lcb.storage.files import check_writable, made_folder


class Figure(StrEnum):
    fig_1 = "fig-1"
    fig_2a = "fig-2a"
    fig_2b = "fig-2b"


def reproduce(
    figure: Annotated[Figure, typer.Argument(help="Which figure of the paper.")],
    runs: Annotated[int, typer.Option(min=1, help="Independent runs (fig-2a, fig-2b).")] = 10,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the runs.")] = 0,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Redraw a figure of Zhou & Brunskill 2016 from a new run.

    \b
    fig-1   the five latent models of the simulation
    fig-2a  averaged per-user regret against the number of users
    fig-2b  averaged per-user regret against the number of interactions per user

    \b
    Example:
      lcb reproduce fig-2a --runs 10 --out figures
    """
    from lcb import charts
    from lcb.experiments import FIGURES
    from lcb.progress import bar

    target = out / f"{figure.value}.png"
    check_output("--json", json, files=[target])
    charts.require()
    experiment = FIGURES[figure.value]
    with made_folder(out):
        check_writable(target)
        with bar() as progress:
            outcome = experiment.run(n_runs=runs, seed=seed, progress=progress)
        charts.save(experiment.draw(outcome), target)
    write_json(json, experiment.to_json(outcome))
    if json != "-":
        for line in experiment.summary(outcome):
            typer.echo(line)
        typer.echo(f"figure in {target}")
