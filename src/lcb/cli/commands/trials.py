"""`lcb trials`: the recommenders of a running service side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, columns, console, write_json
from lcb.cli.service import URL, Key, Url, ask


def trials(
    url: Url = URL,
    key: Key = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Show the recommenders of a running service side by side.

    mean and deviation are of the users' rewards per decision; differences are to the first recommender, with a
    95 % interval (Welch).

    \b
    Example:
      lcb trials --url http://127.0.0.1:8000
    """
    check_output("--json", json)
    answer = ask(url, key, "GET", "/v1/trials")
    write_json(json, answer)
    if json != "-":
        _print(answer)


def _print(answer: dict[str, Any]) -> None:
    titles = ("recommender", "bandit", "share", "users", "decisions", "rewards", "mean", "deviation")
    table = columns(*titles, left=["recommender", "bandit"])
    for one in answer["recommenders"]:
        table.add_row(
            one["name"], one["bandit"], f"{one['share']:.1%}", f"{one['n_users']:,}", f"{one['n_decisions']:,}",
            f"{one['n_rewards']:,}", _number(one["mean"]), _number(one["deviation"]),
        )  # fmt: skip
    console().print(table)
    for one in answer["differences"]:
        typer.echo(
            f"{one['of']} - {one['to']}: {one['mean']:+.4f}, 95 % interval {one['low']:+.4f} to {one['high']:+.4f}"
        )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
