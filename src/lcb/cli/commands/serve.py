"""`lcb serve`, `lcb keys`, `lcb config`: the decision service, who may use it, and how it is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, columns, console, split_names, write_json
from lcb.errors import need_extra
from lcb.learners.registry import LEARNERS

if TYPE_CHECKING:
    from lcb.serve.config.load import Config
    from lcb.serve.config.settings import Settings
    from lcb.storage.store.base import Store

_STORE_HELP = "A file, or postgresql://user@host/name.  [default: lcb.db]"
_CONFIG_HELP = "TOML file; else LCB_CONFIG, else lcb.toml if it is there."
ConfigFile = Annotated[Path | None, typer.Option(help=_CONFIG_HELP, metavar="FILE")]
StoreOption = Annotated[str | None, typer.Option(help=_STORE_HELP, metavar="STORE")]
JSONOption = Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")]
keys = typer.Typer(help="Make, revoke and list the keys of a service.", rich_markup_mode=None)
config = typer.Typer(help="How a service is set, and by what.", rich_markup_mode=None)


def serve(
    store: StoreOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 for any that is free.  [default: 8000]")] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of lcb learn to begin with.", metavar="DIR")] = None,
    categories: Annotated[
        str | None, typer.Option(help="Without models: items are of these.", metavar="A,B,...")
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Items of a catalogue that is empty; headlines: our own.", metavar="FILE")
    ] = None,
    config: ConfigFile = None,
    recommender: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=BANDIT or NAME=BANDIT:everyone (lcb algorithms --bandits lists them); repeatable.",
            metavar="SPEC",
        ),
    ] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="NAME=SHARE of the new users; may come again.", metavar="SPEC")
    ] = None,
    pages: Annotated[
        bool | None,
        typer.Option("--pages/--no-pages", help="The reader's page, study and dashboard, or the API alone."),
    ] = None,
    shadow: Annotated[bool | None, typer.Option("--shadow", help="Log what we would choose; the caller does.")] = None,
    rewards: Annotated[
        str | None, typer.Option(help="Of several for one decision: once, first, sum or last.", metavar="RULE")
    ] = None,
    reward_range: Annotated[str | None, typer.Option(help="Rewards lie in here.", metavar="LOW,HIGH")] = None,
    classes: Annotated[
        str | None, typer.Option(help="How many to learn; none: by held-out users.", metavar="N")
    ] = None,
    learner: Annotated[str | None, typer.Option(help=f"How: {', '.join(LEARNERS)}.  [default: em]")] = None,
    warmup_users: Annotated[int | None, typer.Option(help="Users before there are classes.  [default: 50]")] = None,
    retrain_every: Annotated[
        str | None, typer.Option(help="New users between two trainings, or none.  [default: 50]", metavar="N")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second of each key; 0: any.  [default: 0]")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, text or auto.  [default: auto]")] = None,
) -> None:
    """Serve decisions over HTTP: each answered after it is on disk, each user's classes learned as they come.

    Settings come from flags, else from the environment (LCB_PORT, LCB_LEARNING__RETRAIN_EVERY), else from a TOML
    file, else they are the defaults; lcb config show tells which.  Ctrl-C or SIGTERM ends it when the last
    request is answered.

    \b
    Example:
      lcb serve --items headlines --models models
      lcb serve --store news.db --categories sport,arts,science --port 9000
      lcb serve --recommender lcb=thompson --recommender all=linucb:everyone --share lcb=0.5 --share all=0.5
      lcb serve --config lcb.toml --store postgresql://lcb@db/lcb --host 0.0.0.0
    """
    found = _config(config, {
        "store": store, "host": host, "port": port, "models": None if models is None else str(models),
        "categories": split_names(categories) or None, "items": items, "recommenders": recommender or None,
        "shares": share or None, "pages": pages,
        "shadow": shadow, "rewards": rewards, "reward_range": reward_range, "learning.n_classes": classes,
        "learning.learner": learner, "learning.n_warmup_users": warmup_users,
        "learning.retrain_every": retrain_every, "limits.rate": rate, "log_level": log_level,
        "log_format": log_format,
    })  # fmt: skip
    store_shown = found.shown()["store"].value
    run_service(found.settings, lambda address: typer.echo(f"serving {store_shown} at {address}"))


def run_service(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until a signal, with the demo's headlines (`items = "headlines"`) and simulated visitors at hand."""
    with need_extra("serve"):
        from lcb.demo.readers import CATEGORIES
        from lcb.demo.visitors import HEADLINES, SimulatedReaders, read_headlines
        from lcb.serve.log.bootstrap import FirstItems
        from lcb.serve.server import run
    items = FirstItems(HEADLINES, read_headlines(), CATEGORIES) if settings.items == HEADLINES else None
    run(settings, ready=ready, items=items, simulation=SimulatedReaders())


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")],
    scope: Annotated[str, typer.Option(help="reader, writer or admin; each may do what those before it may.")],
    store: StoreOption = None,
    config: ConfigFile = None,
) -> None:
    """Make a key and print it; it is never shown again.

    \b
    Example:
      lcb keys create shop --scope writer
      export LCB_KEY=$(lcb keys create ops --scope admin)
    """
    place = _store(store, config, create=True)
    try:
        from lcb.serve.web.keys import create

        typer.echo(create(place, name, scope, time.time()))
    finally:
        place.close()


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, typer.Argument(help="Which.", metavar="NAME")],
    store: StoreOption = None,
    config: ConfigFile = None,
) -> None:
    """Let a key open nothing any more, within two seconds on a running service.

    \b
    Example:
      lcb keys revoke shop
    """
    place = _store(store, config)
    try:
        from lcb.serve.web.keys import revoke

        revoke(place, name, time.time())
    finally:
        place.close()
    typer.echo(f"{name} opens nothing any more")


