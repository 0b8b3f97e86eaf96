"""`lcb study`: the user study of a running service."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, format_number, get_console, write_json
from lcb.cli.service import URL, Key, Url, ask_page, connect

_POLL = 0.5  # seconds


def study(
    visitors: Annotated[int, typer.Option(min=0, max=1000, help="Simulate this many visitors first.")] = 0,
    url: Url = URL,
    key: Key = None,
    json: JSONOption = None,
) -> None:
    """Show the results of the user study on a running service; with --visitors, simulate visitors first.

    Only visitors who answered all twenty headlines count; mean and deviation are taken over them, as in the paper.

    \b
    Example:
      lcb study --visitors 100 --url http://127.0.0.1:8000
    """
    from lcb.progress import bar

    check_output("--json", json)
    with connect(url, key) as service:
        if visitors:
            ask_page(service, "/page/study/visitors", {"n": visitors})
            with bar() as progress:
                while (now := ask_page(service, "/page/study/visitors"))["running"]:
                    progress("visitors", now["done"], now["done"] + now["running"])
                    time.sleep(_POLL)
        results = ask_page(service, "/page/study/results")
    write_json(json, results)
    if json != "-":
        _print(results)


def _print(results: dict[str, Any]) -> None:
    table = build_table("recommender", "visitors", "simulated", "mean", "deviation", "paper", left=["recommender"])
    paper = {one["name"]: f"{one['mean']:.3f} ± {one['deviation']:.3f}" for one in results["paper"]}
    for one in results["recommenders"]:
        counts = (f"{one[name]:,}" for name in ("users", "simulated"))
        numbers = (format_number(one[name], 3) for name in ("mean", "deviation"))
        table.add_row(one["name"], *counts, *numbers, paper.get(one["name"], ""))
    terminal = get_console()
    terminal.print(table)
    between = results["difference"]
    if between is not None:
        interval = f"95 % interval {between['low']:+.3f} to {between['high']:+.3f}"
        terminal.print(f"{between['of']} - {between['to']}: {between['mean']:+.3f}, {interval}", soft_wrap=True)
