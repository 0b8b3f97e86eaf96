"""`lcb trials`: the recommenders of a running service side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, format_number, get_console, write_json
from lcb.cli.service import URL, Key, Url, connect, convert_answer

if TYPE_CHECKING:
    from lcb.messages import TrialAnswer


def trials(url: Url = URL, key: Key = None, json: JSONOption = None) -> None:
    """Compare the recommenders of a running service.

    mean and deviation are taken over users, of each user's reward per decision.  Differences are to the first
    recommender, with Welch's 95 % interval.

    \b
    Example:
      lcb trials --url http://127.0.0.1:8000
    """
    check_output("--json", json)
    with connect(url, key) as service:
        answer = service.trials()
    write_json(json, convert_answer(answer))
    if json != "-":
        _print(answer)


def _print(answer: TrialAnswer) -> None:
    titles = ("recommender", "bandit", "share", "users", "decisions", "rewards", "mean", "deviation")
    table = build_table(*titles, left=["recommender", "bandit"])
    for one in answer.recommenders:
        counts = (f"{n:,}" for n in (one.n_users, one.n_decisions, one.n_rewards))
        table.add_row(
            one.name, one.bandit, f"{one.share:.1%}", *counts, format_number(one.mean), format_number(one.deviation)
        )
    terminal = get_console()
    terminal.print(table)
    for between in answer.differences:
        interval = f"95 % interval {between.low:+.4f} to {between.high:+.4f}"
        terminal.print(f"{between.of} - {between.to}: {between.mean:+.4f}, {interval}", soft_wrap=True)
    if answer.why is not None:
        terminal.print(answer.why, soft_wrap=True)
