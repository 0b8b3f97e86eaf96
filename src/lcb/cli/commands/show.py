"""`lcb show`: print and draw the classes of a folder of models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcb.cli.options import JSONOption
from lcb.cli.output import build_table, check_output, get_console, write_json
from lcb.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lcb.arrays import Floats
    from lcb.models import LatentModels

_LISTED = 8  # items of each kind
_SIDE = 28  # columns of text taken by class, share and noise


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of models from lcb learn.", metavar="DIR")],
    json: JSONOption = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw a heat map, or the items, to this .png, .svg, .html or .json file.")
    ] = None,
    items: Annotated[
        bool, typer.Option("--items", help="List the best, the worst and the least known items instead of the classes.")
    ] = False,
) -> None:
    """Show the classes in a folder of models: share of users, noise of rewards, weights.

    With --items, show what items are liked beyond their features, with 95 % intervals; --json has every item.

    \b
    Example:
      lcb show models --png classes.png
      lcb show models --items --png items.png
    """
    from lcb.storage.models.folder import load_models

    check_output("--json", json, folders=[folder])
    check_output("--png", png, files=[json], folders=[folder])
    models = load_models(folder)
    if items:
        show_items(models, folder, json, png)
        return
    if png is not None:
        from lcb import charts

        charts.save(charts.heat_map(models), png)
    write_json(json, to_json(models))
    if json != "-":
        terminal = get_console()
        terminal.print(build_class_table(models, terminal.width))
        if png is not None:
            typer.echo(f"heat map in {png}")


def show_items(models: LatentModels, folder: Path, json: str | None, png: Path | None) -> None:
    """Print and draw the item effects of some models."""
    from lcb.models.item_effects import SMALL_EFFECTS

    small = models.provenance.get(SMALL_EFFECTS)
    if models.item_effects is None and small is not None:
        raise InputError(
            f"{folder} has no item effects: they were left out, since they explain under {small:.1%} of the rewards; "
            "items differ by their features alone, which lcb show without --items prints"
        )
    if models.item_effects is None:
        raise InputError(f"{folder} has no item effects; learn them with lcb learn from a log whose items come again")
    lists = models.item_effects.list_extremes(_LISTED)
    rows = {name: [asdict(one) for one in listed] for name, listed in lists.items()}
    if png is not None:
        from lcb import charts

        charts.save(charts.item_effects(lists), png)
    if json is not None:
        everything = models.item_effects.list_extremes(models.item_effects.n_items)["best"]
        write_json(json, {**models.item_effects.summary(), **rows, "all": [asdict(one) for one in everything]})
    if json != "-":
        table = build_table("", "item", "effect", "95 % interval", "users", left=["", "item"])
        for name, listed in lists.items():
            for i, one in enumerate(listed):
                interval = f"{one.low:+.3f} to {one.high:+.3f}"
                table.add_row("" if i else name, one.item, f"{one.effect:+.3f}", interval, f"{one.count:,.0f}")
        get_console().print(table)
        if png is not None:
            typer.echo(f"items in {png}")


def to_json(models: LatentModels) -> dict[str, Any]:
    return {
        "pi": models.pi.tolist(),
        "beta": models.beta.tolist(),
        "sigma2": models.sigma2.tolist(),
        "features": list(models.features),
        **({} if models.spread is None else {"spread": models.spread.tolist()}),
        **({} if models.new_class is None else {"new_class": models.new_class + 1}),
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
    center, digits = _find_offset(models)
    caption = None if digits is None else "classes differ little: shaded by the difference from their mean"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    spread = models.spread
    for title in ("class", "share", "noise", *(() if spread is None else ("spread",))):
        table.add_column(title, justify="right", no_wrap=True)
    longest = max(len(_format(value, digits)) + 2 for value in models.beta.ravel().tolist())
    wide = _SIDE + sum(max(8, longest, len(name)) + 1 for name in names) <= width
    for title in names if wide else ("largest weights",):
        table.add_column(title, justify="right" if wide else "left", no_wrap=wide)
    top = np.abs(models.beta - center).max() or 1.0
    for h in np.argsort(-models.pi, kind="stable").tolist():
        beta = models.beta[h]
        if wide:
            strength = (beta - center) / top
            cells: list[Text | str] = [
                _shade(_format(value, digits), share) for value, share in zip(beta, strength, strict=True)
            ]
        else:
            largest = np.argsort(-np.abs(beta - center))[:6]
            cells = [", ".join(f"{names[j]} {_format(beta[j], digits)}" for j in largest)]
        noise = float(np.sqrt(models.sigma2[h]))
        own = () if spread is None else (f"{float(np.sqrt(np.square(spread[h]).mean())):.3g}",)
        table.add_row(
            "new" if h == models.new_class else f"{h + 1}", f"{models.pi[h]:.1%}", f"{noise:.3g}", *own, *cells
        )
    return table


def _find_offset(models: LatentModels) -> tuple[Floats, int | None]:
    """Return what weights are compared with, (d,), and the digits after the point that show differences of classes.

    That is 0, with three digits in all (None), unless all classes differ by less than a tenth of the largest weight, as
    where rewards have an offset.  Then it is the mean of the classes.
    """
    import numpy as np

    mean = models.pi @ models.beta
    largest, apart = np.abs(models.beta).max(), np.abs(models.beta - mean).max()
    if not 1e-9 * largest < apart < 0.1 * largest:
        return np.zeros_like(mean), None
    return mean, max(2 - int(np.floor(np.log10(apart))), 0)


def _format(value: float, digits: int | None) -> str:
    return f"{value:.3g}" if digits is None else f"{value:.{digits}f}"


def _shade(text: str, strength: float) -> Text:
    """Return a number on a background that is blue above 0 and orange below, darker for larger weights."""
    from rich.text import Text

    from lcb.charts.style.theme import DIVERGING

    full = DIVERGING[5 if strength >= 0 else 1]
    share = abs(strength)
    red, green, blue = (round(255 + (int(full[i : i + 2], 16) - 255) * share) for i in (1, 3, 5))
    ink = "white" if share > 0.6 else "black"
    return Text(f" {text} ", style=f"{ink} on rgb({red},{green},{blue})")
