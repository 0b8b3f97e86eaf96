"""`lcb reproduce`: the paper's figures, tables and theorems, one word each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, write_json
from lcb.errors import InputError
from lcb.storage.files import check_writable, made_folder

if TYPE_CHECKING:
    from lcb.theory import Sizes


class Figure(StrEnum):
    fig_1 = "fig-1"
    fig_2a = "fig-2a"
    fig_2b = "fig-2b"
    table_1 = "table-1"
    theory = "theory"


class TheoryLearner(StrEnum):
    em = "em"
    spectral = "spectral"


def _size(letter: str, what: str, default: str, least: int = 1) -> Any:
    help_text = f"table-1: {what}, the paper's {letter}; {default} when not given."
    return typer.Option(min=least, help=help_text)


def reproduce(
    figure: Annotated[Figure, typer.Argument(help="Which figure, table or theorem of the paper.")],
    runs: Annotated[int, typer.Option(min=1, help="Independent runs (fig-2a, fig-2b, theory).")] = 10,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the runs.")] = 0,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
    learner: Annotated[
        TheoryLearner | None, typer.Option(help="theory: how the classes are learned; em when not given.")
    ] = None,
    users: Annotated[int | None, _size("J + U", "users of both phases", "1000", 2)] = None,
    warmup_users: Annotated[int | None, _size("J", "users of phase 1", "50")] = None,
    steps: Annotated[int | None, _size("T_u", "steps per user", "20")] = None,
    arms: Annotated[int | None, _size("K", "arms per step", "20")] = None,
    classes: Annotated[int | None, _size("N", "latent classes", "5")] = None,
    features: Annotated[int | None, _size("d", "features", "10")] = None,
    contexts: Annotated[int | None, _size("C", "different contexts", "infinite")] = None,
    gap: Annotated[
        float | None,
        typer.Option(help="table-1: smallest distance between two classes; that of fig-1, 0.777, when not given."),
    ] = None,
) -> None:
    """Redraw a figure of Zhou & Brunskill 2016 from a new run, or hold its theory to one.

    \b
    fig-1    the five latent models of the simulation
    fig-2a   averaged per-user regret against the number of users
    fig-2b   averaged per-user regret against the number of interactions per user
    table-1  the regret bounds as numbers, at the simulation's sizes or others
    theory   the schedules of Theorems 1 and 2: measured growth of regret beside the bounds'

    \b
    Example:
      lcb reproduce fig-2a --runs 10 --out figures
      lcb reproduce table-1 --users 10000 --steps 100
    """
    from lcb import charts
    from lcb.experiments import FIGURES
    from lcb.progress import bar

    sizes = {"users": users, "warmup-users": warmup_users, "steps": steps, "arms": arms, "classes": classes,
             "features": features, "contexts": contexts, "gap": gap}  # fmt: skip
    given = {name: value for name, value in sizes.items() if value is not None}
    if given and figure is not Figure.table_1:
        raise InputError(f"--{next(iter(given))} is a size of table-1; {figure.value} has its own, leave it out")
    if learner is not None and figure is not Figure.theory:
        raise InputError(f"--learner is a setting of theory; {figure.value} has none, leave it out")
    more: dict[str, Any] = {"sizes": _table_sizes(given)} if figure is Figure.table_1 else {}
    if learner is not None:
        more["learner"] = learner.value
    target = out / f"{figure.value}.png"
    check_output("--json", json, files=[target])
    charts.require()
    experiment = FIGURES[figure.value]
    with made_folder(out):
        check_writable(target)
        with bar() as progress:
            outcome = experiment.run(n_runs=runs, seed=seed, progress=progress, **more)
        charts.save(experiment.draw(outcome), target)
    write_json(json, experiment.to_json(outcome))
    if json != "-":
        for line in experiment.summary(outcome):
            typer.echo(line)
        typer.echo(f"figure in {target}")


def _table_sizes(given: dict[str, Any]) -> Sizes:
    """The simulation's sizes but for those given; `--users` counts both phases."""
    from lcb.experiments.table_1 import paper_sizes
    from lcb.theory import Sizes

    paper = paper_sizes()
    users, warmup_users = given.get("users", paper.all_users), given.get("warmup-users", paper.n_warmup_users)
    if warmup_users >= users:
        raise InputError(f"--warmup-users {warmup_users} of --users {users}; leave at least 1 for phase 2")
    return Sizes.of_equal_users(
        n_users=users - warmup_users,
        n_warmup_users=warmup_users,
        steps_per_user=given.get("steps", paper.longest),
        n_arms=given.get("arms", paper.n_arms),
        n_classes=given.get("classes", paper.n_classes),
        n_features=given.get("features", paper.n_features),
        n_contexts=given.get("contexts", paper.n_contexts),
        gap=given.get("gap", paper.gap),
    )
