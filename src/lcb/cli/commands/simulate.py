"""`lcb simulate`: compare algorithms in a simulated world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.clusters import OnOption, spread_runs
from lcb.cli.options import JSONOption, WorkersOption, parse_algorithms
from lcb.cli.output import build_table, check_output, format_number, get_console, write_json
from lcb.cli.world import ArmsOption, ClassesOption, FixedArmsOption, NoiseOption, StepsOption, build_world
from lcb.words import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.simulation.simulate import Simulation


def simulate(
    models: ClassesOption = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Algorithms, as a,b,c, or all; without it lcb-auto and those of the paper.", metavar="A,B,..."
        ),
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Users, one after another.")] = 1000,
    steps: StepsOption = 20,
    arms: ArmsOption = 20,
    fixed_arms: FixedArmsOption = False,
    noise: NoiseOption = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Settings from lcb tune; algorithms that it does not name keep the packaged ones."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed; results do not depend on the number of workers.")] = 0,
    workers: WorkersOption = None,
    on: OnOption = None,
    json: JSONOption = None,
) -> None:
    """Compare algorithms in the simulation of the paper and print their regret.

    \b
    Example:
      lcb simulate --algorithms lcb,lcb-gt,linucb-population --runs 4
    """
    from lcb.evaluate.algorithms import DEFAULTS, parse_settings
    from lcb.evaluate.simulation.simulate import simulate as run
    from lcb.progress import bar
    from lcb.storage.files import read_json

    is_folder = models is not None and models.is_dir()
    check_output("--json", json, files=[settings, None if is_folder else models], folders=[models] * is_folder)
    tuned = {} if settings is None else parse_settings(read_json(settings), str(settings))
    world = build_world(models, noise, n_arms=arms, fixed_arms=fixed_arms)
    with spread_runs(on, workers) as report, bar() as shown:
        progress = report(shown)
        simulation = run(
            world,
            parse_algorithms(algorithms, DEFAULTS),
            settings=tuned,
            n_users=users,
            n_steps=steps,
            n_runs=runs,
            seed=seed,
            n_workers=workers,
            progress=progress,
        )
    write_json(json, simulation.to_json())
    if json != "-":
        terminal = get_console()
        terminal.print(_build_regret_table(simulation))
        for result in simulation.results:
            if result.note:
                terminal.print(f"{result.algorithm}: {result.note}", soft_wrap=True)


def _build_regret_table(simulation: Simulation) -> Table:
    """Return a table of one row per algorithm."""
    about = simulation.settings
    caption = (
        f"regret per user over {format_count(about['steps'], 'step')}: {format_count(about['users'], 'user')}, "
        f"{format_count(about['runs'], 'run')}"
    )
    table = build_table(
        "algorithm", "regret", "± se", "last quarter", "± se", "CPU s", left=["algorithm"], caption=caption
    )
    for row in simulation.to_json()["results"]:
        numbers = (row["regret_per_user"], row["se"], row["regret_last_quarter"], row["se_last_quarter"])
        table.add_row(row["algorithm"], *(format_number(n, 3) for n in numbers), f"{row['cpu_seconds']:.2f}")
    return table
