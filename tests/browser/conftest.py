"""A real browser, the distribution's Chromium driven by Playwright, and a service in its own process to look at.

A module's tests share one browser and each has pages of its own.  The browser lives no longer than its module, because
Playwright keeps an event loop running in this thread while it is open, and `asyncio.run` would refuse to start there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from lcb.demo.readers import CATEGORIES, reader_classes
from lcb.features import fit_features
from lcb.storage.models.folder import save_models
from support.harness import Server, serving

QUIET = [
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-opt,--no-maglev",  # no page runs for so long that an optimising compiler would earn its CPU back
]
RECOMMENDERS = [
    {"name": "lcb", "bandit": "thompson"},
    {"name": "population", "bandit": "linucb", "scope": "everyone"},
]


def chromium() -> str:
    for name in ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]:
        if found := shutil.which(name):
            return found
    raise RuntimeError("Chromium is not installed; on Debian and Ubuntu run: sudo apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*QUIET, *as_root])
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`new_page(**settings of a context)`: a page with cookies, storage and viewport of its own."""
    contexts = []

    def new(**settings) -> Page:
        contexts.append(browser.new_context(**settings))
        return contexts[-1].new_page()

    yield new
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    return new_page()


class Watched:
    """What pages did that they should not have; `forgive` takes words of what a test brings about itself."""

    def __init__(self) -> None:
        self.forgiven: list[str] = []
        self.said: list[str] = []
        self.asked: list[str] = []
        self.homes: list[str] = []

    def forgive(self, *words: str) -> None:
        self.forgiven += words

    def watch(self, page: Page, home: str) -> None:
        self.homes.append(home)
        page.set_default_timeout(60_000)  # the machine may be busy
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def check(self) -> None:
        """Nothing on the console, a breach of the policy among it, and no other host asked for anything."""
        assert [line for line in self.said if not any(words in line for words in self.forgiven)] == []
        homes = (*self.homes, "data:", "blob:")
        assert [url for url in self.asked if not url.startswith(homes)] == []


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def look(new_page: Callable[..., Page], watched: Watched) -> Iterator[Callable[..., Page]]:
    """`look(server, path, **settings of a context)`: a page that is watched; what it did is judged after the test."""

    def look(server: Server, path: str = "/", **settings: Any) -> Page:
        page = new_page(**settings)
        watched.watch(page, server.address)
        page.goto(server.address + path)
        return page

    yield look
    watched.check()


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of models: the kinds of the generated readers."""
    folder = tmp_path_factory.mktemp("classes") / "models"
    models = replace(reader_classes(), likelihood="bernoulli", levels=(0.0, 1.0))
    save_models(models, folder, feature_map=fit_features("one-hot", CATEGORIES, []))
    return str(folder)


@pytest.fixture(scope="session")
def settings(classes: str) -> dict[str, Any]:
    """Of a service with the news front."""
    return {
        "items": "headlines", "models": classes, "recommenders": RECOMMENDERS, "log_level": "warning",
        "learning": {"retrain_every": None, "n_classes": 5}, "limits": {"visitor_rate": 0},
    }  # fmt: skip


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Server]:
    """The news front, for all tests of a module."""
    with serving(Path(tmp_path_factory.mktemp("front")), **settings) as server:
        yield server
