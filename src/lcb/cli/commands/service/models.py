"""`lcb models`: list, learn and activate the model versions of a running service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, format_number, get_console, write_json
from lcb.cli.service import URL, Key, Url, connect, convert_answer
from lcb.errors import InputError

if TYPE_CHECKING:
    from lcb.messages import ModelsAnswer, RetrainingAnswer

_POLL = 0.5  # seconds

models = typer.Typer(
    help="The model versions of a running service.\n\n\b\nExample:\n  lcb models list\n  lcb models activate 3",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@models.command("list")
def list_versions(url: Url = URL, key: Key = None, json: JSONOption = None) -> None:
    """List the model versions: status, size, score and why each was kept.

    The score is the mean log likelihood of a held-out user's reward; the baseline is that of the version it was
    compared with, on the same users.

    \b
    Example:
      lcb models list --url http://127.0.0.1:8000
    """
    check_output("--json", json)
    with connect(url, key) as service:
        answer = service.models()
    write_json(json, convert_answer(answer))
    if json != "-":
        _print(answer)


@models.command()
def retrain(
    url: Url = URL,
    key: Key = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is done, then print the result.")] = False,
    json: JSONOption = None,
) -> None:
    """Learn a new version from the whole log, in the background.

    It becomes active if it scores at least as well on held-out users as the active version; else it is kept aside.

    \b
    Example:
      lcb models retrain --wait
    """
    check_output("--json", json)
    with connect(url, key) as service:
        known = {one.version for one in service.models().versions}
        started = service.retrain()
        if not wait:
            write_json(json, convert_answer(started))
            if json != "-":
                typer.echo("learning; lcb models list shows the progress")
            return
        while (answer := service.models()).retraining.running:
            time.sleep(_POLL)
    write_json(json, convert_answer(answer))
    new = [one for one in answer.versions if one.version not in known]
    if not new:
        reason = answer.retraining.error or answer.retraining.note or "the service was stopped"
        raise InputError(f"no version was learned: {reason}")
    if json != "-":
        typer.echo(f"version {new[0].version} is {new[0].status}: {new[0].reason}")


@models.command()
def activate(
    version: Annotated[
        int, typer.Argument(min=0, help="Number of the version; 0 is LinUCB without classes.", metavar="VERSION")
    ],
    reason: Annotated[str, typer.Option(help="Reason, kept in the log.")] = "asked for",
    url: Url = URL,
    key: Key = None,
    json: JSONOption = None,
) -> None:
    """Serve new users with another version from now on: roll back, or forward.

    Users keep the version they started with.  Requests are answered meanwhile.

    \b
    Example:
      lcb models activate 3 --reason "version 4 shows too much sport"
    """
    check_output("--json", json)
    with connect(url, key) as service:
        answer = service.activate(version, reason=reason)
    write_json(json, convert_answer(answer))
    if json != "-":
        typer.echo(
            f"version {answer.active} is active: new users get it, and all users who are not pinned to a version"
        )


def _print(answer: ModelsAnswer) -> None:
    titles = ("version", "status", "classes", "users", "score", "baseline", "created", "reason")
    table = build_table(*titles, left=["status", "created", "reason"], wrapped=["reason"])
    for one in answer.versions:
        table.add_row(
            str(one.version),
            one.status,
            str(one.n_classes),
            f"{one.n_users:,}",
            format_number(one.score),
            format_number(one.baseline),
            one.created[:16].replace("T", " "),
            one.reason,
        )
    if answer.versions:
        get_console().print(table)
    else:
        typer.echo("no classes yet: everyone is served by LinUCB (version 0)")
    typer.echo(_describe(answer.retraining))


def _describe(learning: RetrainingAnswer) -> str:
    """Say in one line what learning does now and when it starts next."""
    if learning.running:
        of = f" {learning.done:,} of {learning.total:,}" if learning.total else ""
        since = f" since {learning.started[:16].replace('T', ' ')}" if learning.started else ""
        return f"learning{since}: {learning.phase or 'starting'}{of}"
    when = "on request" if learning.next_at is None else f"at {learning.next_at:,} users"
    line = f"users so far: {learning.n_started:,}; the next version is learned {when}"
    if learning.error:
        return f"{line}; the last attempt failed: {learning.error}"
    return f"{line}; not yet: {learning.note}" if learning.note else line
