"""`lcb show`: print and draw the classes of a folder of models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import check_output, get_console, write_json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lcb.models import LatentModels

_SIDE = 28  # columns of text taken by class, share and noise


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of models from lcb learn.", metavar="DIR")],
    json: JSONOption = None,
    png: Annotated[Path | None, typer.Option(help="Draw a heat map to this .png, .svg, .html or .json file.")] = None,
) -> None:
    """Show the classes in a folder of models: share of users, noise of rewards, weights.

    \b
    Example:
      lcb show models --png classes.png
    """
    from lcb.storage.models.folder import load_models

    check_output("--json", json, folders=[folder])
    check_output("--png", png, files=[json], folders=[folder])
    models = load_models(folder)
    if png is not None:
        from lcb import charts

        charts.save(charts.heat_map(models), png)
    write_json(json, to_json(models))
    if json != "-":
        terminal = get_console()
        terminal.print(build_class_table(models, terminal.width))
        if png is not None:
            typer.echo(f"heat map in {png}")


def to_json(models: LatentModels) -> dict[str, Any]:
    return {
        "pi": models.pi.tolist(),
        "beta": models.beta.tolist(),
        "sigma2": models.sigma2.tolist(),
        "features": list(models.features),
        **({} if models.spread is None else {"spread": models.spread.tolist()}),
        "likelihood": models.likelihood,
        "levels": models.levels and list(models.levels),
        "provenance": dict(models.provenance),
    }


def build_class_table(models: LatentModels, width: int) -> Table:
    """Return one row per class, the largest first: features as shaded columns if they fit, else the largest weights."""
    import numpy as np
    from rich import box
    from rich.table import Table

    from lcb.charts.style.formats import escape_unprintable

    names = [escape_unprintable(name) for name in models.features]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    spread = models.spread
    for title in ("class", "share", "noise", *(() if spread is None else ("spread",))):
        table.add_column(title, justify="right", no_wrap=True)
    wide = _SIDE + sum(max(8, len(name)) + 1 for name in names) <= width
    for title in names if wide else ("largest weights",):
        table.add_column(title, justify="right" if wide else "left", no_wrap=wide)
    top = np.abs(models.beta).max() or 1.0
    for h in np.argsort(-models.pi, kind="stable").tolist():
        beta = models.beta[h]
        if wide:
            cells: list[Text | str] = [_shade(value, value / top) for value in beta]
        else:
            largest = np.argsort(-np.abs(beta))[:6]
            cells = [", ".join(f"{names[j]} {beta[j]:.3g}" for j in largest)]
        noise = float(np.sqrt(models.sigma2[h]))
        own = () if spread is None else (f"{float(np.sqrt(np.square(spread[h]).mean())):.3g}",)
        table.add_row(f"{h + 1}", f"{models.pi[h]:.1%}", f"{noise:.3g}", *own, *cells)
    return table


def _shade(value: float, strength: float) -> Text:
    """Return a number on a background that is blue above 0 and orange below, darker for larger weights."""
    from rich.text import Text

    from lcb.charts.style.theme import DIVERGING

    full = DIVERGING[5 if strength >= 0 else 1]
    share = abs(strength)
    red, green, blue = (round(255 + (int(full[i : i + 2], 16) - 255) * share) for i in (1, 3, 5))
    ink = "white" if share > 0.6 else "black"
    return Text(f" {value:.3g} ", style=f"{ink} on rgb({red},{green},{blue})")
