"""The commands, and how the words of a command line reach them."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer.main import get_command

from lcb.cli.commands.algorithms import algorithms
from lcb.cli.commands.compare_learners import compare_learners
from lcb.cli.commands.config import config
from lcb.cli.commands.demo import demo
from lcb.cli.commands.evaluate import evaluate
from lcb.cli.commands.import_log import import_log
from lcb.cli.commands.keys import keys
from lcb.cli.commands.learn import learn
from lcb.cli.commands.log import log
from lcb.cli.commands.models import models
from lcb.cli.commands.report import report
from lcb.cli.commands.reproduce import reproduce
from lcb.cli.commands.serve import serve
from lcb.cli.commands.show import show
from lcb.cli.commands.simulate import simulate
from lcb.cli.commands.study import study
from lcb.cli.commands.trials import trials
from lcb.cli.commands.tune import tune
from lcb.errors import InputError
from lcb.version import __version__

app = typer.Typer(
    name="lcb",
    help="Personal recommendations for people a system has never met: learn latent classes, serve new users.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (learn, compare_learners, show, simulate, algorithms, tune, evaluate, reproduce, report, demo, serve):
    app.command()(command)
app.command("import")(import_log)
app.add_typer(log, name="log")
app.add_typer(keys, name="keys")
app.add_typer(config, name="config")
app.command()(trials)
app.command()(study)
app.add_typer(models, name="models")
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # the parent of all; Typer exports this child only


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


def run(words: Sequence[str]) -> int:
    """Run the command these words name and return its exit code; without words, print the help.

    These are the calls that `app()` makes, without its own answers to Ctrl-C, closed pipes and mistakes of usage.
    """
    group = get_command(app)
    try:
        with group.make_context("lcb", list(words) or ["--help"]) as context:
            group.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    except _UsageError as error:
        raise InputError(_said(error)) from None
    return 0


def _said(error: Exception) -> str:
    """A mistake of usage in one line that ends with where to read more."""
    message = " ".join(error.format_message().replace("Value error, ", "").split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "lcb"
    return f"{message[0].lower()}{message[1:].rstrip('.')}; see {path} --help"
