"""`lcb import`: from a log in any of the usual forms to the files that evaluation reads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, split_names, write_json
from lcb.errors import BadRows, InputError

if TYPE_CHECKING:
    from lcb.storage.importing.run import Imported
    from lcb.storage.importing.source import Source


class OnError(StrEnum):
    stop = "stop"
    skip = "skip"


class Duplicates(StrEnum):
    drop = "drop"
    stop = "stop"
    keep = "keep"


def import_log(
    source: Annotated[
        Path | None,
        typer.Argument(help="A .parquet, .csv, .tsv or .jsonl file, or the folder of a known set.", metavar="SOURCE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to: a file events.parquet, or a folder.", metavar="PATH")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The set in the folder, if its files do not tell; see --list.", metavar="NAME")
    ] = None,
    part: Annotated[str | None, typer.Option(help="Which part of the set, where it has parts; see --list.")] = None,
    user: Annotated[str | None, typer.Option(help="Column of the user.", metavar="COLUMN")] = None,
    item: Annotated[str | None, typer.Option(help="Column of the item.", metavar="COLUMN")] = None,
    reward: Annotated[str | None, typer.Option(help="Column of the reward, such as a click.", metavar="COLUMN")] = None,
    rating: Annotated[str | None, typer.Option(help="Column of the rating.", metavar="COLUMN")] = None,
    like: Annotated[float | None, typer.Option(help="Reward 1 for ratings from here on, else 0.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time: numbers or dates.", metavar="COLUMN")] = None,
    order: Annotated[
        str | None, typer.Option(help="Column of the place among the user's events, if no time.", metavar="COLUMN")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Column of the chance the item had to be shown.", metavar="COLUMN")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Columns of features to keep.", metavar="A,B,...")] = None,
    items: Annotated[Path | None, typer.Option(help="Table of the items, with their categories.")] = None,
    item_id: Annotated[
        str | None, typer.Option(help="Column of the item in --items; as in the log, or item.", metavar="COLUMN")
    ] = None,
    item_categories: Annotated[
        str | None,
        typer.Option(help="Column of the item's categories, in --items or else in the log.", metavar="COLUMN"),
    ] = None,
    separator: Annotated[str, typer.Option(help="Between categories, where they are text.")] = "|",
    duplicates: Annotated[
        Duplicates | None,
        typer.Option(help="Same user, item and time: drop all but the last, stop, or keep (default without a time)."),
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="Bad rows: stop, or skip them; either way they are counted and listed.")
    ] = OnError.stop,
    list_sets: Annotated[
        bool, typer.Option("--list", help="List the known sets, where to get them and their licences.")
    ] = False,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Import a log of clicks, ratings or choices, however large.

    Columns named user, item, time or order, reward, rating, propensity and categories need not be named.
    A log without rewards and ratings is one of choices: each event is what the user took.
    Rows are checked, sorted by user and time, and rid of duplicates; nothing is written if a row is bad,
    unless --on-error skip.  Memory grows with users and items, not with events.

    Folders of MovieLens, MIND, KuaiRand, Open Bandit and goodbooks-10k are known by their files.

    \b
    Example:
      lcb import clicks.csv --user visitor --item article --reward clicked --time at --out events.parquet
      lcb import ratings.jsonl --rating stars --like 4 --items films.csv --item-categories genres --out log
      lcb import ml-25m --like 4 --out movielens
    """
    from lcb.progress import bar
    from lcb.storage.importing.run import import_log as run

    if list_sets:
        _print_sets(json)
        return
    if source is None or out is None:
        raise InputError("a SOURCE and --out are wanted; see lcb import --help, or lcb import --list")
    if time and order:
        raise InputError("--time and --order both say what comes first; give one of them")
    columns = {
        "user": user, "item": item, "reward": reward, "rating": rating, "order": time or order,
        "propensity": propensity, "categories": item_categories,
    }  # fmt: skip
    opened, what = _opened(source, dataset, part, columns, split_names(features), items, item_id, separator)
    check_output("--json", json, files=[*opened.files], folders=[])
    if what and json != "-":
        typer.echo(what)
    try:
        with bar() as progress:
            found = run(
                opened, out, like=like, duplicates=duplicates and duplicates.value, on_error=on_error.value,
                progress=progress,
            )  # fmt: skip
    except BadRows as error:
        for line in error.listed:
            typer.echo(line, err=True)
        raise
    write_json(json, _summary(found, source, out))
    if json != "-":
        for line in _lines(found, out):
            typer.echo(line)
    for line in found.listed:
        typer.echo(line, err=True)


