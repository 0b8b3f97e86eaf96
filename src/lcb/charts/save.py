"""Writes a chart to a file, atomically."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lcb.charts.style.page import inline_svg
from lcb.charts.style.theme import load_altair
from lcb.errors import InputError, MissingExtra
from lcb.storage.files import write_whole

if TYPE_CHECKING:
    import altair as alt


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write the chart in the format of the suffix; if this fails, the old file stays."""
    write_whole(path, _render(chart, Path(path)))


def to_svg(chart: alt.TopLevelMixin, name: str) -> str:
    """Return the chart as SVG to put into a page; `name` makes its ids unique there."""
    return inline_svg(_render(chart, Path("chart.svg")).decode(), name)


def require() -> None:
    """Raise MissingExtra if Altair or vl-convert is not installed."""
    load_altair()
    _load_renderer()


def _render(chart: Any, path: Path) -> bytes:
    form = path.suffix.lower().removeprefix(".")
    if form not in ("png", "svg", "html", "json"):
        raise InputError(f"{path} ends in {path.suffix or 'no suffix'}; name it .png, .svg, .html or .json")
    if form != "json":
        _load_renderer()
    sink = io.BytesIO() if form == "png" else io.StringIO()
    chart.save(sink, format=form, scale_factor=2 if form == "png" else 1, inline=form == "html")
    written = sink.getvalue()
    return written if isinstance(written, bytes) else written.encode()


def _load_renderer() -> None:
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra("vl-convert-python", "plots") from None
