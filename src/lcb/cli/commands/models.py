"""`lcb models`: the versions of a running service, learn another, serve another."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, columns, console, write_json
from lcb.cli.service import URL, Key, Url, ask
from lcb.errors import InputError

_LOOK = 0.5  # seconds

models = typer.Typer(
    help="The model versions of a running service.\n\n\b\nExample:\n  lcb models list\n  lcb models activate 3",
    rich_markup_mode=None, no_args_is_help=True,
)  # fmt: skip


@models.command("list")
def list_versions(
    url: Url = URL,
    key: Key = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """List the versions: where each comes from, how held-out users score, which one newcomers get.

    The score is the mean log likelihood of a held-out user's reward, the baseline that of the version it was
    compared with on the same users.

    \b
    Example:
      lcb models list --url http://127.0.0.1:8000
    """
    check_output("--json", json)
    answer = ask(url, key, "GET", "/v1/models")
    write_json(json, answer)
    if json != "-":
        _print(answer)


@models.command()
def retrain(
    url: Url = URL,
    key: Key = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is done, and say what came of it.")] = False,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Learn a version from the whole log now, in the background.

    It is served if held-out users score at least as well as under the version now served, else kept aside.

    \b
    Example:
      lcb models retrain --wait
    """
    check_output("--json", json)
    before = ask(url, key, "GET", "/v1/models")
    answer = ask(url, key, "POST", "/v1/models/retrain")
    if not wait:
        write_json(json, answer)
        if json != "-":
            typer.echo("learning; lcb models list shows how far it is")
        return
    while (found := ask(url, key, "GET", "/v1/models"))["retraining"]["running"]:
        time.sleep(_LOOK)
    known = {version["version"] for version in before["versions"]}
    new = [version for version in found["versions"] if version["version"] not in known]
    write_json(json, found)
    if not new:
        said = found["retraining"]
        raise InputError(f"nothing was learned: {said['error'] or said['note'] or 'the service was stopped'}")
    if json != "-":
        typer.echo(f"version {new[0]['version']} is {new[0]['status']}: {new[0]['reason']}")


@models.command()
def activate(
    version: Annotated[int, typer.Argument(min=0, help="Its number; 0 is LinUCB for all.", metavar="VERSION")],
    reason: Annotated[str, typer.Option(help="Kept in the log.")] = "asked for",
    url: Url = URL,
    key: Key = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Serve another version to newcomers from now on: roll back, or forward.

    Users keep the version they met first.  No request waits for it.

    \b
    Example:
      lcb models activate 3 --reason "version 4 shows too much sport"
    """
    check_output("--json", json)
    answer = ask(url, key, "POST", f"/v1/models/{version}/activate", {"reason": reason})
    write_json(json, answer)
    if json != "-":
        typer.echo(f"newcomers get version {answer['active']}")


def _print(answer: dict[str, Any]) -> None:
    titles = ("version", "", "classes", "users", "score", "baseline", "made", "why")
    table = columns(*titles, left=["", "made", "why"], wrapped=["why"])
    for one in answer["versions"]:
        table.add_row(
            str(one["version"]), one["status"], str(one["n_classes"]), f"{one['n_users']:,}", _number(one["score"]),
            _number(one["baseline"]), one["created"][:16].replace("T", " "), one["reason"],
        )  # fmt: skip
    if answer["versions"]:
        console().print(table)
    else:
        typer.echo("no classes yet: everyone is served by LinUCB (version 0)")
    typer.echo(_now(answer["retraining"]))


def _now(said: dict[str, Any]) -> str:
    """What learning does, in a line."""
    if said["running"]:
        of = f" {said['done']:,} of {said['total']:,}" if said["total"] else ""
        return f"learning since {said['started'][:16].replace('T', ' ')}: {said['phase'] or 'starting'}{of}"
    failed = f"; the last learning failed: {said['error']}" if said["error"] else ""
    noted = f"; not yet: {said['note']}" if said["note"] and not failed else ""
    when = "on demand" if said["next_at"] is None else f"when {said['next_at']:,} users have come"
    return f"{said['n_started']:,} users; learns again {when}{failed}{noted}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
