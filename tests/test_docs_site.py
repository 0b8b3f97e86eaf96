"""The documentation: links lead somewhere; the site lists every page, builds strictly and loads nothing external."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
FENCED = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)


def broken_links(page: Path) -> list[str]:
    """Relative links of a page to files or headings that do not exist."""
    text = FENCED.sub("", page.read_text())
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [link for link in found if not re.match(r"\w+:", link) and not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not heading or target.suffix != ".md" or heading in headings(target))


def headings(page: Path) -> set[str]:
    """The anchors of a page: its headings in lower case, words joined by hyphens."""
    lines = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", line).strip().lower()) for line in lines}


def pages_of(entry: Any) -> set[str]:
    """All pages in a navigation, however deep."""
    if isinstance(entry, str):
        return {entry}
    return set().union(*map(pages_of, entry.values() if isinstance(entry, dict) else entry))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One page\n[good](#one-page) [good](page.md) [bad](other.md) [bad](page.md#two) [out](https://a.b)"
    )
    assert broken_links(page) == ["other.md", "page.md#two"]


def test_the_navigation_lists_every_page():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    docs = ROOT / "docs"
    assert pages_of(settings["nav"]) == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    python = settings["plugins"][1]["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT / "src")]
    python["options"]["extensions"] = [str(ROOT / extension) for extension in python["options"]["extensions"]]
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md")))
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]*\ssrc="?https?:|<link[^>]*rel="?(?:stylesheet|preconnect)[^>]*https?:'
    )
    assert [page for page in pages if loaded.search(page.read_text())] == []
    assert "GeneralizedThompson" in (tmp_path / "site" / "api" / "bandits.html").read_text()
