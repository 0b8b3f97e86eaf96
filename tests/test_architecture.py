"""docs/architecture.md names what there is: every path in it exists, every package is in it, no cell is long."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LONGEST_CELL = 200  # characters: two lines of a page
PACKAGES = sorted(
    str(place.parent.relative_to(ROOT / "src" / "lcb"))
    for place in (ROOT / "src" / "lcb").rglob("__init__.py")
    if place.parent != ROOT / "src" / "lcb"
)


def exists(path: str) -> bool:
    places = (ROOT / path, ROOT / "src" / "lcb" / path, ROOT / "src" / "lcb" / "serve" / path)
    return any(place.exists() for place in places)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/.]+(?:/|\.py|\.sql)|(?:src|tests)/[\w/.]+)`", PAGE))))
def test_every_path_of_the_page_exists(path: str) -> None:
    assert exists(path) or list((ROOT / "src").rglob(path)), path


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_on_the_page(package: str) -> None:
    assert re.search(rf"[ ─(`/]{re.escape(package.rsplit('/', 1)[-1])}/", PAGE), package


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\b(\w+\.py)\b", PAGE))))
def test_every_module_of_the_page_exists(name: str) -> None:
    assert [*(ROOT / "src").rglob(name), *(ROOT / "tests").rglob(name)], name


def test_the_order_of_the_packages_is_the_one_that_lint_imports_checks() -> None:
    shown = PAGE.split("```text\ncli\n", 1)[1].split("```", 1)[0].splitlines()[:-1]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["containers"] == ["lcb"])
    assert ["cli", *shown] == layers[: 1 + len(shown)]
    assert layers[1 + len(shown)].startswith("theory")


def test_no_page_has_a_diagram_that_the_site_would_show_as_code() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert [page.name for page in pages if "```mermaid" in page.read_text(encoding="utf-8")] == []


def test_no_cell_of_a_table_is_longer_than_two_lines() -> None:
    cells = [cell.strip() for line in PAGE.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert max(map(len, cells)) <= LONGEST_CELL


def test_every_module_in_the_tree_of_the_service_is_in_the_service() -> None:
    tree = PAGE.split("src/lcb/serve/\n", 1)[1].split("```", 1)[0]
    missing = [name for name in re.findall(r"\b\w+\.py\b", tree) if not list((ROOT / "src/lcb/serve").rglob(name))]
    assert missing == []
