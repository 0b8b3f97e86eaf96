"""`lcb evaluate`: compare algorithms offline, on a log."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.clusters import OnOption, spread_runs
from lcb.cli.options import JSONOption, ReadingName, WorkersOption, parse_names
from lcb.cli.output import build_table, check_output, format_number, get_console, write_json
from lcb.errors import InputError
from lcb.words import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.offline.labels import Reading
    from lcb.evaluate.offline.log_sources import Method
    from lcb.evaluate.offline.outcomes import Evaluation

_DEFAULT = "lcb-auto,lcb,lcb-mean,linucb-population,linucb-individual,random"


class MethodName(StrEnum):
    filled = "filled"
    queue = "queue"
    replay = "replay"
    ips = "ips"
    snips = "snips"
    dr = "dr"


class ArmsName(StrEnum):
    categories = "categories"
    items = "items"


def evaluate(
    path: Annotated[
        Path, typer.Argument(help="A log from lcb import, or a folder with events.parquet and items.parquet.")
    ],
    reading: Annotated[
        ReadingName | None,
        typer.Option(help="labels: an event has a reward or rating; choices: an event is an item that the user took."),
    ] = None,
    like: Annotated[float | None, typer.Option(help="Smallest rating that counts as liked (labels).")] = None,
    arms: Annotated[
        ArmsName,
        typer.Option(
            help="What is offered: categories (in a log without them, items); or the items that a test user has labels "
            "for, each until it is taken, with item effects and popularity among the algorithms."
        ),
    ] = ArmsName.categories,
    algorithms: Annotated[
        str | None, typer.Option(help=f"Algorithms, as a,b,c; without it {_DEFAULT}.", metavar="A,B,...")
    ] = None,
    train_users: Annotated[
        int | None, typer.Option(min=1, help="Users to train on; without it all that are not test users.")
    ] = None,
    test_users: Annotated[
        int | None,
        typer.Option(
            min=1, help="New users to serve; without it a quarter of those with enough events, at most 10000."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps per test user.")] = 20,
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Latent classes to learn, in lcb-auto too; without it chosen on held-out users."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="one-hot, multi-hot, raw or pca:K, each with or without +1 for a constant; without it chosen on "
            "training users, as lcb learn does. With --arms items also pca, with a K that is chosen, and factors:K, K "
            "features learned from the rewards alone.",
            metavar="SPEC",
        ),
    ] = None,
    method: Annotated[
        MethodName | None,
        typer.Option(
            help="How rewards come from the log (filled): queues of labels by user and arm, filled where labels run "
            "out or not; replay of events; or propensities."
        ),
    ] = None,
    train_on: Annotated[
        str, typer.Option(help="all (whole histories) or uniform:N (N random rows per training user).", metavar="ROWS")
    ] = "all",
    tune: Annotated[
        bool, typer.Option("--tune", help="First search the settings of every algorithm on training users; takes long.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of random splits of the users; each is trained and tested.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    workers: WorkersOption = None,
    on: OnOption = None,
    json: JSONOption = None,
) -> None:
    """Estimate from a log how algorithms would serve new users.

    Relative CTR is the mean reward of the algorithm divided by the mean reward of the same users in the log (with
    --arms items, the mean of their labels, one for each item). The last
    line is the gain of the best algorithm over one LinUCB for all users, or why this log cannot tell.

    \b
    Example:
      lcb evaluate goodbooks --like 5 --algorithms lcb,lcb-mean --classes 30 --features pca:6+1
      lcb evaluate goodbooks --like 5 --arms items
    """
    from lcb.evaluate.items.evaluate_items import ITEM_ALGORITHMS, ItemPlan, evaluate_items
    from lcb.evaluate.items.labels import read_item_labels
    from lcb.evaluate.offline.evaluate_log import evaluate_log
    from lcb.evaluate.offline.labels import default_reading
    from lcb.evaluate.offline.log_sources import open_source
    from lcb.evaluate.offline.outcomes import ESTIMATORS, POPULATION
    from lcb.evaluate.offline.split import Plan, choose_sizes
    from lcb.evaluate.tuning.tune_log import tune_seeds
    from lcb.progress import bar
    from lcb.storage.logs.log import open_log

    check_output("--json", json, files=[path] if path.is_file() else [], folders=[path] if path.is_dir() else [])
    names = parse_names(algorithms or _DEFAULT)
    how: Method = (method or MethodName.filled).value
    settings = None
    with spread_runs(on, workers) as report, bar() as shown:
        progress = report(shown)
        with_offers = reading is not ReadingName.labels if arms is ArmsName.items else how in (*ESTIMATORS, "replay")
        log = open_log(path, progress=progress, with_offers=with_offers)
        chosen: Reading = reading.value if reading else default_reading(log, like)
        if arms is ArmsName.items:
            _refuse_with_items(method=method, tune=tune, train_on=train_on != "all")
            evaluation = evaluate_items(
                read_item_labels(log, chosen, like, seed),
                ItemPlan(
                    steps, train_users, test_users, classes, features, names if algorithms else list(ITEM_ALGORITHMS)
                ),
                n_seeds=seeds,
                seed=seed,
                n_workers=workers,
                progress=progress,
            )
        else:
            source = open_source(log, how, chosen, like)
            n_train, n_test = choose_sizes(source.n_events, steps, train_users, test_users)
            plan = Plan(n_train, n_test, steps, classes, features, train_on, fixes_classes=classes is not None)
            if tune:
                every = [*dict.fromkeys((*names, POPULATION))]
                settings = tune_seeds(source, every, plan, range(seed, seed + seeds), progress)
            evaluation = evaluate_log(
                source, names, plan, settings=settings, n_seeds=seeds, seed=seed, n_workers=workers, progress=progress
            )
    about = {"path": str(path), "reading": chosen, "like": like, **evaluation.settings}
    by_seed = {} if settings is None else {"settings_by_seed": settings}
    write_json(json, {**evaluation.to_json(), "settings": {**about, **by_seed}})
    if json != "-":
        unused = (
            f"the items' {format_count(len(log.inputs), 'number')} of their own are not used: arms are categories; "
            "--arms items uses them"
        )
        several = (
            "items have several categories, and a step shows a category, not an item; --arms items evaluates the "
            "choice of items"
        )
        by_category = evaluation.settings["arm_kind"] == "category"
        told = (unused,) if log.inputs and arms is ArmsName.categories else ()
        hints = (several,) if by_category and log.item_categories.nnz > log.n_items else ()
        for note in (*log.notes, *told, *hints, *evaluation.settings.get("notes", ())):
            typer.echo(note)
        get_console().print(_build_table(evaluation, chosen))
        if evaluation.settings["why_features"]:
            typer.echo(f"seed {seed}: {evaluation.settings['why_features']}")
        for outcome in evaluation.outcomes:
            if outcome.diagnostics is not None and (outcome is evaluation.best or outcome.shortfall):
                typer.echo(outcome.diagnostics.describe(outcome.algorithm))
            for line in outcome.why:
                typer.echo(f"{outcome.algorithm}, seed {seed}: {line}")
        typer.echo(evaluation.describe())


def _refuse_with_items(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise InputError(
                f"--{name.replace('_', '-')} with --arms items, which is a method of its own and trains on all labels; "
                "leave it out"
            )


def _build_table(evaluation: Evaluation, reading: str) -> Table:
    """Return a table of one row per algorithm."""
    about = evaluation.settings
    different = list(dict.fromkeys(about["classes_by_seed"]))
    titles = ("algorithm", "relative CTR", "± se", "vs population", "± se", "no label", "train s", "serve s", "MB")
    caption = (
        f"{format_count(about['test_users'], 'new user')}, {format_count(about['steps'], 'step')} "
        f"({format_count(about['arms'], 'arm')}, each {'an item' if about['arm_kind'] == 'item' else 'a category'}), "
        f"{format_count(about['seeds'], 'seed')}; trained on {format_count(about['train_users'], 'user')} "
        f"({about['train_on']}), read as {reading}, {'/'.join(dict.fromkeys(about['features_by_seed']))}; "
        f"{about['method']}, {'/'.join(map(str, [*different[:-1], format_count(different[-1], 'class')]))}"
    )
    table = build_table(*titles, left=["algorithm"], caption=caption)
    for row in evaluation.to_json()["results"]:
        table.add_row(
            row["algorithm"],
            f"{row['relative_ctr']:.3f}",
            format_number(row["se"], 3),
            "-" if row["vs_population_percent"] is None else f"{row['vs_population_percent']:+.1f} %",
            format_number(row["vs_se"], 1),
            "-" if row["diagnostics"] is None else f"{100 * row['diagnostics']['withheld']:.0f} %",
            f"{row['training_seconds']:.1f}",
            f"{row['serving_seconds']:.1f}",
            f"{row['megabytes']:.0f}",
        )
    return table
