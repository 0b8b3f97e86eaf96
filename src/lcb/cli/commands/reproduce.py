"""`lcb reproduce`: run the experiment behind a figure, table or theorem of the paper."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.clusters import OnOption, spread_runs
from lcb.cli.options import JSONOption, ReadingName, parse_algorithms
from lcb.cli.output import check_output, write_json
from lcb.errors import InputError
from lcb.experiments import EXPERIMENTS

if TYPE_CHECKING:
    from lcb.evaluate.offline.labels import Reading
    from lcb.experiments.real_data import Data
    from lcb.theory import Sizes


if TYPE_CHECKING:
    Figure = str
else:
    Figure = StrEnum("Figure", {name.replace("-", "_"): name for name in (*EXPERIMENTS, "report")})

SIMULATED, REAL = ("fig-2a", "fig-2b"), ("fig-3a", "fig-3b", "fig-3c")
_TABLE = ("users", "warmup-users", "steps", "arms", "classes", "features", "contexts", "gap")
_BELONGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_TABLE, ("table-1",)),
    "features": ("table-1", *REAL),
    "algorithms": SIMULATED,
    "learner": ("theory",),
    **dict.fromkeys(("reading", "settings"), REAL),
    **dict.fromkeys(("data", "like"), (*REAL, "report")),
}


class TheoryLearner(StrEnum):
    em = "em"
    spectral = "spectral"


def _build_size_option(letter: str, what: str, default: str, least: int = 1) -> Any:
    return typer.Option(min=least, help=f"table-1: {what}, {letter} in the paper; without it {default}.")


def reproduce(
    figure: Annotated[Figure, typer.Argument(help="Figure, table or theorem of the paper.")],
    runs: Annotated[
        int | None, typer.Option(min=1, help="Independent runs, or seeds; without it 10 in simulations, 3 on a log.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for NAME.png, NAME.svg and NAME.json.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the runs.")] = 0,
    on: OnOption = None,
    json: JSONOption = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="fig-2a, fig-2b: a,b,c, or all; without it those of the paper and four newer.", metavar="A,B,..."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="fig-3a to fig-3c, report: a log from lcb import.")] = None,
    reading: Annotated[ReadingName | None, typer.Option(help="fig-3a to fig-3c: as in lcb evaluate.")] = None,
    like: Annotated[
        float | None, typer.Option(help="fig-3a to fig-3c, report: smallest rating that counts as liked.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="fig-3a to fig-3c: use the tuned settings in the JSON file of another of them.")
    ] = None,
    learner: Annotated[
        TheoryLearner | None, typer.Option(help="theory: learner of the classes; without it em.")
    ] = None,
    users: Annotated[int | None, _build_size_option("J + U", "users of both phases", "1000", 2)] = None,
    warmup_users: Annotated[int | None, _build_size_option("J", "users of phase 1", "50")] = None,
    steps: Annotated[int | None, _build_size_option("T_u", "steps per user", "20")] = None,
    arms: Annotated[int | None, _build_size_option("K", "arms per step", "20")] = None,
    classes: Annotated[int | None, _build_size_option("N", "latent classes", "5")] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="table-1: number of features, d in the paper; fig-3a to fig-3c: one-hot or pca:K, either with +1."
        ),
    ] = None,
    contexts: Annotated[int | None, _build_size_option("C", "different contexts", "infinite")] = None,
    gap: Annotated[
        float | None,
        typer.Option(help="table-1: smallest distance between two classes; without it that of fig-1, 0.777."),
    ] = None,
) -> None:
    """Run the experiment behind a figure, table or theorem of Zhou & Brunskill 2016.

    \b
    fig-1    the five latent models of the simulation
    fig-2a   averaged per-user regret against the number of users
    fig-2b   averaged per-user regret against the number of interactions per user
    fig-3a   relative CTR on a log against the number of training users
    fig-3b   relative CTR on a log against the number of latent models
    fig-3c   relative CTR of a log's users, coming one after another
    table-1  the regret bounds as numbers, at the simulation's sizes or others
    table-2  the user study with simulated visitors, 5 per recommender and 1000
    theory   the schedules of Theorems 1 and 2: measured growth of regret beside the bounds
    report   one HTML page of all of them, with our numbers beside the paper's; what is missing in --out is run

    lcb reproduce NAME --help lists the options of one of them.

    \b
    Example:
      lcb reproduce fig-2a --runs 10 --out figures
      lcb reproduce fig-3a --data goodbooks --like 5
      lcb reproduce table-1 --users 10000 --steps 100
      lcb reproduce report --data goodbooks --like 5
    """
    from lcb.experiments import load_experiment
    from lcb.experiments.reproduce import reproduce as run
    from lcb.progress import bar

    options = {
        "users": users,
        "warmup-users": warmup_users,
        "steps": steps,
        "arms": arms,
        "classes": classes,
        "features": features,
        "contexts": contexts,
        "gap": gap,
        "algorithms": algorithms,
        "learner": learner,
        "data": data,
        "reading": reading,
        "like": like,
        "settings": settings,
    }
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if figure not in _BELONGS[name]:
            theirs = ", ".join(_BELONGS[name])
            raise InputError(f"--{name} is an option of {theirs}, not of {figure}; leave it out")
    if figure == "report":
        _write_report(out, data, like, 10 if runs is None else runs)
        return
    more: dict[str, Any] = {"seed": seed, "n_runs": runs if runs is not None else 3 if figure in REAL else 10}
    if figure == "table-1":
        more["sizes"] = _build_sizes(given)
    if figure in SIMULATED and algorithms is not None:
        more["algorithms"] = parse_algorithms(algorithms, ())
    if learner is not None:
        more["learner"] = learner.value
    if figure in REAL:
        more["data"] = _build_data(figure, given)
    check_output("--json", json, files=[out / f"{figure}.{suffix}" for suffix in ("png", "svg", "json")])
    experiment = load_experiment(figure)
    command = shlex.join(["lcb", *sys.argv[1:]]) if sys.argv[1:2] == ["reproduce"] else f"lcb reproduce {figure}"
    with spread_runs(on) as report, bar() as shown:
        outcome = run(figure, experiment, out, command, report(shown), **more)
    write_json(json, experiment.to_json(outcome))
    if json != "-":
        for line in experiment.summarise(outcome):
            typer.echo(line)
        typer.echo(f"figure in {out / figure}.png")


def list_options(name: str) -> list[str]:
    """Return the options of one figure or table: those of all, and its own."""
    common = ["out", "json", *(["runs"] if name == "report" else ["runs", "seed", "on"])]
    return [*common, *(option for option, theirs in _BELONGS.items() if name in theirs)]


def _write_report(figures: Path, data: Path | None, like: float | None, runs: int) -> None:
    from lcb.experiments.report import collect_sections, render_page
    from lcb.storage.files import write_whole

    page = figures / "report.html"
    sections, missing = collect_sections(
        figures, data, like, runs, lambda name: typer.echo(f"running {name}", err=True)
    )
    write_whole(page, render_page(sections, missing).encode())
    typer.echo(f"{len(sections)} figures and tables in {page}")
    for name in missing:
        typer.echo(f"left out: {name}; it needs a log, give one with --data")


def _build_data(figure: Figure, given: dict[str, Any]) -> Data:
    from lcb.experiments.real_data import Data, parse_tuned
    from lcb.storage.files import read_json

    if "data" not in given:
        raise InputError(f"{figure} needs a log; give one with --data (lcb import makes it)")
    tuned = None
    if "settings" in given:
        tuned = parse_tuned(read_json(given["settings"]), str(given["settings"]))
    reading: Reading | None = given["reading"].value if "reading" in given else None
    return Data(str(given["data"]), reading, given.get("like"), given.get("features", "one-hot"), tuned)


def _build_sizes(given: dict[str, Any]) -> Sizes:
    """Return the sizes of the simulation, replaced by those given; `--users` counts both phases."""
    from lcb.experiments.table_1 import paper_sizes
    from lcb.theory import Sizes

    paper = paper_sizes()
    users, warmup_users = given.get("users", paper.all_users), given.get("warmup-users", paper.n_warmup_users)
    if warmup_users >= users:
        raise InputError(f"--warmup-users {warmup_users} of --users {users}; leave at least 1 user for phase 2")
    features = str(given.get("features", paper.n_features))
    if not features.isdecimal() or int(features) < 1:
        raise InputError(f"--features {features}; for table-1 give a number of features, 1 or more")
    return Sizes.of_equal_users(
        n_users=users - warmup_users,
        n_warmup_users=warmup_users,
        steps_per_user=given.get("steps", paper.longest),
        n_arms=given.get("arms", paper.n_arms),
        n_classes=given.get("classes", paper.n_classes),
        n_features=int(features),
        n_contexts=given.get("contexts", paper.n_contexts),
        gap=given.get("gap", paper.gap),
    )
