"""`lcb tune`: search the settings of algorithms in a simulated world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.clusters import OnOption, spread_runs
from lcb.cli.options import JSONOption, WorkersOption, parse_algorithms
from lcb.cli.output import (
    build_table,
    check_output,
    format_json,
    format_number,
    format_settings,
    get_console,
    write_json,
)
from lcb.cli.world import ArmsOption, ClassesOption, FixedArmsOption, NoiseOption, StepsOption, build_world
from lcb.storage.files import write_whole
from lcb.words import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.tuning.tune_simulation import Tuning


def tune(
    algorithms: Annotated[
        str | None, typer.Option(help="Algorithms, as a,b,c; without it all.", metavar="A,B,...")
    ] = None,
    out: Annotated[Path, typer.Option(help="JSON file for the chosen settings and everything tried.")] = Path(
        "tuned.json"
    ),
    models: ClassesOption = None,
    users: Annotated[int, typer.Option(min=1, help="Users of a run, one after another.")] = 500,
    steps: StepsOption = 20,
    arms: ArmsOption = 20,
    fixed_arms: FixedArmsOption = False,
    noise: NoiseOption = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of every combination of settings.")] = 4,
    most: Annotated[int, typer.Option(min=1, help="Most combinations to try of one algorithm.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed; lcb simulate draws other users with the same seed.")] = 0,
    workers: WorkersOption = None,
    on: OnOption = None,
    png: Annotated[Path | None, typer.Option(help="Draw all regrets to this .png, .svg, .html or .json file.")] = None,
    json: JSONOption = None,
) -> None:
    """Try settings of algorithms in the simulation of the paper and keep those with the least regret.

    `lcb simulate --settings` reads the file.

    \b
    Example:
      lcb tune --algorithms lcb,linucb-individual --out tuned.json
    """
    from lcb.evaluate.tuning.tune_simulation import tune as run
    from lcb.progress import bar

    is_folder = models is not None and models.is_dir()
    targets = {"--out": out, "--png": png, "--json": json}
    for option, target in targets.items():
        others = [other for name, other in targets.items() if name != option]
        check_output(option, target, files=[*others, None if is_folder else models], folders=[models] * is_folder)
    if png is not None:
        from lcb import charts

        charts.require()
    world = build_world(models, noise, n_arms=arms, fixed_arms=fixed_arms)
    with spread_runs(on, workers) as report, bar() as shown:
        progress = report(shown)
        tuning = run(
            world,
            parse_algorithms(algorithms or "all", ()),
            n_users=users,
            n_steps=steps,
            n_runs=runs,
            seed=seed,
            most=most,
            n_workers=workers,
            progress=progress,
        )
    if png is not None:
        title = (
            f"Regret per user of all settings tried: {format_count(users, 'user')} of {format_count(steps, 'step')}, "
            f"{format_count(runs, 'run')}"
        )
        charts.save(charts.grids(_list_regrets(tuning), title=title), png)
    write_whole(out, f"{format_json(tuning.to_json(), levels=3)}\n".encode())
    write_json(json, tuning.to_json())
    if json != "-":
        terminal = get_console()
        terminal.print(_build_settings_table(tuning))
        saved = [f"settings in {out}"] + [f"figure in {png}"] * (png is not None)
        for line in [*_describe(tuning), *saved]:
            terminal.print(line, soft_wrap=True)


def _list_regrets(tuning: Tuning) -> list[tuple[str, list[float], str]]:
    """Return each algorithm with the regrets of its settings and the chosen settings as text."""
    return [
        (name, [trial.mean for trial in tuning.trials[name]], format_settings(best.settings) if best.settings else "")
        for name, best in tuning.best.items()
    ]


def _build_settings_table(tuning: Tuning) -> Table:
    """Return a table of one row per algorithm."""
    about = tuning.settings
    caption = (
        f"regret per user over {format_count(about['steps'], 'step')}: {format_count(about['users'], 'user')}, "
        f"{format_count(about['runs'], 'run')}"
    )
    titles = ("algorithm", "tried", "as good", "defaults", "chosen", "± se", "settings")
    table = build_table(*titles, left=["algorithm", "settings"], wrapped=["settings"], caption=caption)
    for name, best in tuning.best.items():
        trials = tuning.trials[name]
        rows = [trial.to_json(best) for trial in trials]
        n_as_good = sum(trial is not best and _is_as_good(row) for trial, row in zip(trials, rows, strict=True))
        table.add_row(
            name,
            f"{len(trials)}",
            f"{n_as_good}",
            "-" if trials[0].refusal else f"{trials[0].mean:.3f}",
            f"{best.mean:.3f}",
            format_number(best.to_json(best)["se"], 3),
            format_settings(best.settings),
        )
    return table


def _is_as_good(row: dict[str, float]) -> bool:
    """Return whether a row is within two standard errors of the chosen one, by their difference."""
    return row.get("se_behind") is not None and row["behind"] <= 2 * row["se_behind"]


def _describe(tuning: Tuning) -> list[str]:
    ends = [f"{name} {format_settings({setting: value})}" for name, setting, value in tuning.at_ends]
    notes = ["as good: other settings within two standard errors of the chosen ones"]
    if ends:
        notes.append(f"chosen at the edge of the grid, so a value beyond it may be better: {', '.join(ends)}")
    for trials in tuning.trials.values():
        refusals = [trial.refusal for trial in trials if trial.refusal]
        if refusals:
            notes.append(f"{len(refusals)} of {len(trials)} settings were refused: {refusals[0]}")
    return notes
