"""The command line: parse, call one library function, print."""

from __future__ import annotations

import os
import sys

import typer

from lcb.cli.demo import demo
from lcb.cli.learn import learn
from lcb.cli.reproduce import reproduce
from lcb.cli.show import show
from lcb.cli.simulate import simulate
from lcb.errors import LCBError
from lcb.version import __version__

app = typer.Typer(
    name="lcb",
    help="Personal recommendations for people a system has never met: learn latent classes, serve new users.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (learn, show, simulate, reproduce, demo):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lcb {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None: ...


def main() -> None:
    """Run a command; an error we raised on purpose is one line and exit code 2."""
    try:
        app()
    except LCBError as error:
        _leave(f"lcb: {error}", 2)
    except KeyboardInterrupt:
        _leave("lcb: interrupted; nothing half-written is left behind", 130)
    except BrokenPipeError:  # the reader of our output has left: so do we, without a word
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _leave(line: str, code: int) -> None:
    sys.stdout.flush()
    typer.echo(line, err=True)
    sys.exit(code)
