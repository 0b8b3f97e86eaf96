"""`lcb log`: verify, export, back up and show the log of a decision service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.commands.service.compact import ArchiveOption
from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.cli.settings import open_existing_store
from lcb.errors import InputError, need_extra
from lcb.words import format_count

if TYPE_CHECKING:
    from lcb.serve.audit.export import Exported
    from lcb.serve.audit.report import Report
    from lcb.storage.store.base import Head, Row, Store

_HEAD = re.compile(r"\d{1,18}:[0-9a-f]{64}")
log = typer.Typer(
    help="Verify, export, back up, show and audit the log of a decision service, most of it while it runs.\n\n"
    "\b\nExample:\n  lcb log verify lcb.db",
    no_args_is_help=True,
    rich_markup_mode=None,
)
StoreArgument = Annotated[str, typer.Argument(help="A file, or postgresql://user@host/name.", metavar="STORE")]


@log.command()
def verify(
    store: StoreArgument,
    user: Annotated[str | None, typer.Option(help="Of the decisions, recompute only those of this user.")] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="Heads that the log had, as lcb log head prints them: SEQ:LINK, or a file with one per line.",
            metavar="HEAD",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(help="For a part of a log: the head before its first event, as SEQ:LINK.", metavar="HEAD"),
    ] = None,
    archive: ArchiveOption = None,
    json: JSONOption = None,
) -> None:
    """Recompute every decision of a log and compare it bit for bit.

    The chain of the events must be unbroken.  The log is replayed from its first event: arms, propensities,
    distributions, rewards, snapshots and models must equal what is stored.  Differences are listed, and the exit code
    is then 1.  A log whose end was cut off is found with --head.  Heads from before the base of a compacted log are
    checked in its archive, STORE.archive beside a file; a head that cannot be checked is named, and the exit code is 1.

    A log that was compacted is replayed from its base, whose digest is in the chain; with --archive everything is
    recomputed from the first event on, in a temporary copy of the whole log.

    A part of a log, such as an archive without the first events, is verified with --after: its order and its chain,
    from that head on.  Decisions are not recomputed, because they rest on the events before.

    \b
    Example:
      lcb log head lcb.db >> heads.txt      # every day, on another machine
      lcb log verify lcb.db --head heads.txt
      lcb log verify archive.db --after "$(lcb log head monday.db)"
    """
    from lcb.progress import bar

    with need_extra("serve"):
        from lcb.serve.audit.verify import verify as run
        from lcb.serve.retain.folder import find_folder

    check_output("--json", json, files=[Path(store)])
    heads = [] if head is None else _parse_heads(head)
    before = None if after is None else _parse_head("--after", after)
    if before is not None and user is not None:
        raise InputError("--after verifies order and chain of a part and recomputes no decisions; leave out --user")
    with open_existing_store(store) as opened:
        if user is not None:
            _read_events(opened, user)
        with bar() as progress:
            if archive is None:
                place = find_folder(store, None)
                report = run(opened, progress, user=user, heads=heads, after=before, archive=place)
            elif before is not None:
                raise InputError("--after verifies a part of a log, --archive a whole one; leave out one of the two")
            else:
                from lcb.serve.audit.verify_archive import verify_whole  # with pyarrow, which takes a while to import

                report = verify_whole(opened, Path(archive), progress, user=user, heads=heads)
    write_json(json, report.to_json())
    if json != "-":
        for line in _describe_report(report):
            typer.echo(line)
    if not report.is_clean:
        raise typer.Exit(1)


def _parse_heads(given: str) -> list[Head]:
    """Return heads from SEQ:LINK, or from the lines of a file."""
    lines = [given]
    if _HEAD.fullmatch(given) is None:
        try:
            lines = [line.strip() for line in Path(given).read_text().splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--head {given} is neither SEQ:LINK, as lcb log head prints it, nor a file that can be read ({error})"
            ) from None
        if not lines:
            raise InputError(f"--head {given} has no head in it; write one with lcb log head")
    return [_parse_head(f"--head {given}:", line) for line in lines]


def _parse_head(where: str, text: str) -> Head:
    from lcb.storage.store.base import Head

    if _HEAD.fullmatch(text) is None:
        raise InputError(f"{where} {text[:80]!r} is not SEQ:LINK; give what lcb log head has printed")
    seq, _, link = text.partition(":")
    return Head(int(seq), bytes.fromhex(link))


def _describe_report(report: Report) -> Iterator[str]:
    if report.after:
        yield f"{report.n_events:,} events after {report.after:,}: order and chain checked ({report.seconds:.1f} s)"
        if (first := report.unchecked_from) is not None:
            yield f"events {first:,} to {report.after:,} were not checked; for the whole log leave out --after"
        yield from _describe_differences(report)
        return
    yield (
        f"{format_count(report.n_events, 'event')}: recomputed {format_count(report.n_decisions, 'decision')} of "
        f"{format_count(report.n_users, 'user')}, {format_count(report.n_rewards, 'reward')}, "
        f"{format_count(report.n_models, 'model')}, {format_count(report.n_snapshots, 'snapshot')} "
        f"({report.seconds:.1f} s)"
    )
    if report.base:
        words = "the events up to it are archived, and --archive FOLDER verifies them too"
        yield f"the log begins after event {report.base:,}: {words}"
    if report.n_older_heads:
        older = format_count(report.n_older_heads, "given head", "are")
        yield f"warning: {older} from before the compaction; its base was not checked: give --archive FOLDER"
    if report.n_across:
        yield f"{format_count(report.n_across, 'decision')} made from archived states: only the archive can tell"
    if report.n_late:
        yield f"{format_count(report.n_late, 'reward')} of archived decisions: only the archive can tell"
    if report.n_unfinished:
        yield f"a compaction was ended with {report.n_unfinished:,} rows left to remove: run lcb log compact again"
    if report.n_erased:
        yield f"{format_count(report.n_erased, 'decision', 'are')} erased and cannot be recomputed"
    if report.chain_start is None:
        yield "no chain: all events were written by an earlier version of lcb"
    elif report.chain_start > report.base + 1:
        yield f"the chain begins at event {report.chain_start:,}; an earlier version of lcb wrote those before it"
    if report.n_keys is None:
        yield "keys are not compared: an earlier version of lcb wrote this log; the next start records its keys"
    if report.n_damaged:
        yield f"{format_count(report.n_damaged, 'damaged snapshot')}: not used by the service, and made again"
    yield from _describe_differences(report)


def _describe_differences(report: Report) -> Iterator[str]:
    yield from map(str, report.differences)
    if n_more := report.n_differences - len(report.differences):
        yield f"and {n_more:,} more"
    if report.first is not None:
        yield f"the first wrong event is {report.first:,}"
    for head in report.unchecked_heads:
        yield f"not checked: head {head}"
    found = f"{report.n_differences:,} differences" if report.n_differences else "no differences"
    n = len(report.unchecked_heads)
    yield f"{found}, but {format_count(n, 'given head')} could not be checked" if n else found


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
            rows = _read_events(opened, user)[-last:]
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


def _read_events(store: Store, user: str) -> list[Row]:
    rows = store.events_of(user)
    if not rows:
        raise InputError(f"{store.url} has no events of user {user!r}; check the name")
    return rows
