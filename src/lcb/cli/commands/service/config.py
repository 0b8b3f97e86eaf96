"""`lcb config`: the settings of a service."""

from __future__ import annotations

import json as codec
import os

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.cli.settings import ConfigFile, load_config

config = typer.Typer(help="Show the settings of a service.\n\n\b\nExample:\n  lcb config show", rich_markup_mode=None)


@config.command("show")
def show_config(config: ConfigFile = None, json: JSONOption = None) -> None:
    """Show every setting of a service, its value and its source; secrets are masked.

    \b
    Example:
      lcb config show
      LCB_PORT=9000 lcb config show --config lcb.toml --json -
    """
    check_output("--json", json)
    found = load_config(config, {})
    settings = found.masked()
    write_json(json, {name: {"value": one.value, "source": one.source} for name, one in settings.items()})
    if json == "-":
        return
    titles = ("setting", "value", "source")
    table = build_table(*titles, left=titles, wrapped=titles)
    for name, one in settings.items():
        value = "none" if one.value is None else one.value
        table.add_row(name, value if isinstance(value, str) else codec.dumps(value), one.source)
    if "LCB_KEY" in os.environ:
        table.add_row("(key of the client)", "***", "LCB_KEY")
    get_console().print(table)
    for name in found.unknown:
        typer.echo(f"{name} is set but is not a setting; check the name")
