"""`lcb log verify`: recompute a log and say what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.commands.service.compact import ArchiveOption
from lcb.cli.options import JSONOption
from lcb.cli.output import check_output, write_json
from lcb.cli.settings import StoreArgument, open_existing_store, read_events_of
from lcb.errors import InputError, need_extra
from lcb.words import format_count

if TYPE_CHECKING:
    from lcb.serve.audit.report import Report
    from lcb.storage.store.base import Head

_HEAD = re.compile(r"\d{1,18}:[0-9a-fA-F]{64}")


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
            read_events_of(opened, user)
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
    if not given.strip():
        raise InputError("--head is empty; give SEQ:LINK, as lcb log head prints it, or a file with one per line")
    if _HEAD.fullmatch(given.strip()) is None:
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

    if not text.strip():
        raise InputError(f"{where} is empty; give SEQ:LINK, as lcb log head prints it")
    if _HEAD.fullmatch(text.strip()) is None:
        raise InputError(f"{where} {text[:80]!r} is not SEQ:LINK; give what lcb log head has printed")
    seq, _, link = text.strip().partition(":")
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
