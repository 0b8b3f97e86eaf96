"""`lcb learn`: from an event table to a folder of models."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import typer

from lcb.cli.output import JSON_HELP, check_output, split_names, write_json
from lcb.errors import ConvergenceWarning, InputError


def learn(
    events: Annotated[Path, typer.Argument(help="Event table: .parquet, .csv or .jsonl.", metavar="EVENTS")],
    out: Annotated[Path, typer.Option(help="Folder for the models; models already there are replaced.")],
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of latent classes; chosen by held-out users when not given.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Feature columns, as a,b,c; without it the list column x.", metavar="A,B,..."),
    ] = None,
    user_columns: Annotated[
        str | None,
        typer.Option(help="Columns with features of the user, crossed with the arm's.", metavar="A,B,..."),
    ] = None,
    reward_range: Annotated[
        str | None, typer.Option(help="Refuse rewards outside this range.", metavar="LOW,HIGH")
    ] = None,
    variance: Annotated[str, typer.Option(help="Noise: one variance per 'class', or one 'shared' by all.")] = "class",
    starts: Annotated[int, typer.Option(min=1, help="Starts tried by EM; the best is kept.")] = 4,
    max_steps: Annotated[int, typer.Option(min=1, help="Most EM steps.")] = 500,
    tol: Annotated[float, typer.Option(help="Smallest gain per user worth another step.")] = 1e-6,
    float32: Annotated[bool, typer.Option("--float32", help="Half the memory, a little less precision.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores when not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Learn latent classes from the log of past users.

    An event table has the columns user, reward and the features of the arm taken: one list column x,
    or the numeric columns named by --columns.  Events are streamed: memory grows with users only.

    \b
    Example:
      lcb learn events.csv --columns sport,arts,politics --classes 5 --out models
    """
    import numpy as np

    from lcb.learners import fit
    from lcb.progress import bar
    from lcb.storage.models import check_models_folder, save_models
    from lcb.storage.tables import read_stats

    check_models_folder(out)
    check_output("--json", json, files=[events], folders=[out])
    began = time.monotonic()
    with bar() as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        stats = read_stats(
            events,
            columns=split_names(columns),
            user_columns=split_names(user_columns),
            reward_range=_range(reward_range),
            dtype=np.float32 if float32 else np.float64,
            progress=progress,
        )
        result = fit(
            stats, classes, rng=np.random.default_rng(seed), variance=variance, n_starts=starts,
            max_steps=max_steps, tol=tol, n_threads=threads, progress=progress,
        )  # fmt: skip
    provenance = {**result.models.provenance, "events": events.name, "seed": seed}
    save_models(result.models.with_provenance(provenance), out, overwrite=True)
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
    models = result.models
    summary = {
        "classes": models.n_classes,
        "users": stats.n_users,
        "events": stats.n_events,
        "features": list(models.features),
        "steps": result.n_steps,
        "converged": result.converged,
        "seconds": time.monotonic() - began,
        "held_out": {str(n): {"mean": mean, "se": se} for n, (mean, se) in result.held_out.items()},
    }
    write_json(json, summary)
    if json == "-":
        return
    if result.held_out:
        mean, se = result.held_out[models.n_classes]
        typer.echo(
            f"chose {models.n_classes} classes: the fewest within one standard error of the best held-out log "
            f"likelihood per user ({mean:.3f} ± {se:.3f}; tried {', '.join(map(str, result.held_out))})"
        )
    typer.echo(
        f"{models.n_classes} classes from {stats.n_events:,} events of {stats.n_users:,} users "
        f"({result.n_steps} steps, {summary['seconds']:.1f} s)"
    )
    typer.echo(f"saved in {out}; look at them with: lcb show {out}")


def _range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--reward-range {text!r}; give two numbers, as in 0,1") from None
    if not low < high:
        raise InputError(f"--reward-range {text!r}; the first number must be the smaller")
    return low, high
