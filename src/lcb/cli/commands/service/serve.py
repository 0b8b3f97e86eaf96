"""`lcb serve`: run the decision service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lcb.cli.options import parse_names
from lcb.cli.settings import ConfigFile, StoreOption, load_config, run_service
from lcb.learners.registry import LEARNERS


def serve(
    store: StoreOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any free port.  [default: 8000]")] = None,
    models: Annotated[
        Path | None, typer.Option(help="Folder of models from lcb learn to start with.", metavar="DIR")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Categories of the items, if there are no models.", metavar="A,B,...")
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            help="Fills an empty catalogue: a log from lcb import, a JSON file, or headlines for the built-in ones.",
            metavar="LOG|FILE",
        ),
    ] = None,
    config: ConfigFile = None,
    recommender: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=BANDIT or NAME=BANDIT:everyone (lcb algorithms --bandits lists them); repeatable.",
            metavar="SPEC",
        ),
    ] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="NAME=SHARE of new users; repeatable.", metavar="SPEC")
    ] = None,
    pages: Annotated[
        bool | None,
        typer.Option(
            "--pages/--no-pages",
            help="Serve the reader's page, the study and the dashboard.  [default: only on this machine]",
        ),
    ] = None,
    shadow: Annotated[
        bool | None, typer.Option("--shadow", help="Shadow mode: callers choose, the service logs its own choice.")
    ] = None,
    rewards: Annotated[
        str | None, typer.Option(help="Several rewards for one decision: once, first, sum or last.", metavar="RULE")
    ] = None,
    reward_range: Annotated[
        str | None,
        typer.Option(help="Refuse rewards outside this range.  [default: 0,1 in a new log]", metavar="LOW,HIGH"),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Number of classes to learn; none: chosen on held-out users.", metavar="N")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            help=f"Learner: {', '.join(LEARNERS)}, or auto (default): classes and bonus are chosen "
            "(em, if a recommender serves point classes only)."
        ),
    ] = None,
    warmup_users: Annotated[
        int | None, typer.Option(help="Users before the first classes are learned.  [default: 50]")
    ] = None,
    retrain_every: Annotated[
        str | None,
        typer.Option(help="New users until the next version is learned, or none.  [default: 50]", metavar="N"),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Most requests a second per key; 0: no limit.  [default: 0]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, text or auto.  [default: auto]")] = None,
) -> None:
    """Run the decision service over HTTP.

    A decision is answered after it is stored.  Latent classes are learned in the background as users come: their kind
    and number and the bonus are chosen on the users so far.  A log keeps the recommenders it has unless --recommender
    names others.

    A setting is taken from the options, else from the environment (LCB_PORT, LCB_LEARNING__RETRAIN_EVERY), else from
    a TOML file, else it has its default; lcb config show prints all of them.  Ctrl-C or SIGTERM stops the service
    after it has answered the requests it has received.

    \b
    Example:
      lcb serve --items headlines --models models
      lcb serve --models models --items log
      lcb serve --store news.db --categories sport,arts,science --port 9000
      lcb serve --recommender lcb=thompson --recommender all=linucb:everyone --share lcb=0.5 --share all=0.5
      lcb serve --config lcb.toml --store postgresql://lcb@db/lcb --host 0.0.0.0
    """
    flags = {
        "store": store,
        "host": host,
        "port": port,
        "models": None if models is None else str(models),
        "categories": parse_names(categories) or None,
        "items": items,
        "recommenders": recommender or None,
        "shares": share or None,
        "pages": pages,
        "shadow": shadow,
        "rewards": rewards,
        "reward_range": reward_range,
        "learning.n_classes": classes,
        "learning.learner": learner,
        "learning.n_warmup_users": warmup_users,
        "learning.retrain_every": retrain_every,
        "limits.rate": rate,
        "log_level": log_level,
        "log_format": log_format,
    }
    found = load_config(config, flags)
    shown = found.masked()["store"].value  # without a password
    keep = found.values["recommenders"].source == "default"
    run_service(found.settings, lambda address: typer.echo(f"serving {shown} at {address}"), keep=keep)
