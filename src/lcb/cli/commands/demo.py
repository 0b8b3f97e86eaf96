"""`lcb demo`: learn classes from generated readers and serve new ones, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lcb.cli.commands.show import build_class_table
from lcb.cli.output import build_table, get_console
from lcb.cli.settings import require_serve_extra, run_service
from lcb.storage.files import check_writable, create_folder
from lcb.words import format_count

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from lcb.demo.readers import NewsFront
    from lcb.models import LatentModels

_READERS_SHOWN = 2
_RETRAIN_EVERY = 200  # new users between two trainings of the demo's service
_PER_MINUTE = 20.0  # simulated visitors of the study
_FIGURES = ("classes.png", "new-reader.png", "clicks.png")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("demo"),
    readers: Annotated[int, typer.Option(min=2, help="New readers to compare on.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated world.")] = 0,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the web pages afterwards, until Ctrl-C.")] = False,
    host: Annotated[str, typer.Option(help="With --serve: address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve: port; 0 takes any free port.")] = 8000,
    visitors: Annotated[
        bool, typer.Option("--visitors/--no-visitors", help="With --serve: also simulate visitors, 20 a minute.")
    ] = True,
) -> None:
    """Learn classes from generated readers, serve new readers in the terminal and draw figures of it.

    With --serve the classes are then served on web pages: the reader's page, the study and the dashboard.

    \b
    Example:
      lcb demo --out demo
      lcb demo --serve --port 8000
    """
    from lcb import charts
    from lcb.storage.models.folder import check_models_folder

    if serve:
        require_serve_extra()

    charts.require()
    with create_folder(out):
        for name in _FIGURES:
            check_writable(out / name)
        check_models_folder(out / "models")
        _run_demo(out, readers, seed)
    if serve:
        _serve(out, host, port, visitors)


def _run_demo(out: Path, readers: int, seed: int) -> None:
    import numpy as np

    from lcb import charts
    from lcb.demo import story
    from lcb.demo.readers import FEATURES
    from lcb.progress import bar
    from lcb.storage.models.folder import save_models

    classes, new_reader, clicks = (out / name for name in _FIGURES)
    rng, terminal = np.random.default_rng(seed), get_console()
    world = story.build_world(rng)
    with bar() as progress:
        log = story.simulate_past_log(world, story.N_PAST, rng)
        found = story.fit_classes(log, rng, progress)
    models = found.models
    save_models(models, out / "models", overwrite=True, feature_map=FEATURES)
    charts.save(charts.heat_map(models, title="The classes of readers"), classes)
    learned, n_events, n_users = format_count(models.n_classes, "class"), log.stats.n_events, log.n_users
    terminal.print(f"{learned} learned from {n_events:,} clicks and passes of {n_users:,} readers")
    for line in found.why:
        terminal.print(line, soft_wrap=True)
    terminal.print(build_class_table(models, terminal.width))
    for _ in range(_READERS_SHOWN):
        posterior = _print_reader(world, models, rng, terminal)
    charts.save(charts.posterior_path(posterior, title="Posterior of one new reader"), new_reader)
    rates = story.measure_clicks(world, models, log.stats, readers, rng)
    _print_rates(rates, terminal)
    rows = [(name, float(rate.mean())) for name, rate in rates.items()]
    title = f"Clicks per offer, {readers:,} new readers of {story.N_STEPS} steps"
    charts.save(charts.bars(rows, "click-through rate", title=title), clicks)
    terminal.print(f"figures and models in {out}: {', '.join(_FIGURES)}, models/")


def _serve(out: Path, host: str, port: int, visitors: bool) -> None:
    """Serve the pages with the learned classes; LCB and one LinUCB for all users share the visitors of the study."""
    from lcb.serve.config.recommenders import RecommenderSpec
    from lcb.serve.config.settings import CHOSEN, Learning, Settings

    settings = Settings(
        store=str(out / "service.db"),
        host=host,
        port=port,
        models=str(out / "models"),
        items="headlines",
        recommenders=(CHOSEN, RecommenderSpec("population", "linucb", "everyone")),
        learning=Learning(retrain_every=_RETRAIN_EVERY),
        simulated_visitors=_PER_MINUTE if visitors else 0.0,
        log_level="warning",
    )
    terminal = get_console()

    def ready(address: str) -> None:
        terminal.print(f"\nreader's page:  {address}/", soft_wrap=True)
        terminal.print(f"user study:     {address}/study", soft_wrap=True)
        terminal.print(f"dashboard:      {address}/dashboard", soft_wrap=True)
        terminal.print("Ctrl-C stops the service", soft_wrap=True)

    run_service(settings, ready)


def _print_reader(world: NewsFront, models: LatentModels, rng: np.random.Generator, terminal: Console) -> np.ndarray:
    import numpy as np

    from lcb.demo import story
    from lcb.demo.readers import KINDS

    label, steps = story.serve_reader(world, models, rng)
    terminal.print(f"\na new reader, of the kind “{list(KINDS)[label]}”, which the bandit does not know\n")
    posterior = [models.pi]
    for t, step in enumerate(steps, start=1):
        posterior.append(step.posterior)
        believed = int(step.posterior.argmax())
        filled = round(20 * float(step.posterior[believed]))
        terminal.print(
            f"{t:3}  {', '.join(step.categories):34} {'opened' if step.clicked else '  -   '}"
            f"   class {believed + 1} {'█' * filled}{'░' * (20 - filled)} {step.posterior[believed]:4.0%}",
            soft_wrap=True,
        )
    return np.array(posterior)


def _print_rates(rates: dict[str, np.ndarray], terminal: Console) -> None:
    import numpy as np

    base = rates["linucb-population"]
    titles = ("recommender", "clicks", "± se", "against linucb-population (95 %)")
    table = build_table(*titles, left=["recommender"], caption="\nclicks per offer, the same new readers for all")
    for name, rate in rates.items():
        difference = rate - base
        half = 1.96 * difference.std(ddof=1) / np.sqrt(len(rate))
        against = "" if rate is base else f"{difference.mean() / base.mean():+.0%} ± {half / base.mean():.0%}"
        table.add_row(name, f"{rate.mean():.3f}", f"{rate.std(ddof=1) / np.sqrt(len(rate)):.3f}", against)
    terminal.print(table)
