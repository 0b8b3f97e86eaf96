"""A real browser: the distribution's Chromium, driven by Playwright.

A module's tests share one browser and each has pages of its own.  The browser lives no longer than its module, because
Playwright keeps an event loop running in this thread while it is open, and `asyncio.run` would refuse to start there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

QUIET = [
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    for name in ["chromium", "chromium-browser", "google-chrome"]:
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
