"""`lcb simulate`: algorithms side by side in a generated world."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.output import JSON_HELP, algorithm_names, check_output, console, write_json
from lcb.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from lcb.evaluate.simulation.simulate import Simulation
    from lcb.models import LatentModels

_NOISE = (1e-6, 1e6)  # beside weights of about 1; the square of either is a harmless number


def simulate(
    models: Annotated[
        Path | None,
        typer.Option(help="The true classes: a CSV (one row of weights per class, no header) or a folder of models."),
    ] = None,
    algorithms: Annotated[
        str | None, typer.Option(help="Algorithms, as a,b,c, or all; the paper's when not given.", metavar="A,B,...")
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Users, one after another.")] = 1000,
    steps: Annotated[int, typer.Option(min=1, help="Steps per user, the paper's T_u.")] = 20,
    arms: Annotated[int, typer.Option(min=1, help="Arms per step, the paper's K.")] = 20,
    fixed_arms: Annotated[
        bool,
        typer.Option("--fixed-arms", help="Arms without features, the same at every step, one per weight."),
    ] = False,
    noise: Annotated[
        float | None, typer.Option(help="Standard deviation of rewards; 0.1, or the folder's own.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Settings as lcb tune writes them; algorithms it does not name keep the packaged ones."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same numbers whatever the number of workers.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core when not given.")] = None,
    json: Annotated[str | None, typer.Option(help=JSON_HELP, metavar="FILE")] = None,
) -> None:
    """Run algorithms side by side in the paper's simulation and print their regret.

    \b
    Example:
      lcb simulate --algorithms lcb,lcb-gt,linucb-population --runs 4
    """
    from lcb.evaluate.algorithms import PAPERS, parse_settings
    from lcb.evaluate.simulation.simulate import simulate as run
    from lcb.evaluate.worlds.fixed_arms import FixedArms
    from lcb.evaluate.worlds.paper import SimulatedWorld
    from lcb.progress import bar
    from lcb.storage.files import read_json

    is_folder = models is not None and models.is_dir()
    check_output("--json", json, files=[settings, None if is_folder else models], folders=[models] * is_folder)
    chosen = {} if settings is None else parse_settings(read_json(settings), str(settings))
    classes = true_classes(models, noise)
    world = FixedArms(classes) if fixed_arms else SimulatedWorld(classes, n_arms=arms)
    with bar() as progress:
        simulation = run(
            world,
            algorithm_names(algorithms, PAPERS),
            settings=chosen,
            n_users=users, n_steps=steps, n_runs=runs, seed=seed, n_workers=workers, progress=progress,
        )  # fmt: skip
    write_json(json, simulation.to_json())
    if json != "-":
        terminal = console()
        terminal.print(regret_table(simulation))
        for result in simulation.results:
            if result.note:
                terminal.print(f"{result.algorithm}: {result.note}", soft_wrap=True)


def true_classes(source: Path | None, noise: float | None) -> LatentModels:
    from dataclasses import replace

    import numpy as np

    from lcb.evaluate.worlds.paper import equal_classes, paper_classes
    from lcb.storage.models.folder import load_models
    from lcb.storage.models.weights import read_weights

    low, high = _NOISE
    if noise is not None and not low <= noise <= high:
        raise InputError(f"--noise {noise:g}; it must be a number from {low:g} to {high:g}")
    if source is None:
        return paper_classes(noise or 0.1)
    if source.is_dir():
        found = load_models(source)
        return found if noise is None else replace(found, sigma2=np.full(found.n_classes, noise**2))
    return equal_classes(read_weights(source), noise or 0.1)


def regret_table(simulation: Simulation) -> Table:
    """One row per algorithm."""
    from rich import box
    from rich.table import Table

    settings = simulation.settings
    table = Table(
        title=f"regret per user over {settings['steps']} steps: {settings['users']:,} users, {settings['runs']} runs",
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    for title in ("algorithm", "regret", "± se", "last quarter", "± se", "CPU s"):
        table.add_column(title, justify="left" if title == "algorithm" else "right", no_wrap=True)
    for row in simulation.to_json()["results"]:
        numbers = (row["regret_per_user"], row["se"], row["regret_last_quarter"], row["se_last_quarter"])
        table.add_row(
            row["algorithm"],
            *("-" if n is None else f"{n:.3f}" for n in numbers),
            f"{row['cpu_seconds']:.2f}",
        )
    return table
