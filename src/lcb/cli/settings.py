"""What the commands of the service share: its settings, its store, and starting it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.errors import InputError, need_extra

if TYPE_CHECKING:
    from lcb.serve.config.load import Config
    from lcb.serve.config.settings import Settings
    from lcb.storage.store.base import Row, Store

_STORE_HELP = "A file, or postgresql://user@host/name."
_CONFIG_HELP = "TOML file with settings.  [default: LCB_CONFIG, else lcb.toml if it exists]"
ConfigFile = Annotated[Path | None, typer.Option(help=_CONFIG_HELP, metavar="FILE")]
StoreOption = Annotated[str | None, typer.Option(help=f"{_STORE_HELP}  [default: lcb.db]", metavar="STORE")]
StoreArgument = Annotated[str, typer.Argument(help=_STORE_HELP, metavar="STORE")]


def load_config(file: Path | None, flags: dict[str, Any]) -> Config:
    """Load the settings: each from the flags, else the environment, else the file, else its default."""
    with need_extra("serve"):
        from lcb.serve.config.load import load
    return load(flags, file=file)


@contextmanager
def open_configured_store(url: str | None, file: Path | None, *, create: bool = False) -> Iterator[Store]:
    """Open the store that the option or the settings name, and close it."""
    with open_existing_store(load_config(file, {"store": url}).settings.store, create=create) as store:
        yield store


@contextmanager
def open_existing_store(url: str, *, create: bool = False, serve: bool = False) -> Iterator[Store]:
    """Open a store and close it; refuse one that does not exist unless `create`, and one that runs if `serve`."""
    from lcb.storage.store.open_store import open_store

    store = open_store(url, create=create, serve=serve)
    try:
        yield store
    finally:
        store.close()


def read_events_of(store: Store, user: str) -> list[Row]:
    """Return the events of a user; InputError if there are none."""
    rows = store.events_of(user)
    if not rows:
        raise InputError(f"{store.url} has no events of user {user!r}; check the name")
    return rows


def require_serve_extra() -> None:
    """Raise MissingExtra if packages of the serve extra are not installed."""
    with need_extra("serve"):
        import lcb.serve.server  # noqa: F401


def run_service(settings: Settings, ready: Callable[[str], None], *, keep: bool = False) -> None:
    """Serve until a signal; settings may ask for the demo's headlines and simulated visitors."""
    with need_extra("serve"):
        from lcb.cli.catalogue import read_catalogue
        from lcb.demo.readers import CATEGORIES
        from lcb.demo.visitors import HEADLINES, SimulatedReaders, read_headlines
        from lcb.serve.log.bootstrap import FirstItems
        from lcb.serve.server import run
        from lcb.storage.logs.files import is_log
    items = FirstItems(HEADLINES, read_headlines(), CATEGORIES) if settings.items == HEADLINES else None
    if settings.items is not None and is_log(settings.items):
        items = FirstItems(settings.items, *read_catalogue(settings.items, settings.models))
    run(settings, ready=ready, items=items, simulation=SimulatedReaders(), keep=keep)
