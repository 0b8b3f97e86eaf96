"""`lcb learn`: from an event table to a folder of models."""

from __future__ import annotations

import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.output import JSON_HELP, check_output, split_names, write_json
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.registry import LEARNERS, get_learner

if TYPE_CHECKING:
    from lcb.clicks import EventLog
    from lcb.features import FeatureMap
    from lcb.progress import Progress


class LikelihoodName(StrEnum):
    gaussian = "gaussian"
    bernoulli = "bernoulli"


class VarianceName(StrEnum):
    per_class = "class"
    shared = "shared"


class ReadingName(StrEnum):
    labels = "labels"
    choices = "choices"


class FormName(StrEnum):
    grouped = "grouped"
    pooled = "pooled"


def learn(
    events: Annotated[
        Path, typer.Argument(help="Event table (.parquet, .csv, .jsonl), or an imported log.", metavar="EVENTS")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the models; models already there are replaced.")],
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of latent classes; chosen by held-out users, or the sampler, when not given."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Feature columns, as a,b,c; without it the list column x.", metavar="A,B,..."),
    ] = None,
    user_columns: Annotated[
        str | None,
        typer.Option(help="Columns with features of the user, crossed with the arm's.", metavar="A,B,..."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Of an imported log: one-hot or pca:K, also with +1; kept with the models.", metavar="SPEC"),
    ] = None,
    reading: Annotated[ReadingName | None, typer.Option(help="Of an imported log: as in lcb evaluate.")] = None,
    like: Annotated[
        float | None, typer.Option(help="Of an imported log: the rating from which on an item is liked.")
    ] = None,
    reward_range: Annotated[
        str | None, typer.Option(help="Refuse rewards outside this range.", metavar="LOW,HIGH")
    ] = None,
    learner: Annotated[
        str, typer.Option(help="How the classes are learned.", metavar=f"<{'|'.join(LEARNERS)}>")
    ] = "em",
    likelihood: Annotated[
        LikelihoodName | None,
        typer.Option(help="Of the rewards; bernoulli when they take exactly two values (em), else gaussian."),
    ] = None,
    variance: Annotated[
        VarianceName | None,
        typer.Option(help="One variance per class, or one shared by all; shared on two-valued rewards. Not spectral."),
    ] = None,
    starts: Annotated[int | None, typer.Option(min=1, help="Starts, the best is kept (em: 4, spectral: 50).")] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Most steps (em: 500, on clicks 300).")] = None,
    tol: Annotated[float | None, typer.Option(help="Smallest gain per user worth another step (em: 1e-6).")] = None,
    sweeps: Annotated[int | None, typer.Option(min=8, help="Sweeps of a chain (gibbs, blocked: 200).")] = None,
    chains: Annotated[int | None, typer.Option(min=1, help="Chains (gibbs, blocked: 2).")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Draw number of classes and log joint over sweeps (gibbs, blocked; .png, .svg or .html)."),
    ] = None,
    form: Annotated[FormName | None, typer.Option(help="Moments (spectral: grouped).")] = None,
    polish: Annotated[bool, typer.Option("--polish", help="Go on with EM from the spectral estimate.")] = False,
    float32: Annotated[
        bool, typer.Option("--float32", help="Half the memory; for rewards not far from 0 in units of their noise.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores when not given. Not spectral.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of starts and draws.")] = 0,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Learn latent classes from the log of past users.

    An event table has the columns user, reward and the features of the arm taken: one list column x,
    or the numeric columns named by --columns.  An imported log (lcb import) has items with categories; its
    features are made of these by --features, and the models keep how.

    Events are streamed: memory grows with users only (spectral keeps the rows; clicks on features without
    end keep one entry per row).

    Without options likelihood and number of classes are chosen, and the choice is explained.

    \b
    Example:
      lcb learn events.csv --columns sport,arts,politics --classes 5 --out models
      lcb learn events.parquet --learner gibbs --sweeps 500 --out models
      lcb learn news --features pca:6+1 --classes 30 --out models
    """
    import numpy as np

    from lcb.learners import fit
    from lcb.progress import bar
    from lcb.storage.models.folder import check_models_folder, save_models
    from lcb.storage.tables.statistics import read_log

    if tol is not None and not tol > 0:
        raise InputError(f"--tol {tol}; it must be a positive number")
    check_models_folder(out)
    check_output("--json", json, files=[events, traces], folders=[out])
    check_output("--traces", traces, files=[events], folders=[out])
    if traces is not None:
        from lcb import charts

        if "n_chains" not in get_learner(learner).settings:
            raise InputError(f"--traces is an option of {_having('n_chains')}, not of {learner}; leave it out")
        charts.require()
    settings = _settings(
        learner, likelihood and likelihood.value, variance=variance and variance.value, n_starts=starts,
        max_steps=max_steps, tol=tol, n_sweeps=sweeps, n_chains=chains, form=form and form.value,
        polish=polish or None, n_threads=threads,
    )  # fmt: skip
    began = time.monotonic()
    with bar() as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        feature_map = None
        if features is not None or events.is_dir():
            _refuse(columns=columns, user_columns=user_columns, reward_range=reward_range, float32=float32 or None)
            log, feature_map = _imported(events, features or "one-hot", reading, like, progress)
        else:
            _refuse(reading=reading, like=like)
            log = read_log(
                events,
                columns=split_names(columns),
                user_columns=split_names(user_columns),
                reward_range=_range(reward_range),
                dtype=np.float32 if float32 else np.float64,
                keep_rows=get_learner(learner).needs_rows,
                progress=progress,
            )
        result = fit(
            log, classes, rng=np.random.default_rng(seed), learner=learner,
            likelihood=likelihood.value if likelihood else None, progress=progress, **settings,
        )  # fmt: skip
    provenance = {**result.models.provenance, "events": events.name, "seed": seed}
    save_models(result.models.with_provenance(provenance), out, overwrite=True, feature_map=feature_map)
    if traces is not None:
        charts.save(charts.traces(result), traces)  # type: ignore[arg-type]
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
    seconds = time.monotonic() - began
    write_json(json, _summary(result, log, seconds))
    if json == "-":
        return
    for line in result.why:
        typer.echo(line)
    typer.echo(
        f"{result.models.n_classes} classes from {log.stats.n_events:,} events of {log.n_users:,} users "
        f"({result.n_steps} steps, {seconds:.1f} s)"
    )
    typer.echo(f"saved in {out}; look at them with: lcb show {out}")


def _imported(
    path: Path, spec: str, reading: ReadingName | None, like: float | None, progress: Progress
) -> tuple[EventLog, FeatureMap]:
    """All labels of a log's users, and the map from categories to features."""
    import numpy as np

    from lcb.evaluate.offline.labels import default_reading, read_labels
    from lcb.features import fit_features
    from lcb.storage.logs.log import open_log

    log = open_log(path, progress=progress)
    labels = read_labels(log, reading.value if reading else default_reading(log, like), like)
    users = np.flatnonzero(labels.n_events > 0)
    features = fit_features(spec, labels.arms, *labels.met(users))
    return labels.history(users, features.arms, features.names), features


def _refuse(**options: object) -> None:
    """Options of the other kind of log."""
    for name, value in options.items():
        if value is not None:
            other = "an event table" if name in ("columns", "user_columns", "reward_range", "float32") else "a log"
            raise InputError(
                f"--{name.replace('_', '-')} belongs to {other}; an imported log has --features, --reading and --like, "
                "an event table --columns"
            )


_OPTION = {"n_starts": "starts", "max_steps": "max-steps", "n_sweeps": "sweeps", "n_chains": "chains",
           "n_threads": "threads"}  # fmt: skip


def _settings(learner: str, likelihood: str | None, **given: Any) -> dict[str, Any]:
    """What was asked for; an option the learner does not have is refused rather than dropped."""
    settings = {name: value for name, value in given.items() if value is not None}
    own = get_learner(learner).settings
    for name in settings:
        if name not in own:
            option = _OPTION.get(name, name)
            raise InputError(f"--{option} is an option of {_having(name)}, not of {learner}; leave it out")
    if "variance" in settings and likelihood == "bernoulli":
        raise InputError("--variance is of Gaussian rewards; leave it out, or say --likelihood gaussian")
    return settings


def _having(setting: str) -> str:
    """The learners that have a setting, in words."""
    return " and ".join(name for name in LEARNERS if setting in get_learner(name).settings)


def _summary(result: Any, log: Any, seconds: float) -> dict[str, Any]:
    models = result.models
    return {
        "classes": models.n_classes,
        "users": log.n_users,
        "events": log.stats.n_events,
        "features": list(models.features),
        "learner": models.provenance["learner"],
        "likelihood": models.likelihood,
        "why": list(result.why),
        "steps": result.n_steps,
        "converged": result.converged,
        "seconds": seconds,
        "held_out": {str(n): {"mean": mean, "se": se} for n, (mean, se) in result.held_out.items()},
    }


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
