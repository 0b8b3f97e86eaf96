"""What the pages hold, without a browser: nothing inline or from elsewhere, every id a script asks for."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import lcb.serve.pages
from lcb.serve.pages.files import read_static

STATIC = Path(lcb.serve.pages.__file__).parent / "static"
PAGES = {"dashboard.html": ["dashboard.js", "operator.js"], "story.html": ["story.js", "operator.js"]}


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_nothing_inline_and_asks_no_other_host(page):
    tags = Reader(read_static(page).decode()).tags
    for tag, attributes in tags:
        assert tag != "style"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "script" or attributes.get("src")
        for name in ("src", "href", "action"):
            assert attributes.get(name, "/").startswith("/")
            assert not attributes.get(name, "/").startswith("//")


@pytest.mark.parametrize("page", PAGES)
def test_every_id_a_script_asks_for_is_in_its_page_once(page):
    ids = [attributes["id"] for _, attributes in Reader(read_static(page).decode()).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for script in PAGES[page]:
        asked = re.findall(r'\$\("([^"]+)"\)', (STATIC / script).read_text())
        assert asked
        assert set(asked) <= set(ids)


def test_every_live_chart_has_a_place():
    from lcb.serve.pages.specs import live_specs

    ids = {attributes.get("id") for _, attributes in Reader(read_static("dashboard.html").decode()).tags}
    assert {f"chart-{name}" for name in live_specs()} <= ids


@pytest.mark.parametrize("script", ["dashboard.js", "story.js", "embed.js", "operator.js"])
def test_no_script_writes_html_or_asks_another_host(script):
    text = (STATIC / script).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    hosts = re.findall(r"https?://[^\"'` ]+", text)
    assert set(hosts) <= {"http://www.w3.org/2000/svg"}
    for name in re.findall(r'(?:from|import\()\s*"([^"]+)"', text):
        assert name in ("./vega.js", "./palette.js") or (STATIC / name).is_file()
