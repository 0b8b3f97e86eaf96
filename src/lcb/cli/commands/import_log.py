"""`lcb import`: import a log of clicks, ratings or choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.options import JSONOption, parse_names
from lcb.cli.output import check_output, write_json
from lcb.errors import BadRows, InputError
from lcb.words import format_count, list_names

if TYPE_CHECKING:
    from lcb.datasets.dataset import Dataset
    from lcb.storage.importing.import_log import Imported


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
        typer.Argument(
            help="A .parquet, .csv, .tsv or .jsonl file, or the folder of a known data set.", metavar="SOURCE"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File events.parquet, or folder, to write.", metavar="PATH")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set in the folder, if its files do not tell; see --list.", metavar="NAME")
    ] = None,
    part: Annotated[str | None, typer.Option(help="Part of the data set, if it has parts; see --list.")] = None,
    user: Annotated[str | None, typer.Option(help="Column of the user.", metavar="COLUMN")] = None,
    item: Annotated[str | None, typer.Option(help="Column of the item.", metavar="COLUMN")] = None,
    reward: Annotated[
        str | None, typer.Option(help="Column of the reward, for example a click.", metavar="COLUMN")
    ] = None,
    rating: Annotated[str | None, typer.Option(help="Column of the rating.", metavar="COLUMN")] = None,
    like: Annotated[float | None, typer.Option(help="Smallest rating with reward 1; lower ones have reward 0.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time, as numbers or dates.", metavar="COLUMN")] = None,
    order: Annotated[
        str | None,
        typer.Option(help="Column with the order of a user's events, if there is no time.", metavar="COLUMN"),
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Column with the probability that the item was shown.", metavar="COLUMN")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Feature columns to keep.", metavar="A,B,...")] = None,
    items: Annotated[Path | None, typer.Option(help="Table of the items and their categories.")] = None,
    item_id: Annotated[
        str | None,
        typer.Option(
            help="Column of the item in --items; without it the same as in the log, or item.", metavar="COLUMN"
        ),
    ] = None,
    item_categories: Annotated[
        str | None, typer.Option(help="Column of the categories, in --items or in the log.", metavar="COLUMN")
    ] = None,
    item_features: Annotated[
        str | None,
        typer.Option(
            help="Numbers of the items' own, such as an embedding: a column of lists or numeric columns ('e*'), "
            "of --items or of the log, a table with a column of the item, or an .npy file.",
            metavar="FILE|COLUMN",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(help="Column of the items' titles, in --items or in the log; title is found.", metavar="COLUMN"),
    ] = None,
    separator: Annotated[str, typer.Option(help="Separator of categories in text.")] = "|",
    duplicates: Annotated[
        Duplicates | None,
        typer.Option(
            help="Rows of the same user, item and time: drop all but the last, stop, or keep (default if no time)."
        ),
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="Stop at bad rows, or skip them; they are counted and listed.")
    ] = OnError.stop,
    list_sets: Annotated[
        bool, typer.Option("--list", help="List the known data sets, where to get them and their licences.")
    ] = False,
    json: JSONOption = None,
) -> None:
    """Import a log of clicks, ratings or choices of any size.

    Columns that are called user, item, time or order, reward, rating, propensity and categories are found by
    themselves.  A log without rewards and ratings is a log of choices: each event is an item that the user took.
    Rows are checked, sorted by user and time, and duplicates dropped.  If a row is bad nothing is written, unless
    --on-error skip.  Memory grows with users and items, not with events.

    Folders of MovieLens, MIND, KuaiRand, Open Bandit and goodbooks-10k are recognised by their files.

    \b
    Example:
      lcb import clicks.csv --user visitor --item article --reward clicked --time at --out events.parquet
      lcb import ratings.jsonl --rating stars --like 4 --items films.csv --item-categories genres --out log
      lcb import clicks.csv --reward clicked --items articles.parquet --item-features embedding --out log
      lcb import ml-25m --like 4 --out movielens
    """
    from lcb.progress import bar
    from lcb.storage.importing.import_log import import_log as run
    from lcb.storage.importing.item_vectors import read_item_features
    from lcb.storage.importing.table_source import Columns, table_source

    if list_sets:
        _print_sets(json)
        return
    if source is None or out is None:
        raise InputError("SOURCE or --out is missing; give both, or see lcb import --list")
    if time and order:
        raise InputError("--time and --order were both given; give one of them")
    columns = {
        "user": user,
        "item": item,
        "reward": reward,
        "rating": rating,
        "order": time or order,
        "propensity": propensity,
        "categories": item_categories,
    }
    known = _find_dataset(source, dataset)
    if known is None:
        if part is not None:
            raise InputError(f"--part {part} is for a known data set, which {source} is not; leave it out")
        given = Columns(**columns, title=title, features=parse_names(features))
        opened = table_source(source, given, items=items, item_id=item_id, separator=separator)
        if item_features is not None:
            vectors = read_item_features(
                item_features,
                items or source,
                item_id or given.item or "item",
                given.item or "item",
                one_row_each=items is not None,
            )
            opened = replace(opened, vectors=vectors)
    else:
        _refuse_columns(
            known,
            {
                **columns,
                "items": items,
                "features": features,
                "item-id": item_id,
                "title": title,
                "item-features": item_features,
            },
        )
        opened = known.open(source, part)
    check_output("--json", json, files=[*opened.files])
    if known is not None and json != "-":
        typer.echo(f"{source} holds {known.title}: {known.reading} (licence: {known.licence})")
    try:
        with bar() as progress:
            policy = duplicates and duplicates.value
            found = run(opened, out, like=like, duplicates=policy, on_error=on_error.value, progress=progress)
    except BadRows as error:
        for line in error.listed:
            typer.echo(line, err=True)
        raise
    write_json(json, _summarise(found, source, out))
    if json != "-":
        for line in _describe(found, out):
            typer.echo(line)
    for line in found.listed:
        typer.echo(line, err=True)


def _find_dataset(source: Path, name: str | None) -> Dataset | None:
    """Return the known data set in a folder, by its name or by its files; None for other input."""
    from lcb.datasets import DATASETS, find_dataset

    if name is not None and name not in DATASETS:
        raise InputError(f"--dataset {name} is not known; give one of {', '.join(DATASETS)}")
    if not source.exists():
        raise InputError(f"{source} does not exist; give a file or a folder")
    if name is not None:
        return DATASETS[name]
    return find_dataset(source) if source.is_dir() else None


def _refuse_columns(known: Dataset, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise InputError(f"--{name} is not needed for {known.title}; leave it out, or import a single file")


def _summarise(found: Imported, source: Path, out: Path) -> dict[str, Any]:
    return {
        "source": str(source),
        "out": str(out),
        "files": [str(path) for path in (found.files.events, found.files.items, found.files.categories)],
        "rows": found.n_rows,
        "events": found.n_events,
        "users": found.n_users,
        "items": found.n_items,
        "categories": len(found.categories),
        "category_names": list(found.categories),
        "item_features": found.n_inputs,
        "columns": list(found.columns),
        "bad_rows": found.bad_rows,
        "listed": list(found.listed),
        "duplicates": {"rows": found.n_duplicates, "done": found.duplicates},
        "out_of_order": found.n_back,
        "events_per_user": found.events_per_user,
        "notes": list(found.notes),
        "seconds": found.seconds,
    }


def _describe(found: Imported, out: Path) -> list[str]:
    lines = [
        f"{format_count(found.n_events, 'event')} of {format_count(found.n_users, 'user')} on "
        f"{format_count(found.n_items, 'item')} in {format_count(len(found.categories), 'category')}, from "
        f"{format_count(found.n_rows, 'row')} ({found.seconds:.1f} s)"
    ]
    spread = found.events_per_user
    lines.append(
        f"events per user: median {spread['median']:g}, most {spread['most']:,}; "
        f"{format_count(spread['users_with_20'], 'user', 'have')} 20 or more"
    )
    if found.categories:
        lines.append(f"categories, in the order of their features: {list_names(found.categories)}")
    if found.bad_rows:
        reasons = ", ".join(f"{reason} ({n:,})" for reason, n in found.bad_rows.items())
        lines.append(f"skipped {format_count(sum(found.bad_rows.values()), 'bad row')}: {reasons}")
    if found.n_duplicates:
        done = "all but the last dropped" if found.duplicates == "drop" else "kept; drop them with --duplicates drop"
        lines.append(f"duplicates: {format_count(found.n_duplicates, 'row')}, {done}")
    if found.n_back:
        lines.append(f"sorted {format_count(found.n_back, 'row')} that came after a later row of the same user")
    if found.n_inputs:
        lines.append(f"every item has {format_count(found.n_inputs, 'number')} of its own")
    lines += [f"note: {note}" for note in found.notes]
    return [*lines, f"saved in {out}; columns {', '.join(found.columns)}"]


def _print_sets(json: str | None) -> None:
    from lcb.datasets import DATASETS

    fields = ("name", "title", "where", "licence", "files", "reading", "parts")
    write_json(json, [{field: getattr(one, field) for field in fields} for one in DATASETS.values()])
    if json == "-":
        return
    for one in DATASETS.values():
        typer.echo(f"{one.name}: {one.title}")
        for word, field in (("files", "files"), ("from", "where"), ("licence", "licence"), ("read", "reading")):
            typer.echo(f"    {word:9}{getattr(one, field)}")
    typer.echo("lcb downloads nothing: get a data set, read its licence, then give its folder to lcb import.")
