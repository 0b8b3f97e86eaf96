"""`lcb learn`: learn latent classes from a log."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.clusters import OnOption, open_cluster
from lcb.cli.options import ColumnsOption, JSONOption, ReadingName, UserColumnsOption
from lcb.cli.output import check_output, write_json
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.registry import LEARNERS, get_learner
from lcb.words import format_count, list_names

if TYPE_CHECKING:
    from lcb.evaluate.offline.learn_classes import LearningData
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
    out: Annotated[Path, typer.Option(help="Folder for the models; replaces models in it.")],
    events: Annotated[
        Path | None,
        typer.Argument(
            help="Event table (.parquet, .csv, .jsonl), a folder or a quoted pattern of its parts, or a log from "
            "lcb import.",
            metavar="[EVENTS]",
            show_default=False,
        ),
    ] = None,
    statistics: Annotated[
        Path | None,
        typer.Option(
            help="Instead of EVENTS: a table of statistics, one row per user (docs/large.md).", metavar="FILE"
        ),
    ] = None,
    users: Annotated[
        int | None, typer.Option(min=2, help="Learn from this many users, drawn by a hash of their names.")
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of classes; without it chosen on held-out users, or by the sampler."),
    ] = None,
    columns: ColumnsOption = None,
    user: Annotated[str | None, typer.Option(help="Table: column of the user.", metavar="COLUMN")] = None,
    item: Annotated[
        str | None,
        typer.Option(
            help="Table: column of the item; each item is a feature, if there are no --columns.", metavar="COLUMN"
        ),
    ] = None,
    reward: Annotated[str | None, typer.Option(help="Table: column of the reward.", metavar="COLUMN")] = None,
    user_columns: UserColumnsOption = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Imported log: one-hot, multi-hot, raw or pca:K, each with or without +1 for a constant; factors:K, "
            "learned from the rewards; pca or factors without K, and what is not given, is chosen on held-out users.",
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
        int | None,
        typer.Option(
            min=1,
            help="Random starts; the best is kept (em: 4, of 10 classes or more up to 16; spectral: 50, personal: 2).",
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Most steps (em: 500, for clicks 300, personal: 200).")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Stop when a step gains less than this per user (em: 1e-6, personal: 0.005).")
    ] = None,
    sweeps: Annotated[
        int | None, typer.Option(min=8, help="Sweeps of a chain (gibbs, blocked: 200, mixture: 16).")
    ] = None,
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
    on_disk: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Keep the statistics in files of this folder, for more users than fit in memory.",
            metavar="FOLDER",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; without it one per core. Not spectral.")] = None,
    no_item_effects: Annotated[
        bool,
        typer.Option(
            "--no-item-effects",
            help="Imported log: leave out what items are liked beyond their features (em, "
            "personal, mixture), which is learned where items come again.",
        ),
    ] = False,
    on: OnOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of starts and draws.")] = 0,
    json: JSONOption = None,
) -> None:
    """Learn latent classes from the log of past users.

    An event table has the columns user, reward and the features of the arm that was shown: one list column x, or the
    numeric columns named by --columns.  An imported log (lcb import) has items with categories; --features says how
    they become features, and the models keep it.  Of more than 100 items that nothing describes, features are learned
    from the rewards (factors:K; K is chosen by serving held-out users).  A log whose events have a column x, such as
    one from lcb log export, is an event table.

    Events are streamed, so memory grows with users and not with events (but spectral keeps all rows, and so do clicks
    with more than a few distinct feature vectors).  More than a few hundred thousand users hardly change the classes:
    --users keeps a sample of them while reading; --on has the machines of a Ray cluster hold them.

    Without --learner, point classes (em) and classes of people who differ (personal) are tried with several bonuses on
    at most 5,000 users: classes learned from one half serve the other half in simulation.  The simplest within one
    standard error of the best is kept, and the reason is printed.  --classes and --likelihood fix what they name.
    Where most labels of a user are of one arm, as in the log of a good recommender, a mixture is learned instead.

    \b
    Example:
      lcb learn events.csv --columns sport,arts,politics --classes 5 --out models
      lcb learn events.parquet --learner gibbs --sweeps 500 --out models
      lcb learn visits.csv --user visitor --item article --reward clicked --out models
      lcb learn news --features pca:6+1 --classes 30 --out models
      lcb learn ratings --like 5 --features factors:5 --out models
      lcb learn 'parts/*.parquet' --users 200000 --out models
      lcb learn /shared/events --columns sport,arts,politics --on ray --out models
    """
    from lcb.cli.learning_input import LearningInput
    from lcb.evaluate.offline.learn_classes import DEFAULT_LEARNER, learn_classes, takes_effects
    from lcb.features import is_learned
    from lcb.progress import bar
    from lcb.storage.models.folder import check_models_folder, save_models

    if tol is not None and not tol > 0:
        raise InputError(f"--tol {tol}; give a number above 0")
    with_effects = not no_item_effects and likelihood != LikelihoodName.bernoulli and takes_effects(learner)
    if is_learned(features) and not with_effects:
        raise InputError(
            f"--features {features} are learned beside item effects, with em, personal or mixture and rewards as "
            "numbers; leave out --no-item-effects, --likelihood and other learners"
        )
    given = LearningInput(
        events=events,
        statistics=statistics,
        users=users,
        columns=columns,
        user=user,
        item=item,
        reward=reward,
        user_columns=user_columns,
        features=features,
        reading=reading.value if reading else None,
        like=like,
        reward_range=reward_range,
        float32=float32,
        on_disk=on_disk,
        classes=classes,
        seed=seed,
        no_item_effects=no_item_effects or None,
        with_effects=with_effects,
        chooses=learner is None,
        on=on,
    )
    source = given.check_source()
    check_models_folder(out)
    check_output("--json", json, files=[source, traces], folders=[out])
    check_output("--traces", traces, files=[source], folders=[out])
    learner_name = learner or DEFAULT_LEARNER
    if traces is not None:
        _check_traces(learner_name)
    settings = _check_settings(
        learner_name,
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
    given.check_on(learner_name, threads)
    began = time.monotonic()
    with (
        open_cluster(on) as cluster,
        ExitStack() as held,
        bar() as shown,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", ConvergenceWarning)
        progress = shown if cluster is None else cluster.report(shown)
        data = given.read(learner_name, progress, cluster, held)
        result = learn_classes(
            data,
            seed=seed,
            learner=learner,
            n_classes=classes,
            likelihood=likelihood.value if likelihood else None,
            item_effects=not no_item_effects,
            on=cluster,
            progress=progress,
            **settings,
        )
        n_nodes = None if cluster is None else cluster.n_nodes
    save_models(result.models, out, overwrite=True, feature_map=data.feature_map)
    if traces is not None:
        _draw_traces(result, traces)
    for warning in caught:
        typer.echo(f"warning: {warning.message}", err=True)
    seconds = time.monotonic() - began
    write_json(json, _summarise(result, data, seconds, n_nodes))
    if json != "-":
        _print_result(result, data, seconds, n_nodes)
        typer.echo(f"saved in {out}; lcb show {out} prints them")


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


def _check_traces(learner: str) -> None:
    """Raise if the learner has no chains to draw, or if charts cannot be drawn."""
    from lcb import charts

    if "n_chains" not in get_learner(learner).settings:
        raise _build_option_error("traces", "n_chains", learner)
    charts.require()


def _build_option_error(option: str, setting: str, learner: str) -> InputError:
    *most, last = [name for name in LEARNERS if setting in get_learner(name).settings]
    others = f"{', '.join(most)} and {last}" if most else last
    return InputError(f"--{option} is an option of {others}, not of {learner}; leave it out")


def _draw_traces(result: Fit, path: Path) -> None:
    from lcb import charts

    charts.save(charts.traces(result), path)  # type: ignore[arg-type]


def _print_result(result: Fit, data: LearningData, seconds: float, n_nodes: int | None) -> None:
    for line in result.why:
        typer.echo(line)
    models, log = result.models, data.log
    labels = f" ({format_count(log.n_events, 'label')})" if log.n_events != data.n_events else ""
    typer.echo(
        f"{format_count(models.n_classes, 'class')} from {format_count(data.n_events, 'event')}{labels} of "
        f"{format_count(log.n_users, 'user')} ({format_count(result.n_steps, 'step')}, {seconds:.1f} s"
        + (")" if n_nodes is None else f", {format_count(n_nodes, 'node')})")
    )
    if data.feature_map is not None:
        typer.echo(f"features ({data.feature_map.spec}), in their order: {list_names(models.features)}")


def _summarise(result: Fit, data: LearningData, seconds: float, n_nodes: int | None) -> dict[str, Any]:
    models, log = result.models, data.log
    return {
        "classes": models.n_classes,
        "users": log.n_users,
        "events": data.n_events,
        **({} if log.n_events == data.n_events else {"labels": log.n_events}),
        **({} if n_nodes is None else {"nodes": n_nodes}),
        "features": list(models.features),
        "learner": models.provenance["learner"],
        **({"bonus": models.provenance["bonus"]} if "bonus" in models.provenance else {}),
        "likelihood": models.likelihood,
        **({} if models.item_effects is None else {"item_effects": models.item_effects.summary()}),
        "why": list(result.why),
        "steps": result.n_steps,
        "converged": result.converged,
        "seconds": seconds,
        "held_out": {str(n): {"mean": mean, "se": se} for n, (mean, se) in result.held_out.items()},
    }
