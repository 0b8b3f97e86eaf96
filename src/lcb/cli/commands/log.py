"""`lcb log`: verify, export, back up and read the log of a decision service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, write_json
from lcb.errors import InputError, need_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcb.serve.audit.export import Exported
    from lcb.storage.store.base import Row

app = typer.Typer(
    name="log",
    help="Verify, export, back up and read the log of a decision service, also while it serves.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_STORE = typer.Argument(help="The store: a file, or postgresql://user@host/name.", metavar="STORE")
_JSON = typer.Option(help=JSON_HELP, metavar="FILE")


@app.command()
def verify(
    store: Annotated[str, _STORE],
    user: Annotated[str | None, typer.Option(help="The decisions of this user alone.")] = None,
    json: Annotated[str | None, _JSON] = None,
) -> None:
    """Make every decision of a log again, and compare bit for bit.

    The log is folded from nothing; arms, propensities, distributions, rewards, snapshots and models must be what
    follows from it.  What differs is listed, and the exit code is 1.

    \b
    Example:
      lcb log verify lcb.db
    """
    from lcb.progress import bar

    with need_extra("serve"):
        from lcb.serve.audit.verify import verify as run
    from lcb.storage.store.base import open_store

    check_output("--json", json, files=[Path(store)])
    opened = open_store(store, create=False)
    try:
        if user is not None and not opened.events_of(user):
            raise InputError(f"{store} has no events of user {user!r}; check the name")
        with bar() as progress:
            report = run(opened, progress, user=user)
    finally:
        opened.close()
    write_json(json, report.to_json())
    if json != "-":
        typer.echo(
            f"{report.n_events:,} events: {report.n_decisions:,} decisions of {report.n_users:,} users made again, "
            f"{report.n_rewards:,} rewards, {report.n_models:,} models, {report.n_snapshots:,} snapshots "
            f"({report.seconds:.1f} s)"
        )
        if report.n_erased:
            typer.echo(f"{report.n_erased:,} decisions are erased, and cannot be made again")
        for one in report.differences:
            typer.echo(str(one))
        n_more = report.n_differences - len(report.differences)
        if n_more:
            typer.echo(f"and {n_more:,} more")
        typer.echo("all is as it follows from the log" if not report.n_differences else "the log and it differ")
    if report.n_differences:
        raise typer.Exit(1)


@app.command()
def export(
    store: Annotated[str, _STORE],
    out: Annotated[Path, typer.Argument(help="A .parquet file, or a folder.", metavar="OUT")],
    missing: Annotated[
        str | None,
        typer.Option(
            help="Reward of what no reward has come for: a number, or none; such rows are left out when not given."
        ),
    ] = None,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Leave out what callers chose without saying how probable it was.")
    ] = False,
    json: Annotated[str | None, _JSON] = None,
) -> None:
    """Write the log as a table that lcb learn and lcb evaluate read: one row per decision and slot.

    A catalogue of items is written beside it, as lcb import does.

    \b
    Example:
      lcb log export lcb.db events.parquet
      lcb learn events.parquet --out models
      lcb evaluate events.parquet --method ips --algorithms lcb-mean,random
    """
    from lcb.progress import bar

    with need_extra("serve"):
        from lcb.serve.audit.export import export as run
    from lcb.storage.store.base import open_store

    check_output("--json", json, files=[Path(store), out])
    if out.suffix not in ("", ".parquet"):
        raise InputError(f"{out} is neither a .parquet file nor a folder; give events.parquet, or a name without a dot")
    wanted = _missing(missing)
    opened = open_store(store, create=False)
    try:
        with bar() as progress:
            done = run(opened, out, missing=wanted, only_known=only_known, progress=progress)
    finally:
        opened.close()
    write_json(json, vars(done))
    if json != "-":
        for line in _exported(done, missing):
            typer.echo(line)


def _missing(text: str | None) -> float | str | None:
    if text is None:
        return "leave out"
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--missing {text}; give a number, or none") from None


def _exported(done: Exported, missing: str | None) -> Iterator[str]:
    yield f"{done.n_rows:,} rows of {done.n_users:,} users on {done.n_items:,} items, up to event {done.upto:,}"
    if done.n_open:
        what = "left out" if missing is None else f"reward {missing}"
        yield (
            f"no reward has come for {done.n_open:,} more: {what}"
            if missing is None
            else (f"no reward has come for {done.n_open:,} of them: {what}")
        )
    if done.n_below:
        yield f"{done.n_below:,} rows are lower slots of lists: their propensity is given the slots above"
    if done.n_unknown:
        yield f"{done.n_unknown:,} rows have no propensity: the caller chose, and did not say how probable it was"
    if done.n_some:
        yield (
            f"{done.n_some:,} rows had only some of the {done.n_items:,} items on offer; lcb evaluate takes all to be, "
            "so compare nothing by it"
        )
    yield f"saved in {', '.join(done.files)}"


@app.command()
def backup(
    store: Annotated[str, _STORE],
    out: Annotated[Path, typer.Argument(help="A new file.", metavar="OUT")],
) -> None:
    """Copy a whole store as it is at one moment, also while it serves.

    The copy is a store itself: serve it, verify it.

    \b
    Example:
      lcb log backup lcb.db monday.db
    """
    from lcb.storage.store.base import open_store

    opened = open_store(store, create=False)
    try:
        opened.backup(str(out))
    finally:
        opened.close()
    typer.echo(f"{store} as of now is in {out} ({out.stat().st_size:,} bytes)")


@app.command()
def show(
    store: Annotated[str, _STORE],
    user: Annotated[str | None, typer.Option(help="The events of this user alone.")] = None,
    last: Annotated[int, typer.Option(min=1, help="How many, from the end.")] = 20,
    json: Annotated[str | None, _JSON] = None,
) -> None:
    """Show the last events of a log, in words.

    \b
    Example:
      lcb log show lcb.db --user ann
    """
    with need_extra("serve"):
        from lcb.serve.events import decode
    from lcb.storage.store.base import open_store

    check_output("--json", json, files=[Path(store)])
    opened = open_store(store, create=False)
    try:
        if user is None:
            rows = list(opened.events(max(0, opened.head() - last)))
        else:
            rows = opened.events_of(user)[-last:]
            if not rows:
                raise InputError(f"{store} has no events of user {user!r}; check the name")
    finally:
        opened.close()
    told = [_told(row, decode(row.kind, row.body)) for row in rows]
    write_json(json, told)
    if json != "-":
        for one in told:
            who = "" if one["user"] is None else f"{one['user']}: "
            typer.echo(f"{one['seq']:>9,}  {one['time'] or '-':19}  {one['kind']:15}  {who}{one['words']}")


def _told(row: Row, body: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    at = getattr(body, "at", None)
    time = None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {"seq": row.seq, "time": time, "kind": row.kind, "id": row.id, "user": row.user, "model": row.model,
            "words": _words(row, body)}  # fmt: skip


def _words(row: Row, body: Any) -> str:
    if row.kind == "decision":
        what = ", ".join(f"{one.id} ({one.propensity:.3g})" for one in body.shown)
        would = "" if body.chosen is None else f", would have been {body.taken[0].id}"
        return f"{what}{would} of {body.n_arms} by {body.recommender}, model {row.model}, as of {body.seen} [{row.id}]"
    if row.kind == "reward":
        was = "" if body.before is None else f", was {body.before:g}"
        return f"{body.reward:g}{was} for event {body.decision} [{row.id}]"
    if row.kind == "items":
        gone = ", all others gone" if body.replace else f", {len(body.remove)} removed" if body.remove else ""
        return f"{len(body.items)} items{gone}"
    if row.kind == "model":
        return f"version {body.version}, {'served' if body.active else 'kept aside'}: {body.reason}"
    if row.kind == "activate":
        return f"version {body.version}: {body.reason}"
    if row.kind == "service":
        return f"rewards {body.rewards}, range {body.reward_range or 'any'}"
    if row.kind == "recommender":
        return str(body.spec.decode())
    if row.kind == "erase":
        return f"a person with {len(body.history)} events"
    return f"of a person who was erased, {body.recommender}"
