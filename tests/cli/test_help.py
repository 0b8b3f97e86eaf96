from __future__ import annotations

from pathlib import Path

import pytest

from lcb.cli.app import list_commands
from lcb.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
COMMANDS = list_commands()


def test_the_page_of_commands_has_every_command_of_the_app_and_no_other():
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [line.removeprefix("## lcb ") for line in page.splitlines() if line.startswith("## lcb ")] == COMMANDS


@pytest.mark.parametrize("command", [*COMMANDS, "keys", "config", "log", "models"])
def test_every_command_shows_an_example(lcb, command):
    outcome = lcb(*command.split(), "--help")
    assert outcome.code == 0
    assert "Example:" in outcome.out
    assert f"lcb {command}" in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_commands_says_what_help_says(lcb, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "cli.md").read_text()
    assert f"```text\n{lcb(*command.split(), '--help').out.strip()}\n```" in page, (
        "rewrite it with: scripts/write-cli-page"
    )


def test_every_experiment_has_its_line(lcb):
    told = lcb("reproduce", "--help").out.splitlines()
    assert [name for name in EXPERIMENTS if not any(line.split()[:1] == [name] for line in told)] == []


def test_the_version_is_printed(lcb):
    from lcb import __version__

    assert lcb("--version").out == f"lcb {__version__}\n"


def test_an_unknown_command_is_refused(lcb):
    assert lcb("fly").code == 2
