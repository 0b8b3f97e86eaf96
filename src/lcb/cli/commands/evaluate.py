"""`lcb evaluate`: would these algorithms have done better on this log?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.output import JSON_HELP, check_output, console, split_names, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.offline.evaluate_log import Evaluation
    from lcb.evaluate.offline.labels import Reading
    from lcb.evaluate.offline.log_sources import LogSource

_DEFAULT = "lcb,lcb-mean,linucb-population,linucb-individual,random"
_MOST_TESTED = 10_000


class MethodName(StrEnum):
    queue = "queue"
    replay = "replay"
    ips = "ips"
    snips = "snips"
    dr = "dr"


class ReadingName(StrEnum):
    labels = "labels"
    choices = "choices"


def evaluate(
    path: Annotated[Path, typer.Argument(help="An imported log, or a folder of events.parquet and items.parquet.")],
    reading: Annotated[
        ReadingName | None,
        typer.Option(help="labels: each event has a reward or rating; choices: each event is what the user took."),
    ] = None,
    like: Annotated[float | None, typer.Option(help="The rating from which on an item is liked (labels).")] = None,
    algorithms: Annotated[str, typer.Option(help="Algorithms, as a,b,c.", metavar="A,B,...")] = _DEFAULT,
    train_users: Annotated[
        int | None, typer.Option(min=1, help="Users to train on; all others when not given.")
    ] = None,
    test_users: Annotated[
        int | None,
        typer.Option(min=1, help="New users to serve; a quarter of those with enough events, at most 10000."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps per test user.")] = 20,
    classes: Annotated[int, typer.Option(min=1, help="Latent classes to learn.")] = 30,
    features: Annotated[
        str, typer.Option(help="one-hot or pca:K, either with +1 for a constant.", metavar="SPEC")
    ] = "one-hot",
    method: Annotated[
        MethodName,
        typer.Option(help="How the log answers; replay works event by event, ips, snips, dr by propensities."),
    ] = MethodName.queue,
    train_on: Annotated[
        str, typer.Option(help="all (whole histories) or uniform:N (N random pulls per training user).", metavar="ROWS")
    ] = "all",
    tune: Annotated[
        bool, typer.Option("--tune", help="Search every algorithm's settings on training users first; takes long.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Splits of the users, each trained and tested anew.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core when not given.")] = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Say how algorithms would have done on a log, for users they have never met.

    Relative CTR is the algorithm's mean reward divided by the mean reward in the data of the same users.

    \b
    Example:
      lcb evaluate goodbooks --like 5 --algorithms lcb,lcb-mean --classes 30 --features pca:6+1
    """
    from lcb.evaluate.offline.evaluate_log import POPULATION, Plan, evaluate_log
    from lcb.evaluate.offline.labels import default_reading
    from lcb.evaluate.offline.log_sources import open_source
    from lcb.evaluate.tuning.tune_log import tune_seeds
    from lcb.progress import bar
    from lcb.storage.logs.log import open_log

    check_output("--json", json, files=[path] if path.is_file() else [], folders=[path] if path.is_dir() else [])
    names = split_names(algorithms)
    with bar() as progress:
        log = open_log(path, progress=progress)
        chosen: Reading = reading.value if reading else default_reading(log, like)
        source = open_source(log, method.value, chosen, like)
        n_test, n_train = _sizes(source, steps, test_users, train_users)
        plan = Plan(n_train, n_test, steps, classes, features, train_on)
        settings = (
            tune_seeds(source, [*dict.fromkeys((*names, POPULATION))], plan, range(seed, seed + seeds), progress)
            if tune
            else None
        )
        evaluation = evaluate_log(
            source, names, plan, settings=settings, n_seeds=seeds, seed=seed, n_workers=workers, progress=progress
        )
    about = {"path": str(path), "reading": chosen, "like": like, **evaluation.settings}
    by_seed = {} if settings is None else {"settings_by_seed": settings}
    write_json(json, {**evaluation.to_json(), "settings": {**about, **by_seed}})
    if json != "-":
        for note in log.notes:
            typer.echo(note)
        console().print(outcome_table(evaluation, chosen))
        typer.echo(_in_a_sentence(evaluation))


def _in_a_sentence(evaluation: Evaluation) -> str:
    """The first of those asked for, against one model for everybody."""
    from lcb.evaluate.offline.evaluate_log import POPULATION

    rows = [row for row in evaluation.to_json()["results"] if row["algorithm"] != POPULATION]
    if not rows:
        return "name another algorithm beside linucb-population to compare it with"
    best = rows[0]
    gain, half = best["vs_population_percent"], 1.96 * best["vs_se"]
    more = "more" if gain >= 0 else "fewer"
    low, high = sorted((abs(gain) - half, abs(gain) + half))
    return (
        f"{best['algorithm']} would have had {abs(gain):.1f} % (95 %: {low:.1f} to {high:.1f}) {more} clicks than one "
        "model for everybody"
    )


def _sizes(source: LogSource, steps: int, test_users: int | None, train_users: int | None) -> tuple[int, int]:
    n_able, n_any = int((source.n_events >= steps).sum()), int((source.n_events > 0).sum())
    n_test = test_users if test_users is not None else max(1, min(n_able // 4, _MOST_TESTED))
    return n_test, train_users if train_users is not None else max(1, n_any - n_test)


def outcome_table(evaluation: Evaluation, reading: str) -> Table:
    """One row per algorithm."""
    from rich import box
    from rich.table import Table

    about = evaluation.settings
    table = Table(
        title=f"{about['test_users']:,} new users, {about['steps']} steps, {about['seeds']} seeds; trained on "
        f"{about['train_users']:,} users ({about['train_on']}), read as {reading}, {about['features']}",
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    for title in ("algorithm", "relative CTR", "± se", "vs population", "± se", "train s", "serve s", "MB"):
        table.add_column(title, justify="left" if title == "algorithm" else "right", no_wrap=True)
    for row in evaluation.to_json()["results"]:
        table.add_row(
            row["algorithm"], f"{row['relative_ctr']:.3f}", f"{row['se']:.3f}",
            f"{row['vs_population_percent']:+.1f} %", f"{row['vs_se']:.1f}",
            f"{row['training_seconds']:.1f}", f"{row['serving_seconds']:.1f}", f"{row['megabytes']:.0f}",
        )  # fmt: skip
    return table