@keys.command("list")
def list_keys(store: StoreOption = None, config: ConfigFile = None, json: JSONOption = None) -> None:
    """List the keys: names, scopes and dates; the keys themselves are nowhere.

    \b
    Example:
      lcb keys list --store news.db
    """
    check_output("--json", json)
    place = _store(store, config)
    try:
        found = place.list_keys()
    finally:
        place.close()
    rows = [
        {"name": key.name, "scope": key.scope, "created": _date(key.created), "revoked": _date(key.revoked)}
        for key in found
    ]
    write_json(json, rows)
    if json == "-":
        return
    if not rows:
        typer.echo("no keys: everybody on this machine may do everything; lcb keys create makes one")
        return
    titles = ("name", "scope", "created", "revoked")
    table = columns(*titles, left=titles, wrapped=titles)
    for row in rows:
        table.add_row(*(value or "" for value in row.values()))
    console().print(table)


@config.command("show")
def show_config(config: ConfigFile = None, json: JSONOption = None) -> None:
    """Show every setting of a service, its value and where it comes from; secrets are masked.

    \b
    Example:
      lcb config show
      LCB_PORT=9000 lcb config show --config lcb.toml --json -
    """
    import json as codec
    import os

    check_output("--json", json)
    found = _config(config, {})
    shown = found.shown()
    write_json(json, {name: {"value": one.value, "source": one.source} for name, one in shown.items()})
    if json == "-":
        return
    titles = ("setting", "value", "from")
    table = columns(*titles, left=titles, wrapped=titles)
    for name, one in shown.items():
        value = "none" if one.value is None else one.value
        table.add_row(name, value if isinstance(value, str) else codec.dumps(value), one.source)
    if "LCB_KEY" in os.environ:
        table.add_row("(client's key)", "***", "LCB_KEY")
    console().print(table)
    for name in found.unknown:
        typer.echo(f"{name} is set and is no setting; nothing reads it")


def _config(file: Path | None, flags: dict[str, Any]) -> Config:
    with need_extra("serve"):
        from lcb.serve.config.load import load
    return load(flags, file=file)


def _store(url: str | None, file: Path | None, *, create: bool = False) -> Store:
    from lcb.storage.store.base import open_store

    return open_store(_config(file, {"store": url}).settings.store, create=create)


def require() -> None:
    """Refuse at once where the packages of the extra are missing."""
    with need_extra("serve"):
        import lcb.serve.server  # noqa: F401


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
