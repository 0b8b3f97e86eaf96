"""`lcb learn`: learn latent classes from a log."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.options import ColumnsOption, JSONOption, ReadingName, UserColumnsOption, parse_names, parse_range
from lcb.cli.output import check_output, write_json
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.registry import LEARNERS, get_learner

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcb.event_log import EventLog
    from lcb.features import FeatureMap
    from lcb.models import Fit


class LikelihoodName(StrEnum):
    gaussian = "gaussian"
    bernoulli = "bernoulli"


class VarianceName(StrEnum):
    per_class = "class"
    shared = "shared"


class FormName(StrEnum):
    grouped = "grouped"
    pooled = "pooled"


def learn(
    events: Annotated[
        Path, typer.Argument(help="Event table (.parquet, .csv, .jsonl), or a log from lcb import.", metavar="EVENTS")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the models; replaces models in it.")],
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of classes; without it chosen on held-out users, or by the sampler."),
    ] = None,
    columns: ColumnsOption = None,
    user_columns: UserColumnsOption = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Imported log: one-hot, multi-hot or pca:K, each with or without +1 for a constant; without it the "
            "first two are compared on held-out users.",
            metavar="SPEC",
        ),
    ] = None,
    reading: Annotated[ReadingName | None, typer.Option(help="Imported log: as in lcb evaluate.")] = None,
    like: Annotated[float | None, typer.Option(help="Imported log: smallest rating that counts as liked.")] = None,
    reward_range: Annotated[
        str | None, typer.Option(help="Refuse rewards outside this range.", metavar="LOW,HIGH")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            help="Algorithm that learns the classes; without it kind and number are chosen by serving held-out users.",
            metavar=f"<{'|'.join(LEARNERS)}>",
        ),
    ] = None,
    likelihood: Annotated[
        LikelihoodName | None,
        typer.Option(help="Distribution of rewards; without it bernoulli if they take two values (em), else gaussian."),
    ] = None,
    variance: Annotated[
        VarianceName | None,
        typer.Option(
            help="One variance per class, or shared (em, gibbs, blocked); without it shared for two-valued rewards."
        ),
    ] = None,
    starts: Annotated[
        int | None, typer.Option(min=1, help="Random starts; the best is kept (em: 4, spectral: 50, personal: 2).")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Most steps (em: 500, for clicks 300, personal: 200).")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Stop when a step gains less than this per user (em: 1e-6, personal: 0.005).")
    ] = None,
    sweeps: Annotated[int | None, typer.Option(min=8, help="Sweeps of a chain (gibbs, blocked: 200).")] = None,
    chains: Annotated[int | None, typer.Option(min=1, help="Chains (gibbs, blocked: 2).")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            help="Draw the classes and the log joint of each sweep to this file (gibbs, blocked; .png, .svg, .html)."
        ),
    ] = None,
    form: Annotated[FormName | None, typer.Option(help="Moments to use (spectral: grouped).")] = None,
    polish: Annotated[bool, typer.Option("--polish", help="Continue from the spectral estimate with EM.")] = False,
    float32: Annotated[
        bool, typer.Option("--float32", help="Half the memory; for rewards that are near 0 in units of their noise.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; without it one per core. Not spectral.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of starts and draws.")] = 0,
    json: JSONOption = None,
) -> None:
    """Learn latent classes from the log of past users.

    An event table has the columns user, reward and the features of the arm that was shown: one list column x, or the
    numeric columns named by --columns.  An imported log (lcb import) has items with categories; --features says how
    they become features, and the models keep it.  A log whose events have a column x, such as one from lcb log export,
    is an event table.

    Events are streamed, so memory grows with users and not with events (but spectral keeps all rows, and so do clicks
    with more than a few distinct feature vectors).

    Without --learner, point classes (em) and classes of people who differ (personal) are tried with several bonuses on
    at most 5,000 users: classes learned from one half serve the other half in simulation.  The simplest within one
    standard error of the best is kept, and the reason is printed.  --classes and --likelihood fix what they name.

    \b
    Example:
      lcb learn events.csv --columns sport,arts,politics --classes 5 --out models
      lcb learn events.parquet --learner gibbs --sweeps 500 --out models
      lcb learn news --features pca:6+1 --classes 30 --out models
    """
    import numpy as np

    from lcb.evaluate.choice.choose import choose, draw_names, learn_chosen
    from lcb.evaluate.choice.serving import can_serve
    from lcb.evaluate.offline.history import read_history
    from lcb.learners import fit
    from lcb.progress import bar
    from lcb.storage.logs.files import find_table, read_feature_map
    from lcb.storage.models.folder import check_models_folder, save_models
    from lcb.storage.tables.statistics import read_log

    if tol is not None and not tol > 0:
        raise InputError(f"--tol {tol}; give a number above 0")
    check_models_folder(out)
    check_output("--json", json, files=[events, traces], folders=[out])
    check_output("--traces", traces, files=[events], folders=[out])
    if traces is not None:
        from lcb import charts

        if "n_chains" not in get_learner(learner or "em").settings:
            raise _build_option_error("traces", "n_chains", learner or "em")
        charts.require()
    settings = _check_settings(
        learner or "em",
        likelihood and likelihood.value,
        variance=variance and variance.value,
        n_starts=starts,
        max_steps=max_steps,
        tol=tol,
        n_sweeps=sweeps,
        n_chains=chains,
        form=form and form.value,
        polish=polish or None,
        n_threads=threads,
    )
    chooses = learner is None and not settings.keys() - {"n_threads"}
    learner = learner or "em"
    rng = np.random.default_rng(seed)
    began = time.monotonic()
    with bar() as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        feature_map: FeatureMap | None
        read: Callable[..., EventLog]
        why: list[str] = []
        table = None if features is not None else find_table(events, named=columns is not None)
        if table is None:
            _refuse("table", columns=columns, user_columns=user_columns, reward_range=reward_range, float32=float32)
            history = read_history(
                events, features, reading=reading.value if reading else None, like=like, progress=progress
            )
            log, feature_map, read = history.log, history.feature_map, history.read
            why += [history.why] if history.why else []
        else:
            _refuse("log", reading=reading, like=like)
            feature_map = None if columns or user_columns else read_feature_map(table)
            read = partial(
                read_log,
                table,
                columns=parse_names(columns),
                user_columns=parse_names(user_columns),
                reward_range=parse_range(reward_range),
                dtype=np.float32 if float32 else np.float64,
                progress=progress,
            )
            log = read(keep_rows=get_learner(learner).needs_rows)
            if feature_map is not None and feature_map.n_features != log.stats.n_features:
                feature_map = None  # x was crossed with features of the user
        wanted: dict[str, Any] = {"likelihood": likelihood.value if likelihood else None, "progress": progress}
        if chooses:
            few = log
            if not can_serve(log):
                few = read(keep_rows=True, users=draw_names(log, rng))
            choice = choose(few, n_classes=classes, rng=rng, **wanted)
            result = learn_chosen(log, choice, rng=rng, n_threads=threads, progress=progress)
        else:
            result = fit(log, classes, rng=rng, learner=learner, **wanted, **settings)
    provenance = {**result.models.provenance, "events": events.name, "seed": seed}
    n_users = result.models.pi * log.n_users
    order = np.argsort(-n_users, kind="stable")
    models = result.models.take(order[n_users[order] >= _FEWEST_USERS])
    if feature_map is not None:
        models = replace(models, features=feature_map.names)
    if models.n_classes < len(n_users):
        n_empty = len(n_users) - models.n_classes
        why.append(f"{n_empty} of {len(n_users)} classes have no users and are left out")
    result = replace(result, models=models, why=(*why, *result.why))
    save_models(models.with_provenance(provenance), out, overwrite=True, feature_map=feature_map)
    if traces is not None:
        charts.save(charts.traces(result), traces)  # type: ignore[arg-type]
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
    seconds = time.monotonic() - began
    write_json(json, _summarise(result, log, seconds))
    if json == "-":
        return
    for line in result.why:
        typer.echo(line)
    typer.echo(
        f"{result.models.n_classes} classes from {log.stats.n_events:,} events of {log.n_users:,} users "
        f"({result.n_steps} steps, {seconds:.1f} s)"
    )
    typer.echo(f"saved in {out}; lcb show {out} prints them")


def _refuse(kind: str, **options: object) -> None:
    """Raise if an option of the other kind of input was given."""
    for name, value in options.items():
        if value is not None and value is not False:
            other = "an event table" if kind == "table" else "an imported log"
            raise InputError(
                f"--{name.replace('_', '-')} is for {other}; an imported log has --features, --reading and --like, "
                "an event table --columns"
            )


_FEWEST_USERS = 0.5  # a class that expects fewer is left out
_OPTION = {
    "n_starts": "starts",
    "max_steps": "max-steps",
    "n_sweeps": "sweeps",
    "n_chains": "chains",
    "n_threads": "threads",
}


def _check_settings(learner: str, likelihood: str | None, **given: Any) -> dict[str, Any]:
    """Return the settings that were given; raise if the learner has no such setting."""
    settings = {name: value for name, value in given.items() if value is not None}
    own = get_learner(learner).settings
    for name in settings:
        if name not in own:
            raise _build_option_error(_OPTION.get(name, name), name, learner)
    if "variance" in settings and likelihood == "bernoulli":
        raise InputError("--variance is for Gaussian rewards; leave it out, or give --likelihood gaussian")
    return settings


def _build_option_error(option: str, setting: str, learner: str) -> InputError:
    *most, last = [name for name in LEARNERS if setting in get_learner(name).settings]
    others = f"{', '.join(most)} and {last}" if most else last
    return InputError(f"--{option} is an option of {others}, not of {learner}; leave it out")


def _summarise(result: Fit, log: EventLog, seconds: float) -> dict[str, Any]:
    models = result.models
    return {
        "classes": models.n_classes,
        "users": log.n_users,
        "events": log.stats.n_events,
        "features": list(models.features),
        "learner": models.provenance["learner"],
        **({"bonus": models.provenance["bonus"]} if "bonus" in models.provenance else {}),
        "likelihood": models.likelihood,
        "why": list(result.why),
        "steps": result.n_steps,
        "converged": result.converged,
        "seconds": seconds,
        "held_out": {str(n): {"mean": mean, "se": se} for n, (mean, se) in result.held_out.items()},
    }
