"""Shared by the tests of the pages: readers of one kind who answer by mouse or keyboard, and checks of every page."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from lcb.demo.readers import KINDS

PICTURES = Path(__file__).parents[2] / "docs" / "figures"
WRITE_PICTURES = bool(os.environ.get("LCB_WRITE_SCREENSHOTS"))
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1280, "height": 800}}
SCREENS = {"phone": PHONE, "wide": WIDE}
N_STEPS = 20
_ANSWERED = "#deck .dot.opened, #deck .dot.passed"


def likes(kind: str) -> set[str]:
    return set(KINDS[kind][1])


def ready(page: Page) -> None:
    """Wait until a headline is shown."""
    page.wait_for_function("() => document.querySelector('#deck .headline')?.textContent")


def categories(page: Page) -> set[str]:
    return set(page.locator("#deck .chip").all_inner_texts())


def n_answered(page: Page) -> int:
    return page.locator(_ANSWERED).count()


def answer(page: Page, opened: bool, by: str = "mouse") -> None:
    """Open or pass, and wait until the page has updated."""
    before = n_answered(page)
    if by == "mouse":
        page.click("#deck .answer.open" if opened else "#deck .answer.pass")
    else:
        page.keyboard.press("ArrowRight" if opened else "ArrowLeft")
    page.wait_for_function(f"n => document.querySelectorAll('{_ANSWERED}').length > n", arg=before)


def play(
    page: Page, liked: Collection[str], n: int = N_STEPS, by: str = "mouse",
    each: Callable[[int], None] = lambda i: None,
) -> list[bool]:  # fmt: skip
    """Answer `n` headlines, opening those with one of these categories; return whether each was opened."""
    opened = []
    for i in range(n):
        each(i)
        opened.append(bool(categories(page) & set(liked)))
        answer(page, opened[-1], by)
    return opened


def hurry(page: Page, liked: Collection[str], upto: int = N_STEPS) -> None:
    """Do the same by requests instead of clicks until `upto` are answered, then reload the page."""
    home, study = page.evaluate("[location.origin, location.pathname === '/study']")
    ask = page.context.request
    seen = ask.post(f"{home}/page/visit", data={"study": study}).json()
    while seen["step"] < upto:
        offer = seen["offer"]
        body = {"decision_id": offer["decision_id"], "opened": bool(set(offer["categories"]) & set(liked))}
        seen = ask.post(f"{home}/page/answer", data=body).json()
    page.reload()


def bars(page: Page) -> dict[str, float]:
    """Return what the panel shows: the words of each kind and its share."""
    read = "bars => bars.map(b => [b.querySelector('.bar-words').textContent, Number(b.dataset.share)])"
    return dict(page.locator("#beliefs .bar").evaluate_all(read))


def believed(page: Page, kind: str) -> float:
    """Return the share of the kind with these words."""
    return next(share for words, share in bars(page).items() if set(words.split(", ")) <= likes(kind))


def check_accessible(page: Page) -> None:
    """Check, in light and dark colours, that axe finds no violation and nothing is wider than the screen."""
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate("""async () => {
            for (const _ of [1, 2, 3]) await new Promise(requestAnimationFrame);
            await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => 0)));
        }""")
        found = find_violations(page)
        nodes = [(scheme, one["id"], node["target"], node["failureSummary"]) for one in found for node in one["nodes"]]
        assert not nodes, nodes
    check_width(page)


def find_violations(page: Page) -> list[dict[str, Any]]:
    """Return what axe objects to; its script of half a megabyte is read once per page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return page.evaluate("axe.run({resultTypes: ['violations']}).then((found) => found.violations)")


def check_width(page: Page) -> None:
    width, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= room, f"{width} pixels on a screen of {room}"


def picture(page: Page, name: str, **options: Any) -> None:
    """Save a screenshot for the docs, if screenshots were requested."""
    if WRITE_PICTURES:
        page.wait_for_timeout(600)  # until animations have ended
        page.screenshot(path=PICTURES / f"{name}.png", animations="disabled", **options)
