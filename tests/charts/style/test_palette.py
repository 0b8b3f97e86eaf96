"""Colours are in palette.json and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lcb
from lcb.charts.style.palette import PALETTE
from lcb.serve.pages.palette import generate_files

SUFFIXES = {".py", ".css", ".js", ".html", ".svg"}
SOURCE = Path(lcb.__file__).parent
COLOUR = re.compile(
    r"(?<![\w&/])#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})\b(?!-)"
    r"|\b(?:rgba?|hsla?|oklch|oklab|lab|lch)\(\s*[\d.]"
    r"|(?<=[\"'])(?:white|black)(?=[\"'])"
    r"|(?:color|background|fill|stroke):\s*(?:white|black)\b",
    re.IGNORECASE,
)
EXCEPTIONS = {"cli/commands/show.py": ["white", "black"]}  # of the terminal, not of a screen


def test_no_file_but_the_palette_holds_a_colour():
    found = {}
    for path in sorted(SOURCE.rglob("*")):
        colours = COLOUR.findall(path.read_text()) if path.suffix in SUFFIXES else []
        if colours:
            found[path.relative_to(SOURCE).as_posix()] = colours
    assert found == EXCEPTIONS


@pytest.mark.parametrize(
    "text",
    ["a { color: #0b5394; }", "x = '#FFF'", "rgb(0 0 0 / 45%)", "oklch(0.5 0.1 20)", "fill='white'", "color: black;"],
)
def test_the_search_finds_colours(text):
    assert COLOUR.search(text)


@pytest.mark.parametrize("text", ["href='#main'", "#chart-classes {", "rgb({red},{green})", "oklch(var(--dot))"])
def test_the_search_finds_nothing_else(text):
    assert not COLOUR.search(text)


@pytest.mark.parametrize("part", ["charts", "visitor-pages", "operator-pages"])
def test_light_and_dark_have_the_same_names(part):
    assert list(PALETTE[part]["light"]) == list(PALETTE[part]["dark"])


def test_dark_charts_are_drawn_for_the_surface_they_stand_on():
    assert PALETTE["charts"]["dark"]["surface"] == PALETTE["operator-pages"]["dark"]["surface"]


@pytest.mark.parametrize(("sheet", "styles"), [("visitor", "style.css"), ("operator", "dashboard.css")])
def test_a_page_declares_every_variable_it_uses_and_no_other(sheet, styles):
    text = (SOURCE / "serve/pages/static" / styles).read_text()
    declared = set(re.findall(r"(--[\w-]+):", generate_files()[f"palette-{sheet}.css"]))
    used = set(re.findall(r"var\((--[\w-]+)", text))
    scripts = " ".join(path.read_text() for path in (SOURCE / "serve/pages/static").glob("*.js"))
    own = {name for name in used if f"{name}:" in text or name in scripts}
    assert used - own <= declared
    assert {name for name in declared if f"{name})" not in text and not name.startswith("--class-")} == set()
