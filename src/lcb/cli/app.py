"""The `lcb` application: registers the commands and runs one from a list of words."""

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
    help="Recommendations for new users: learn latent classes from a log, serve decisions, compare algorithms.",
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
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # the base class, which Typer does not export


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"lcb {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None: ...


def run(words: Sequence[str]) -> int:
    """Run the command that the words name and return its exit code; without words, print the help.

    `app()` makes the same calls, but also handles Ctrl-C, closed pipes and usage errors, which `main` does here.
    """
    group = get_command(app)
    try:
        with group.make_context("lcb", list(words) or ["--help"]) as context:
            group.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    except _UsageError as error:
        raise InputError(_format_usage_error(error)) from None
    return 0


def _format_usage_error(error: Exception) -> str:
    """Return a usage error as one line that ends with the help to read."""
    message = " ".join(error.format_message().replace("Value error, ", "").split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "lcb"
    return f"{message[0].lower()}{message[1:].rstrip('.')}; see {path} --help"