def _opened(
    source: Path, dataset: str | None, part: str | None, columns: dict[str, str | None], features: tuple[str, ...],
    items: Path | None, item_id: str | None, separator: str,
) -> tuple[Source, str]:  # fmt: skip
    """The source, and what a person should be told of how it was taken."""
    from lcb.datasets import DATASETS, found_in
    from lcb.storage.importing.table import Columns, table_source

    if dataset is not None and dataset not in DATASETS:
        raise InputError(f"--dataset {dataset} is not known; give one of {', '.join(DATASETS)}")
    if not source.exists():
        raise InputError(f"{source} does not exist; give a file or a folder")
    known = DATASETS[dataset] if dataset else found_in(source) if source.is_dir() else None
    if known is None:
        if part is not None:
            raise InputError(f"--part {part} is of a known set, which {source} is not; leave it out")
        given = Columns(**columns, features=features)
        return table_source(source, given, items=items, item_id=item_id, separator=separator), ""
    named = [f"--{name}" for name, value in columns.items() if value] + ["--items"] * (items is not None)
    if named or features or item_id:
        named += ["--features"] * bool(features) + ["--item-id"] * bool(item_id)
        raise InputError(f"{named[0]} names what is known of {known.title}; leave it out, or give the one file")
    return known.open(source, part), f"{source} holds {known.title}: {known.reading} (licence: {known.licence})"


def _summary(found: Imported, source: Path, out: Path) -> dict[str, Any]:
    return {
        "source": str(source),
        "out": str(out),
        "files": [str(path) for path in (found.files.events, found.files.items, found.files.categories)],
        "rows": found.n_rows,
        "events": found.n_events,
        "users": found.n_users,
        "items": found.n_items,
        "categories": found.n_categories,
        "columns": list(found.columns),
        "bad_rows": found.bad_rows,
        "listed": list(found.listed),
        "duplicates": {"rows": found.n_duplicates, "done": found.duplicates},
        "out_of_order": found.n_back,
        "events_per_user": found.events_per_user,
        "notes": list(found.notes),
        "seconds": found.seconds,
    }


def _lines(found: Imported, out: Path) -> list[str]:
    lines = [
        f"{found.n_events:,} events of {found.n_users:,} users on {found.n_items:,} items in {found.n_categories:,} "
        f"categories, from {found.n_rows:,} rows ({found.seconds:.1f} s)"
    ]
    spread = found.events_per_user
    lines.append(
        f"events of a user: median {spread['median']:g}, most {spread['most']:,}; "
        f"{spread['users_with_20']:,} users have 20 or more"
    )
    if found.bad_rows:
        reasons = ", ".join(f"{reason} ({n:,})" for reason, n in found.bad_rows.items())
        lines.append(f"bad rows left out: {sum(found.bad_rows.values()):,}: {reasons}")
    if found.n_duplicates:
        done = "all but the last dropped" if found.duplicates == "drop" else "kept; drop them with --duplicates drop"
        lines.append(f"duplicates: {found.n_duplicates:,} rows, {done}")
    if found.n_back:
        lines.append(f"time goes backwards: {found.n_back:,} rows stood after a later one of the same user; sorted")
    lines += [f"note: {note}" for note in found.notes]
    return [*lines, f"saved in {out}; columns {', '.join(found.columns)}"]


def _print_sets(json: str | None) -> None:
    from lcb.datasets import DATASETS

    fields = ("name", "title", "where", "licence", "files", "reading", "parts")
    write_json(json, [{field: getattr(made, field) for field in fields} for made in DATASETS.values()])
    if json == "-":
        return
    for made in DATASETS.values():
        typer.echo(f"{made.name}: {made.title}")
        for word, text in (
            ("files", made.files),
            ("from", made.where),
            ("licence", made.licence),
            ("read", made.reading),
        ):
            typer.echo(f"    {word:9}{text}")
    typer.echo("Nothing is downloaded: get a set, read its licence, and give its folder to lcb import.")
