"""Imports a log: checks rows, sorts, drops duplicates, and writes all files or none."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lcb.errors import BadRows, InputError
from lcb.progress import Progress, silent
from lcb.storage.files import create_folder
from lcb.storage.importing.read_source import Reading
from lcb.storage.importing.sorting import MOST_ROWS, Arrays, Spill, find_repeated, sort_by_user_and_order
from lcb.storage.importing.source import Source
from lcb.storage.importing.writing import check_place, count_within_users, open_writer
from lcb.storage.logs.files import LogFiles
from lcb.words import format_count

DUPLICATES = ("drop", "stop", "keep")


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    files: LogFiles
    n_rows: int  # read
    n_events: int  # written
    n_users: int
    n_items: int
    categories: tuple[str, ...]  # in the order of their features
    n_inputs: int  # numbers of each item's own
    columns: tuple[str, ...]  # of events.parquet
    bad_rows: dict[str, int]  # left out, by reason
    listed: tuple[str, ...]  # the first of them
    n_duplicates: int
    duplicates: str  # what was done with them
    n_back: int  # events whose row is below a later event of the same user
    events_per_user: dict[str, float]
    notes: tuple[str, ...]
    seconds: float


def import_log(
    source: Source,
    out: str | os.PathLike[str],
    *,
    like: float | None = None,
    duplicates: str | None = None,
    on_error: str = "stop",
    most_rows: int = MOST_ROWS,
    progress: Progress | None = None,
) -> Imported:
    """Import a source into `out`, a folder or a .parquet file; see `lcb.storage.logs.log` for what is written.

    like          a rating of at least this is reward 1, a lower one 0
    duplicates    rows equal in user, item and time: "drop" all but the last, "stop", or "keep"; by default they are
                  dropped, but kept if the log has no time and the source allows repeated events
    on_error      bad rows: "stop" with counts and the first of them, or "skip" them
    most_rows     rows in memory at a time; more are spilled to disk

    Memory: about 40 bytes for each user and item and their names, and 100 to 200 bytes for each of `most_rows`.
    """
    began = time.monotonic()
    if duplicates is not None and duplicates not in DUPLICATES:
        raise InputError(f"duplicates={duplicates!r}; give one of {', '.join(DUPLICATES)}")
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error={on_error!r}; give stop or skip")
    files, report = LogFiles.at(out), progress or silent
    check_place(files, source.files)
    folder = files.events.parent
    with create_folder(folder), TemporaryDirectory(prefix=".lcb-import-", dir=folder) as inside:
        reading = Reading(source, Spill(Path(inside), most_rows), like)
        reading.read(report)
        _check_rows(reading, on_error)
        found = _write(reading, files, duplicates, report)
    return Imported(
        files=files,
        n_rows=reading.n_rows,
        bad_rows=dict(reading.problems.counts.most_common()),
        listed=reading.problems.lines(),
        seconds=time.monotonic() - began,
        **found,
    )


def _check_rows(reading: Reading, on_error: str) -> None:
    problems, name = reading.problems, reading.source.name
    if problems.n_rows and on_error == "stop":
        raise BadRows(
            f"{name} has {format_count(problems.n_rows, 'bad row')} of {reading.n_rows:,}: {problems.summary()}; "
            "correct them, or leave them out with lcb import --on-error skip",
            problems.lines(),
        )
    if not reading.spill.n_rows:
        left = f" ({problems.summary()})" if problems.n_rows else ""
        raise InputError(f"{name} has no good rows{left}; give a log with at least one event")


def _write(reading: Reading, files: LogFiles, duplicates: str | None, progress: Progress) -> dict[str, Any]:
    """Second pass: sort each part of the spilled rows, drop duplicates and write it."""
    users, rank, counts = reading.rank_users()
    items, place, n_differing = reading.build_items()
    if reading.source.vectors is not None:
        items = reading.source.vectors.add_to(items)
    is_timed = bool(reading.orders.kind)
    policy = duplicates or ("keep" if reading.source.repeats and not is_timed else "drop")
    user_counts, item_counts = np.zeros(len(users), np.int64), np.zeros(len(items.names), np.int64)
    n_back = n_duplicates = 0
    example = ""
    with open_writer(files, items, users, reading.features) as writer:
        for part in reading.spill.parts(rank, counts, progress):
            arrays, back = sort_by_user_and_order(part)
            arrays["item"] = place[arrays["item"]]
            again = find_repeated(arrays)
            if again.any():
                i = int(np.argmax(again))
                user, item = users[int(arrays["user"][i])].as_py(), items.names[int(arrays["item"][i])].as_py()
                example = example or f"user {user}, item {item}"
            if policy == "drop" and again.any():
                arrays = {name: values[~again] for name, values in arrays.items()}
            n_back, n_duplicates = n_back + back, n_duplicates + int(again.sum())
            low = int(arrays["user"][0])
            seen = np.bincount(arrays["user"] - low)
            user_counts[low : low + len(seen)] = seen
            item_counts += np.bincount(arrays["item"], minlength=len(item_counts))
            writer.add(_order_columns(arrays))
        if n_duplicates and policy == "stop":
            same = "user, item and time" if is_timed else "user and item"
            raise InputError(
                f"{reading.source.name} has {format_count(n_duplicates, 'row')} repeating {same}, such as {example}; "
                "give --duplicates drop or --duplicates keep"
            )
    notes = (
        [f"{format_count(n_differing, 'item', 'have')} different categories in different rows; all are kept"]
        if n_differing
        else []
    )
    return {
        "n_events": writer.n_events,
        "n_users": len(users),
        "n_items": len(items.names),
        "categories": tuple(items.categories),
        "n_inputs": len(items.inputs),
        "columns": writer.columns,
        "n_duplicates": n_duplicates,
        "duplicates": policy,
        "n_back": n_back,
        "events_per_user": {
            "median": float(np.median(user_counts)),
            "most": int(user_counts.max()),
            "users_with_5": int(np.sum(user_counts >= 5)),
            "users_with_20": int(np.sum(user_counts >= 20)),
        },
        "notes": (*reading.source.notes, *notes, *items.notes(item_counts)),
    }


def _order_columns(arrays: Arrays) -> Arrays:
    """Put columns in the order of the file; without a time, `order` counts the rows of each user."""
    order = arrays.get("order")
    first = {"user": arrays["user"], "order": count_within_users(arrays["user"]) if order is None else order}
    return first | {name: values for name, values in arrays.items() if name not in first}
