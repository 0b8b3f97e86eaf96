"""`lcb log compact`: archive old events of a log while it is served."""

from __future__ import annotations

import re
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import check_output, write_json
from lcb.cli.settings import StoreArgument, open_existing_store
from lcb.errors import InputError, need_extra
from lcb.words import format_count

_KEEP = re.compile(r"(\d{1,6})(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
ArchiveOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the archive.  [default: STORE.archive beside an SQLite file]",
        metavar="FOLDER",
    ),
]


def compact(
    store: StoreArgument,
    keep: Annotated[str, typer.Option(help="How old events get in the log: 90d, 12h, 30m, 2w.", metavar="AGE")],
    archive: ArchiveOption = None,
    idle: Annotated[bool, typer.Option(help="Archive also where all events are older than AGE by a day.")] = False,
    json: JSONOption = None,
) -> None:
    """Archive the events that are older than AGE, also while the log is served.

    What later events need of them stays in the log as its base: the state of every user and of the service, with a
    digest in the chain.  Settings, items, model versions, keys and the audit stay whatever their age.  Archived
    decisions take no reward any more.  A compaction that was ended is finished by the next one.

    A log whose newest event is older than AGE by a day is left as it is: nobody has asked since, or the clock of this
    machine is ahead, and recent decisions would be archived for good.  --idle archives it.

    \b
    Example:
      lcb log compact lcb.db --keep 90d         # every night
      lcb log verify lcb.db --archive lcb.db.archive
      lcb learn lcb.db.archive/rewards --out models
    """
    from lcb.progress import bar

    with need_extra("serve"):
        from lcb.serve.retain.compact import compact as run
        from lcb.serve.retain.cut import find_newest
        from lcb.serve.retain.folder import find_folder

    check_output("--json", json, files=[Path(store)])
    age = parse_age(keep)
    with open_existing_store(store) as opened, bar() as progress:
        folder = find_folder(opened.url, archive)
        if folder is None:
            raise InputError("a PostgreSQL store has no folder beside it; say with --archive where old events go")
        now = time.time()
        newest = find_newest(opened, now)
        if newest is not None and now - newest > age + _SECONDS["d"] and not idle:
            raise InputError(
                f"by the clock of this machine, {_format_time(now)}, the newest event of {store}, of "
                f"{_format_time(newest)}, is older than {keep}; if the clock is right and nobody has asked since, "
                "give --idle to archive all events"
            )
        done = run(opened, folder, age, address=socket.gethostname(), progress=progress)
    write_json(json, vars(done))
    if json == "-":
        return
    if done.n_ahead:
        typer.echo(
            f"{format_count(done.n_ahead, 'event')} with a time in the future: a clock was ahead; such events are "
            "archived with the first older event that follows them"
        )
    if not done.n_archived:
        finished = f"; {done.n_removed:,} rows of an ended compaction were removed" if done.n_removed else ""
        typer.echo(f"nothing to archive: the first event after {done.upto:,} is not older than {keep}{finished}")
        return
    typer.echo(
        f"archived {format_count(done.n_archived, 'event')} of {format_count(done.n_users, 'user')} in {done.archive}; "
        f"the log begins after event {done.upto:,} ({done.seconds:.1f} s)"
    )
    if done.n_kept:
        typer.echo(
            f"{format_count(done.n_kept, 'event')} stay in the log too, because later rewards change some of them"
        )


def _format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def parse_age(text: str) -> float:
    """Return seconds.

    >>> parse_age("90d")
    7776000.0
    """
    found = _KEEP.fullmatch(text)
    if found is None:
        raise InputError(f"--keep {text}; give a number and a unit, such as 90d, 12h or 30m")
    return float(int(found[1]) * _SECONDS[found[2]])
