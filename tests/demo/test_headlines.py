"""The headlines of the reader's page, and the files of the pages."""

import json
import re
from collections import Counter
from importlib.resources import files

import pytest

from lcb.demo.readers import CATEGORIES, KINDS
from lcb.demo.visitors import HEADLINES, read_headlines
from lcb.serve.config.settings import Settings
from lcb.serve.log.bootstrap import FirstItems
from lcb.serve.pages.files import read_static
from lcb.serve.pages.palette import generate_files
from lcb.serve.service import Service
from lcb.storage.store.open_store import open_store

PAGES = files("lcb.serve.pages")
ITEMS = json.loads((files("lcb.demo") / "headlines.json").read_text(encoding="utf-8"))["items"]
STATIC = sorted(path.name for path in PAGES.joinpath("static").iterdir())


def test_they_need_nothing_beside_them_to_be_served(tmp_path):
    for _ in range(2):
        store = open_store(str(tmp_path / "lcb.db"))
        items = FirstItems(HEADLINES, read_headlines(), CATEGORIES)
        service = Service(Settings(store=store.url, items=HEADLINES), store, items=items)
        assert len(service.world.state.catalogue) == len(ITEMS)
        assert service.world.state.n_features == len(CATEGORIES)
        store.close()


def test_there_are_about_two_hundred_each_with_its_own_id_and_title():
    assert 190 <= len(ITEMS) <= 240
    for word in ("id", "title", "summary"):
        assert len({item[word] for item in ITEMS}) == len(ITEMS)


def test_an_item_has_what_a_catalogue_item_has_and_nothing_else():
    for item in ITEMS:
        assert list(item) == ["id", "title", "summary", "categories"]
        assert re.fullmatch(r"n\d{3}", item["id"])
        assert 15 <= len(item["title"]) <= 80, item
        assert 20 <= len(item["summary"]) <= 120, item
        assert item["summary"].endswith((".", "?")), item
        assert not item["title"].endswith("."), item


def test_every_item_has_one_to_three_known_categories():
    for item in ITEMS:
        assert 1 <= len(item["categories"]) <= 3
        assert len(set(item["categories"])) == len(item["categories"])
        assert set(item["categories"]) <= set(CATEGORIES)


def test_every_category_has_enough_headlines_and_some_of_its_own():
    every = Counter(category for item in ITEMS for category in item["categories"])
    alone = Counter(item["categories"][0] for item in ITEMS if len(item["categories"]) == 1)
    assert all(every[category] >= 12 and alone[category] >= 3 for category in CATEGORIES)


def test_a_reader_of_each_kind_finds_more_than_twenty_headlines_wholly_of_that_kind():
    for _, liked in KINDS.values():
        assert sum(set(item["categories"]) <= set(liked) for item in ITEMS) > 25


@pytest.mark.parametrize("name", [name for name in STATIC if name.endswith((".html", ".css", ".js", ".svg"))])
def test_a_page_asks_no_other_host_and_obeys_a_strict_policy(name):
    text = read_static(name).decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|@import|\beval\b|new Function|innerHTML|document\.write", text)
    if name.endswith(".html"):
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style", text)
        assert all('src="' in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("name", [name for name in STATIC if name.endswith((".html", ".js"))])
def test_a_page_refers_to_files_that_are_there(name):
    text = read_static(name).decode()
    named = re.findall(r'"(?:static/|\./)([\w.-]+\.(?:js|css|svg))"', text)
    assert set(named) <= {*STATIC, *generate_files(), "vega.js"}  # vega.js is built at the first request


def test_every_category_has_a_picture():
    text = PAGES.joinpath("static", "art.js").read_text(encoding="utf-8")
    assert set(re.findall(r"^  (\w+): \[\d+, ", text, re.MULTILINE)) == set(CATEGORIES)
