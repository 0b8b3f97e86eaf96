"""`lcb log`: export, back up and show the log of a decision service; `verify` and `compact` have files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.commands.service.compact import ArchiveOption
from lcb.cli.commands.service.verify import verify
from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.cli.settings import StoreArgument, open_existing_store, read_events_of
from lcb.errors import InputError, need_extra
from lcb.words import format_count

if TYPE_CHECKING:
    from lcb.serve.audit.export import Exported

log = typer.Typer(
    help="Verify, export, back up, show and audit the log of a decision service, most of it while it runs.\n\n"
    "\b\nExample:\n  lcb log verify lcb.db",
    no_args_is_help=True,
    rich_markup_mode=None,
)


log.command()(verify)


@log.command()
def head(store: StoreArgument, json: JSONOption = None) -> None:
    """Print the head of a log, as SEQ:LINK: the number of its last event, and the link of that event in the chain.

    Keep it where those who can write to the store cannot: the link depends on every event up to that one, so a log
    that was changed or cut later does not have this head (lcb log verify --head).

    \b
    Example:
      lcb log head lcb.db >> heads.txt
    """
    check_output("--json", json, files=[Path(store)])
    with open_existing_store(store) as opened:
        found = opened.chain_head()
    if found.link is None:
        raise InputError(f"{store} has no chain yet: it begins with the next event that this version of lcb writes")
    write_json(json, {"seq": found.seq, "link": found.link.hex()})
    if json != "-":
        typer.echo(found)


@log.command()
def rebuild(store: StoreArgument) -> None:
    """Forget all snapshots, so that the next start computes every state from the events of the log.

    Snapshots only make starts faster; nothing is lost.  Stop the service before: what it has in memory stays.  A log
    that was compacted begins at its base, which is part of the log.

    \b
    Example:
      lcb log rebuild lcb.db
    """
    with open_existing_store(store, serve=True) as opened:
        n_forgotten, n_events = opened.forget_snapshots(), opened.head()
        base = opened.newest_of_service(("compact",), limit=1)
    whole = f"all {n_events:,} events" if not base else f"the base and the events after it, up to {n_events:,}"
    typer.echo(f"forgot {format_count(n_forgotten, 'snapshot')}; the next start reads {whole}")


@log.command()
def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Argument(help="A .parquet file, or a folder.", metavar="OUT")],
    missing: Annotated[
        str | None,
        typer.Option(
            help="Reward of decisions that have none: a number, or none for null; without it they are left out."
        ),
    ] = None,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Leave out arms that callers chose without sending a propensity.")
    ] = False,
    recommender: Annotated[str | None, typer.Option(help="Export only decisions of this recommender.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Export only decisions from this time on, UTC.", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    ] = None,
    archive: ArchiveOption = None,
    json: JSONOption = None,
) -> None:
    """Export the log as a table for lcb learn and lcb evaluate: one row per decision and slot.

    The items of the catalogue are written beside it, as lcb import does.  Archived decisions are exported with
    --archive.

    \b
    Example:
      lcb log export lcb.db events.parquet
      lcb learn events.parquet --out models
      lcb evaluate events.parquet --method ips --algorithms lcb-mean,random
    """
    from lcb.progress import bar

    with need_extra("serve"):
        from lcb.serve.audit.export import export as run
        from lcb.serve.retain.whole_log import open_restored

    check_output("--json", json, files=[Path(store), out])
    if out.suffix not in ("", ".parquet"):
        raise InputError(f"{out} is neither a .parquet file nor a folder; give a name in .parquet, or without a dot")
    reward = _parse_missing(missing)
    with open_existing_store(store) as read, bar() as progress, ExitStack() as held:
        opened = read if archive is None else held.enter_context(open_restored(read, archive, progress))
        begin = None if since is None else since.replace(tzinfo=UTC).timestamp()
        done = run(
            opened,
            out,
            missing=reward,
            only_known=only_known,
            recommender=recommender,
            since=begin,
            progress=progress,
        )
    support = None if done.uniform is None else done.uniform.to_json()
    write_json(json, {**vars(done), "uniform": support})
    if json != "-":
        for line in _describe_export(done, missing):
            typer.echo(line)


def _parse_missing(text: str | None) -> float | str | None:
    if text is None:
        return "leave out"
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--missing {text}; give a number, or none") from None


def _describe_export(done: Exported, missing: str | None) -> Iterator[str]:
    yield (
        f"{format_count(done.n_rows, 'row')} of {format_count(done.n_users, 'user')} on "
        f"{format_count(done.n_items, 'item')}, up to event {done.upto:,}"
    )
    if done.n_open and missing is None:
        yield f"{format_count(done.n_open, 'decision')} without a reward left out"
    elif done.n_open:
        yield f"{done.n_open:,} of them have no reward yet; exported with reward {missing}"
    if done.n_below:
        yield f"{format_count(done.n_below, 'row')} of lower slots of lists, with propensities given the slots above"
    if done.n_unknown:
        words = "no propensity: the caller chose the arm and sent none, or less than 1e-9"
        yield f"{format_count(done.n_unknown, 'row', 'have')} {words}"
    if done.n_ruled_out:
        words = "left out: the caller has shown an arm that the rules of the request rule out"
        yield f"{format_count(done.n_ruled_out, 'decision')} {words}"
    if done.n_some:
        yield (
            f"{format_count(done.n_some, 'row')} offered only some of the {done.n_items:,} items; evaluate this table "
            "with --method ips, snips or dr, the other methods assume that all were offered"
        )
    if done.uniform is not None:
        yield done.uniform.describe("the uniform policy")
    yield f"saved in {', '.join(done.files)}"


@log.command()
def backup(
    store: StoreArgument, out: Annotated[Path, typer.Argument(help="File to write; it must not exist.", metavar="OUT")]
) -> None:
    """Copy a whole SQLite store as it is at one moment, also while it is served.

    The copy is a store too: it can be served and verified.  Back up a PostgreSQL store with pg_dump.

    \b
    Example:
      lcb log backup lcb.db monday.db
    """
    from lcb.progress import bar

    with open_existing_store(store) as opened, bar() as progress:
        opened.backup(str(out), progress)
    typer.echo(f"copied {store} to {out} ({out.stat().st_size:,} bytes)")


@log.command()
def show(
    store: StoreArgument,
    user: Annotated[str | None, typer.Option(help="Show only the events of this user.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of events, counted from the end.")] = 20,
    json: JSONOption = None,
) -> None:
    """Show the last events of a log, one line each.

    \b
    Example:
      lcb log show lcb.db --user ann
    """
    with need_extra("serve"):
        from lcb.serve.audit.describe import describe_row

    check_output("--json", json, files=[Path(store)])
    with open_existing_store(store) as opened:
        if user is None:
            rows = list(opened.events(max(0, opened.head() - last)))
        else:
            rows = read_events_of(opened, user)[-last:]
    events = [describe_row(row) for row in rows]
    write_json(json, events)
    if json != "-":
        for event in events:
            who = "" if event["user"] is None else f"{event['user']}: "
            typer.echo(f"{event['seq']:>9,}  {event['time'] or '-':19}  {event['kind']:15}  {who}{event['words']}")


@log.command()
def audit(
    store: StoreArgument,
    last: Annotated[int, typer.Option(min=1, help="Number of entries, counted from the end.")] = 100,
    json: JSONOption = None,
) -> None:
    """Show who signed in, changed models, erased users, created keys, or was refused.

    Refusals are counted per address and minute.  The key is empty where no key was needed or known.

    \b
    Example:
      lcb log audit lcb.db --last 20
    """
    with need_extra("serve"):
        from lcb.serve.audit.trail import read_trail

    check_output("--json", json, files=[Path(store)])
    with open_existing_store(store) as opened:
        entries = read_trail(opened, last)
    write_json(json, entries)
    if json == "-":
        return
    if not entries:
        typer.echo("no entries: nobody has signed in, changed anything or been refused")
        return
    titles = ("time", "key", "address", "action", "times")
    table = build_table(*titles, left=titles[:4], wrapped=("key", "address", "action"))
    for one in entries:
        table.add_row(one["time"], one["key"] or "", one["address"] or "", one["action"], f"{one['n']:,}")
    get_console().print(table)
