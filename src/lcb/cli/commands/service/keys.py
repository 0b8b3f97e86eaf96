"""`lcb keys`: create, revoke and list the keys of a service."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.cli.settings import ConfigFile, StoreOption, open_configured_store

keys = typer.Typer(
    help="Create, revoke and list the keys of a service.\n\n\b\nExample:\n  lcb keys create shop --scope writer",
    rich_markup_mode=None,
)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Name of the new key.", metavar="NAME")],
    scope: Annotated[str, typer.Option(help="reader, writer or admin; each includes the ones before it.")],
    store: StoreOption = None,
    config: ConfigFile = None,
) -> None:
    """Create a key and print it.  Only its hash is stored: it cannot be printed again.

    \b
    Example:
      lcb keys create shop --scope writer
      export LCB_KEY=$(lcb keys create ops --scope admin)
    """
    with open_configured_store(store, config, create=True) as place:
        from lcb.serve.web.keys import create

        typer.echo(create(place, name, scope, time.time(), _describe_caller()))


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, typer.Argument(help="Name of the key.", metavar="NAME")],
    store: StoreOption = None,
    config: ConfigFile = None,
) -> None:
    """Revoke a key.  A running service refuses it within two seconds.

    \b
    Example:
      lcb keys revoke shop
    """
    with open_configured_store(store, config) as place:
        from lcb.serve.web.keys import revoke

        revoke(place, name, time.time(), _describe_caller())
    typer.echo(f"key {name} is revoked")


@keys.command("open")
def open_to_all(store: StoreOption = None, config: ConfigFile = None) -> None:
    """Let a service that had keys need none from its next start on.

    All keys must be revoked.  Every program on the machine then has full access; other machines have none.  The log
    has an event of it.

    \b
    Example:
      lcb keys open
    """
    with open_configured_store(store, config) as place:
        from lcb.serve.web.keys import open_service

        open_service(place, time.time(), _describe_caller())
    typer.echo("the service needs no key from its next start on")


@keys.command("list")
def list_keys(store: StoreOption = None, config: ConfigFile = None, json: JSONOption = None) -> None:
    """List the names, scopes and dates of the keys.

    \b
    Example:
      lcb keys list --store news.db
    """
    check_output("--json", json)
    with open_configured_store(store, config) as place:
        found = place.list_keys()
    rows = [
        {"name": key.name, "scope": key.scope, "created": _to_date(key.created), "revoked": _to_date(key.revoked)}
        for key in found
    ]
    write_json(json, rows)
    if json == "-":
        return
    if not rows:
        typer.echo("no keys: every program on this machine has full access; lcb keys create makes a key")
        return
    titles = ("name", "scope", "created", "revoked")
    table = build_table(*titles, left=titles, wrapped=titles)
    for row in rows:
        table.add_row(*(value or "" for value in row.values()))
    get_console().print(table)


def _describe_caller() -> str:
    """Return who gives the command, for the audit."""
    import os
    import pwd

    try:
        return f"command line of {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:  # a user id without a name, as in a container
        return f"command line of user {os.getuid()}"


def _to_date(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
