"""`lcb tune`: the settings of every algorithm, tried out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.commands.simulate import true_classes
from lcb.cli.output import JSON_HELP, algorithm_names, check_output, console, in_words, unfolded, write_json
from lcb.storage.files import write_whole

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.tuning.tune_simulation import Tuning


def tune(
    algorithms: Annotated[
        str | None, typer.Option(help="Algorithms, as a,b,c, or all; all when not given.", metavar="A,B,...")
    ] = None,
    out: Annotated[Path, typer.Option(help="File for the chosen settings and all that was tried (JSON).")] = Path(
        "tuned.json"
    ),
    models: Annotated[
        Path | None,
        typer.Option(help="The true classes: a CSV (one row of weights per class, no header) or a folder of models."),
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Users of a run, one after another.")] = 500,
    steps: Annotated[int, typer.Option(min=1, help="Steps per user, the paper's T_u.")] = 20,
    arms: Annotated[int, typer.Option(min=1, help="Arms per step, the paper's K.")] = 20,
    fixed_arms: Annotated[
        bool,
        typer.Option("--fixed-arms", help="Arms without features, the same at every step, one per weight."),
    ] = False,
    noise: Annotated[
        float | None, typer.Option(help="Standard deviation of rewards; 0.1, or the folder's own.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of every combination of settings.")] = 4,
    most: Annotated[int, typer.Option(min=1, help="Combinations tried of one algorithm, at most.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tuning; no seed of simulate draws the same users.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core when not given.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw all regrets here (.png, .svg, .html or .json).")] = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Try the settings of algorithms in the paper's simulation and keep those of least regret.

    The file is what `lcb simulate --settings` reads.

    \b
    Example:
      lcb tune --algorithms lcb,linucb-individual --out tuned.json
    """
    from lcb.evaluate.tuning.tune_simulation import tune as run
    from lcb.evaluate.worlds.fixed_arms import FixedArms
    from lcb.evaluate.worlds.paper import SimulatedWorld
    from lcb.progress import bar

    is_folder = models is not None and models.is_dir()
    targets = {"--out": out, "--png": png, "--json": None if json in (None, "-") else Path(json)}
    for option, target in targets.items():
        others = [other for name, other in targets.items() if name != option]
        check_output(option, target, files=[*others, None if is_folder else models], folders=[models] * is_folder)
    if png is not None:
        from lcb import charts

        charts.require()
    classes = true_classes(models, noise)
    world = FixedArms(classes) if fixed_arms else SimulatedWorld(classes, n_arms=arms)
    with bar() as progress:
        tuning = run(
            world, algorithm_names(algorithms or "all", ()),
            n_users=users, n_steps=steps, n_runs=runs, seed=seed, most=most, n_workers=workers, progress=progress,
        )  # fmt: skip
    if png is not None:
        title = f"Regret per user of all settings tried: {users:,} users of {steps} steps, {runs} runs"
        charts.save(charts.grids(_in_picture(tuning), title=title), png)
    write_whole(out, f"{unfolded(tuning.to_json(), levels=3)}\n".encode())
    write_json(json, tuning.to_json())
    if json != "-":
        terminal = console()
        terminal.print(settings_table(tuning))
        for line in _notes(tuning):
            terminal.print(line, soft_wrap=True)
        terminal.print(f"settings in {out}", soft_wrap=True)
        if png is not None:
            terminal.print(f"picture in {png}", soft_wrap=True)


def _in_picture(tuning: Tuning) -> list[tuple[str, list[float], str]]:
    """By algorithm, all regrets and the chosen settings in words."""
    return [
        (name, [trial.mean for trial in tuning.trials[name]], in_words(best.settings) if best.settings else "")
        for name, best in tuning.best.items()
    ]


def settings_table(tuning: Tuning) -> Table:
    """One row per algorithm."""
    from rich import box
    from rich.table import Table

    about = tuning.settings
    table = Table(
        title=f"regret per user over {about['steps']} steps: {about['users']:,} users, {about['runs']} runs",
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for title in ("algorithm", "tried", "as good", "defaults", "chosen", "± se"):
        table.add_column(title, justify="left" if title == "algorithm" else "right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for name, best in tuning.best.items():
        trials = tuning.trials[name]
        rows = [trial.to_json(best) for trial in trials]
        table.add_row(
            name,
            f"{len(trials)}",
            f"{sum(trial is not best and _is_as_good(row) for trial, row in zip(trials, rows, strict=True))}",
            "-" if trials[0].refusal else f"{trials[0].mean:.3f}",
            f"{best.mean:.3f}",
            "-" if (error := best.to_json(best)["se"]) is None else f"{error:.3f}",
            in_words(best.settings),
        )
    return table


def _is_as_good(row: dict[str, float]) -> bool:
    """Within two standard errors of the difference to the chosen."""
    return row.get("se_behind") is not None and row["behind"] <= 2 * row["se_behind"]


def _notes(tuning: Tuning) -> list[str]:
    ends = [f"{name} {in_words({setting: value})}" for name, setting, value in tuning.at_ends]
    notes = ["as good: other settings within two standard errors of the difference to the chosen"]
    if ends:
        notes.append(f"at an end of what was tried, where more may be gained beyond: {', '.join(ends)}")
    for trials in tuning.trials.values():
        refusals = [trial.refusal for trial in trials if trial.refusal]
        if refusals:
            notes.append(f"refused in {len(refusals)} of {len(trials)}: {refusals[0]}")
    return notes
