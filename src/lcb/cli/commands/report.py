"""`lcb report`: all figures of the paper on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lcb.cli.output import check_output
from lcb.errors import InputError


def report(
    figures: Annotated[
        Path, typer.Option(help="Folder with the files of lcb reproduce; missing ones are run first.")
    ] = Path("figures"),
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[
        Path | None, typer.Option(help="Log for fig-3a to fig-3c; without it those that are missing are left out.")
    ] = None,
    like: Annotated[float | None, typer.Option(help="Smallest rating of the log that counts as liked.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of the missing simulations.")] = 10,
) -> None:
    """Write one self-contained HTML page: every figure, our numbers beside the paper's, and which claims hold.

    \b
    Example:
      lcb report --figures figures --data goodbooks --like 5 --out report.html
    """
    from lcb.experiments import EXPERIMENTS, load_experiment
    from lcb.experiments.real_data import Data, parse_tuned
    from lcb.experiments.report import Section, render_page
    from lcb.experiments.reproduce import reproduce
    from lcb.progress import bar
    from lcb.storage.files import read_json, write_whole

    if out.suffix not in (".html", ".htm"):
        raise InputError(f"--out {out}; give a name that ends in .html")
    check_output("--out", out, files=[figures / f"{name}.json" for name in EXPERIMENTS])
    sections, missing = [], []
    for name in EXPERIMENTS:
        section = Section.read(figures, name)
        if section is None and (data is not None or not name.startswith("fig-3")):
            typer.echo(f"running {name}", err=True)
            command = f"lcb reproduce {name}"
            with bar() as progress:
                if name.startswith("fig-3"):
                    before = [figures / f"fig-3{letter}.json" for letter in "ab"]
                    told = next((file for file in before if file.exists()), None)
                    tuned = None if told is None or name == "fig-3c" else parse_tuned(read_json(told), str(told))
                    log = Data(str(data), like=like, tuned=tuned)
                    words = f" --data {data}" + (f" --like {like:g}" if like is not None else "")
                    reproduce(name, load_experiment(name), figures, command + words, progress, data=log)
                else:
                    reproduce(name, load_experiment(name), figures, f"{command} --runs {runs}", progress, n_runs=runs)
            section = Section.read(figures, name)
        if section is None:
            missing.append(name)
        else:
            sections.append(section)
    write_whole(out, render_page(sections, missing).encode())
    typer.echo(f"{len(sections)} figures and tables in {out}")
    for name in missing:
        typer.echo(f"left out: {name}; it needs a log, give one with --data")
