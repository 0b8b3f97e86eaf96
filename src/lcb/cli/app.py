"""The `lcb` application: registers the commands and runs one from a list of words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from lcb.cli.commands.algorithms import algorithms
from lcb.cli.commands.compare_learners import compare_learners
from lcb.cli.commands.demo import demo
from lcb.cli.commands.evaluate import evaluate
from lcb.cli.commands.import_log import import_log
from lcb.cli.commands.learn import learn
from lcb.cli.commands.report import report
from lcb.cli.commands.reproduce import list_options, reproduce
from lcb.cli.commands.service.compact import compact
from lcb.cli.commands.service.config import config
from lcb.cli.commands.service.keys import keys
from lcb.cli.commands.service.log import log
from lcb.cli.commands.service.models import models
from lcb.cli.commands.service.serve import serve
from lcb.cli.commands.service.study import study
from lcb.cli.commands.service.trials import trials
from lcb.cli.commands.show import show
from lcb.cli.commands.simulate import simulate
from lcb.cli.commands.tune import tune
from lcb.errors import InputError
from lcb.experiments import EXPERIMENTS, load_experiment
from lcb.version import __version__
from lcb.words import suggest

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
log.command()(compact)
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


@cache
def _build_group() -> Any:
    """Return what Typer makes of `app`, once in a process: it reads the signatures of all commands anew each time."""
    return get_command(app)


def run(words: Sequence[str]) -> int:
    """Run the command that the words name and return its exit code; without words, print the help.

    `app()` makes the same calls, but also handles Ctrl-C, closed pipes and usage errors, which `main` does here.
    """
    group = _build_group()
    asks_help = bool({"-h", "--help"} & set(words))
    if asks_help and words[0] == "reproduce" and words[1] in EXPERIMENTS:
        typer.echo(_help_experiment(group, words[1]))
        return 0
    try:
        with group.make_context("lcb", list(words) or ["--help"]) as context:
            group.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    except _UsageError as error:
        raise InputError(_format_usage_error(error)) from None
    return 0


def _help_experiment(group: Any, name: str) -> str:
    """Return the help of one experiment: what it is, and the options that it has."""
    kept, command = list_options(name), copy(group.commands["reproduce"])
    command.params = [one for one in command.params if one.name.replace("_", "-") in kept]
    example = f"lcb reproduce {name}" + (" --data goodbooks --like 5" if "data" in kept else "")
    about = inspect.cleandoc(load_experiment(name).__doc__ or "")
    command.help = f"{EXPERIMENTS[name]}.\n\n{about}\n\n\b\nExample:\n  {example}"
    with group.make_context("lcb", [], resilient_parsing=True) as outer:
        context = typer.Context(command, info_name=f"reproduce {name}", parent=outer)
        return str(command.get_help(context))


def list_commands() -> list[str]:
    """Return every command as it is typed, `log verify` for one of a group; docs/cli.md has a section for each."""
    found = []
    for name, command in _build_group().commands.items():
        inner = getattr(command, "commands", None)
        found += [name] if inner is None else [f"{name} {one}" for one in inner]
    return found


def _format_usage_error(error: Exception) -> str:
    """Return a usage error as one line that ends with the help to read."""
    message = " ".join(error.format_message().replace("Value error, ", "").split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "lcb"
    if unknown := re.match(r"No such command '(\S+)'", message):
        known = getattr(context and context.command, "commands", None) or _build_group().commands
        meant = suggest(unknown[1], known)
        message = f"{unknown[0]}, {meant}" if meant else unknown[0]  # some versions of Click suggest, too
    return f"{message[0].lower()}{message[1:].rstrip('.')}; see {path} --help"
