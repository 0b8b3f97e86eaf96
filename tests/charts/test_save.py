"""What is in a saved file, and what is there when it cannot be saved."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from lcb.charts import regret_by_users, save
from lcb.errors import InputError, OutputError
from support.chart_reading import ALGORITHMS, python, some_curves


@pytest.fixture(scope="module")
def chart() -> Any:
    return regret_by_users(some_curves(), "Simulation")


def test_a_saved_png_is_a_picture_on_white_at_twice_the_size(chart, tmp_path):
    save(chart, tmp_path / "regret.PNG")
    save(chart, str(tmp_path / "regret.svg"))
    png = (tmp_path / "regret.PNG").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width = int.from_bytes(png[16:20])
    drawn = float(re.search(r'<svg[^>]* width="([\d.]+)"', (tmp_path / "regret.svg").read_text(encoding="utf-8"))[1])
    assert abs(width - 2 * drawn) <= 2
    place, pixels = 8, b""
    while place < len(png):
        size = int.from_bytes(png[place : place + 4])
        pixels += png[place + 8 : place + 8 + size] if png[place + 4 : place + 8] == b"IDAT" else b""
        place += size + 12
    pixels = zlib.decompress(pixels)
    assert pixels[1:4] == b"\xff\xff\xff"  # the first pixel; no PNG filter changes it
    assert len(set(pixels)) > 16  # one colour would leave a handful of byte values


def test_a_saved_svg_has_title_axis_and_every_label(chart, tmp_path):
    save(chart, tmp_path / "regret.svg")
    svg = (tmp_path / "regret.svg").read_text(encoding="utf-8")
    for text in ("Simulation", "number of users", "bands of ± 2 standard errors", *ALGORITHMS):
        assert text in svg


def test_a_saved_html_needs_no_network(chart, tmp_path):
    save(chart, tmp_path / "regret.html")
    html = (tmp_path / "regret.html").read_text(encoding="utf-8")
    assert "linucb-population" in html
    assert len(html) > 500_000  # the drawing code is inside
    assert not re.search(r"<script[^>]*\ssrc\s*=", html)
    assert not re.search(r"<link[^>]*\shref\s*=", html)
    assert not re.search(r"""\bimport\s*\(?\s*["']https?:""", html)


def test_a_saved_json_is_the_same_chart(chart, tmp_path):
    save(chart, tmp_path / "regret.json")
    written = json.loads((tmp_path / "regret.json").read_text(encoding="utf-8"))
    assert written == chart.to_dict()
    assert alt.LayerChart.from_dict(written).to_dict() == written


@pytest.mark.parametrize("name, came", [("regret.pdf", ".pdf"), ("regret", "no suffix")])
def test_an_unknown_suffix_is_refused_with_those_that_are_known(chart, tmp_path, name, came):
    with pytest.raises(InputError, match=f"ends in {came}; name it .png, .svg, .html or .json"):
        save(chart, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/regret.json", "file/regret.json", "folder.json"])
def test_a_place_that_cannot_be_written_is_named_and_left_as_it_was(chart, tmp_path, place):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder.json").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=re.escape(f"{tmp_path / place} could not be written")):
        save(chart, tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_a_save_cut_short_leaves_the_old_file_and_no_other(chart, tmp_path, monkeypatch, stop):
    path = tmp_path / "regret.json"
    path.write_text("old")

    def cut(source: Path, target: Path) -> None:
        assert Path(source).stat().st_size > 0
        raise stop("cut short")

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(KeyboardInterrupt if stop is KeyboardInterrupt else OutputError):
        save(chart, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["regret.json"]
    assert path.read_text() == "old"


def test_a_chart_that_cannot_be_drawn_leaves_the_old_file(tmp_path):
    path = tmp_path / "regret.png"
    path.write_text("old")
    with pytest.raises(ValueError, match="encoding"):
        save(alt.Chart(alt.InlineData([{"a": 1}])).mark_bar().encode(x=alt.X("a")), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["regret.png"]
    assert path.read_text() == "old"


def test_json_is_saved_without_the_renderer(tmp_path):
    path = str(tmp_path / "bars.json")
    hide = "import sys; sys.modules['vl_convert'] = None"
    python(f"{hide}\nfrom lcb.charts import bars, save\nsave(bars([('a', 1.0)], 'x'), {path!r})")
    assert json.loads(Path(path).read_text(encoding="utf-8"))["$schema"].startswith("https://vega.github.io")
