"""`lcb study`: the user study of a running service."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, columns, console, write_json
from lcb.cli.service import URL, Key, Url, ask

_PAUSE = 0.5  # seconds between two looks


def study(
    visitors: Annotated[int, typer.Option(min=0, max=1000, help="Simulated visitors to let in first.")] = 0,
    url: Url = URL,
    key: Key = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Show the user study of a running service, and let in simulated visitors.

    Counted are visitors who answered all twenty headlines; mean and deviation are over them, as in the paper.

    \b
    Example:
      lcb study --visitors 100 --url http://127.0.0.1:8000
    """
    from lcb.progress import bar

    check_output("--json", json)
    if visitors:
        ask(url, key, "POST", "/page/study/visitors", {"n": visitors})
        with bar() as progress:
            while (now := ask(url, key, "GET", "/page/study/visitors"))["running"]:
                progress("visitors", now["done"], now["done"] + now["running"])
                time.sleep(_PAUSE)
    results = ask(url, key, "GET", "/page/study/results")
    write_json(json, results)
    if json != "-":
        _print(results)


def _print(results: dict[str, Any]) -> None:
    table = columns("recommender", "visitors", "simulated", "mean", "deviation", "paper", left=["recommender"])
    paper = {one["name"]: f"{one['mean']:.3f} ± {one['deviation']:.3f}" for one in results["paper"]}
    for one in results["recommenders"]:
        mean, deviation = (("-" if value is None else f"{value:.3f}") for value in (one["mean"], one["deviation"]))
        seen = paper.get(one["name"], "")
        table.add_row(one["name"], f"{one['users']:,}", f"{one['simulated']:,}", mean, deviation, seen)
    console().print(table)
    between = results["difference"]
    if between is not None:
        typer.echo(
            f"{between['of']} - {between['to']}: {between['mean']:+.3f}, "
            f"95 % interval {between['low']:+.3f} to {between['high']:+.3f}"
        )
