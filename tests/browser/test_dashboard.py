"""The operator's page in a real browser: live, with keys, and what an operator may do there."""

from __future__ import annotations

import random
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lcb.demo.readers import CATEGORIES, KINDS, click_probability, reader_classes
from lcb.features import fit_features
from lcb.serve.service import Service
from lcb.serve.web.keys import create, revoke
from lcb.storage.models.folder import save_models
from lcb.storage.store.open_store import open_store
from support.harness import find_port, serving
from support.page_readers import PHONE, SCREENS, WRITE_PICTURES, check_accessible, check_width, picture
from support.server import settings as settings_of

CHARTS = ("rates", "ctr", "classes", "concentration", "users_per_model")
N_USERS = "[...document.querySelectorAll('#trial tr')].reduce((sum, row) => sum + Number(row.cells[2]?.textContent), 0)"
INK = """canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""


def number(page, id):
    return float(re.sub(r"[^\d.]", "", page.inner_text(f"#{id}")) or 0)


def fact(page, name):
    row = page.locator("#store > div", has_text=name).locator("dd")
    return float(row.inner_text().replace(",", ""))


def let_in(server, n):
    with server.client() as client:
        assert client.post("/page/study/visitors", json={"n": n}).status_code == 202


@contextmanager
def readers(server):
    """Somebody reads, one headline after another, for as long as this lasts."""
    over = threading.Event()

    def read():
        with server.client() as client:
            while not over.is_set():
                kind, chance = random.choice(list(KINDS)), random.random
                seen = client.post("/page/visit", json={"again": True}).json()
                while not seen["done"] and not over.is_set():
                    opened = chance() < click_probability(kind, seen["offer"]["categories"])
                    body = {"decision_id": seen["offer"]["decision_id"], "opened": opened}
                    seen = client.post("/page/answer", json=body).json()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def live(page):
    page.wait_for_selector("#stream.live")
    page.wait_for_function("() => document.querySelectorAll('#trial tr').length === 2")


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory, settings):
    """A service with two versions of the models, of which the second is active."""
    folder = Path(tmp_path_factory.mktemp("versions"))
    other = replace(reader_classes(), beta=np.clip(reader_classes().beta + 0.01, 0, 1))
    save_models(other, folder / "other", feature_map=fit_features("one-hot", CATEGORIES, []))
    store = open_store(str(folder / "lcb.db"))
    Service(settings_of(settings | {"store": store.url, "items": None}), store)
    store.close()
    with serving(folder, **settings | {"models": str(folder / "other")}) as server:
        yield server


def test_it_changes_while_load_runs(front, look):
    page = look(front, "/dashboard", viewport={"width": 1440, "height": 2300})
    live(page)
    before = fact(page, "Events")
    let_in(front, 20)
    with readers(front):
        page.wait_for_function("() => parseFloat(document.getElementById('tile-decisions').textContent) > 5")
        seen = [fact(page, "Events")]
        while len(seen) < 4:
            grown = "n => !document.getElementById('store').textContent.includes(n)"
            page.wait_for_function(grown, arg=f"{seen[-1]:,.0f}")
            seen.append(fact(page, "Events"))
        assert before < seen[0] < seen[1] < seen[2] < seen[3]
        page.wait_for_function(f"() => {N_USERS} >= 20")
        for name in CHARTS:  # the slower ones are drawn every five seconds
            canvas = f"document.querySelector('#chart-{name} canvas')"
            page.wait_for_function(f"() => {canvas} && ({INK})({canvas}) > 20")
        assert page.inner_text("#stream") == "Live"
        assert number(page, "tile-p50") > 0
        routes = page.locator("#slowest th").all_inner_texts()
        assert set(routes) <= {"POST /page/visit", "POST /page/answer"}
        assert routes


def test_before_there_are_classes_it_says_so(tmp_path, settings, look):
    with serving(tmp_path, **settings | {"models": None, "categories": CATEGORIES}) as server:
        page = look(server, "/dashboard")
        live(page)
        assert "none yet" in page.inner_text("#classes-model")
        assert page.inner_text("#tile-model") == "none"
        assert fact(page, "Events") > 0
        check_accessible(page)


def test_charts_are_drawn_though_their_module_fails_to_load_at_first(front, look, watched):
    watched.forgive("Failed to fetch dynamically imported module", "net::ERR_FAILED")
    page = look(front, "/dashboard", viewport={"width": 1000, "height": 900})
    live(page)
    page.route("**/vega.js", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("#chart-rates canvas")


@pytest.mark.parametrize("screen", SCREENS)
def test_it_is_accessible_and_fits(front, look, screen):
    page = look(front, "/dashboard", **SCREENS[screen])
    live(page)
    page.wait_for_selector("#chart-rates canvas")
    check_accessible(page)


def test_no_width_leaves_a_hole_between_the_tiles_or_scrolls_sideways(front, look):
    page = look(front, "/dashboard")
    live(page)
    for width in (320, 700, 1100, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        check_width(page)
        whole, tiles = page.evaluate("""() => {
            const area = (e) => e.getBoundingClientRect().width * e.getBoundingClientRect().height;
            const tiles = document.getElementById('tiles');
            return [area(tiles), [...tiles.children].reduce((sum, tile) => sum + area(tile), 0)];
        }""")
        assert tiles > 0.95 * whole, width


def test_an_operator_rolls_back_and_forth(two_versions, look):
    page = look(two_versions, "/dashboard", viewport={"width": 1280, "height": 900})
    page.wait_for_function("() => document.getElementById('tile-model').textContent === 'v2'")
    rows = page.locator("#models tr")
    assert rows.locator("th").all_inner_texts() == ["v2", "v1"]
    rows.nth(1).locator("button").click()
    assert "all users who are not pinned to a version" in page.inner_text("#confirm-text")
    check_accessible(page)
    page.keyboard.press("Escape")
    assert page.inner_text("#tile-model") == "v2"
    rows.nth(1).locator("button").click()
    page.click("#confirm-yes")
    page.wait_for_function("() => document.getElementById('tile-model').textContent === 'v1'")
    with two_versions.client() as client:
        made = client.post("/page/visit", json={}).json()["visitor"]
        assert client.get(f"/v1/users/{made}").json()["model"] == 1


def test_an_operator_retrains(two_versions, look, tmp_path, settings):
    let_in(two_versions, 30)
    page = look(two_versions, "/dashboard", viewport={"width": 1280, "height": 900})
    page.wait_for_function(f"() => {N_USERS} >= 30")
    retrain(page, 3)
    assert page.inner_text("#retraining-text") == ""
    page.wait_for_function("() => !document.getElementById('retrain').disabled")
    if WRITE_PICTURES:
        show_much(tmp_path, settings, look)


SAW_PROGRESS = """() => {
    const bar = document.getElementById("retraining-progress"), button = document.getElementById("retrain");
    window.sawProgress = false;
    new MutationObserver(() => { window.sawProgress ||= !bar.hidden && button.disabled; })
        .observe(document.body, { attributes: true, subtree: true });
}"""


def retrain(page, n_versions):
    page.evaluate(SAW_PROGRESS)  # classes may be learned between two looks at the page
    page.click("#retrain")
    page.click("#confirm-yes")
    page.wait_for_function("() => window.sawProgress")
    versions = "n => document.querySelectorAll('#models tr').length === n"
    page.wait_for_function(versions, arg=n_versions, timeout=300_000)
    page.wait_for_selector("#retraining-progress", state="hidden")


def show_much(folder, settings, look):
    """A service that begins without classes and learns as visitors come, after some minutes; for the docs."""
    learning = {"n_warmup_users": 100, "retrain_every": 400, "n_classes": 5}
    given = settings | {"models": None, "categories": CATEGORIES, "learning": learning}
    with serving(folder, **given) as server:
        page = look(server, "/dashboard", viewport={"width": 1440, "height": 1900})
        until = time.monotonic() + 400
        while page.locator("#models tr").count() < 3 and time.monotonic() < until:
            let_in(server, 100)
            page.wait_for_timeout(20_000)
        with readers(server):
            page.wait_for_timeout(60_000)
            picture(page, "dashboard", full_page=True)


def test_a_server_that_comes_back_is_found_again(tmp_path, settings, look, watched):
    watched.forgive("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "503")
    settings = settings | {"port": find_port()}
    with serving(tmp_path, **settings) as server:
        page = look(server, "/dashboard", **PHONE)
        live(page)
        page.wait_for_selector("#chart-rates canvas", timeout=60_000)
        server.kill()
        page.wait_for_selector("#stream.broken")
        assert "trying again" in page.inner_text("#stream")
        with serving(tmp_path, **settings):
            page.wait_for_selector("#stream.live")


def test_with_keys_one_signs_in_and_a_revoked_key_ends_the_session(tmp_path, settings, look, watched):
    watched.forgive("401", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    store = open_store(str(tmp_path / "lcb.db"))
    try:
        admin, reader = (create(store, scope, scope, time.time()) for scope in ("admin", "reader"))
        with serving(tmp_path, **settings) as server:
            page = look(server, "/dashboard")
            page.wait_for_selector("#login:not([hidden])")
            check_accessible(page)
            page.fill("#key", "lcb_of_somebody_else")
            page.keyboard.press("Enter")
            page.wait_for_selector("#login-error:not(:empty)")
            assert page.inner_text("#login-error") == "This key is unknown or was revoked."
            assert page.locator("#board").is_hidden()
            page.fill("#key", admin)
            page.keyboard.press("Enter")
            live(page)
            assert page.locator("#retrain").is_visible()
            assert page.input_value("#key") == ""
            name = f"lcb_session_{server.address.rpartition(':')[2]}"
            cookie = next(one for one in page.context.cookies() if one["name"] == name)
            assert cookie["httpOnly"]
            assert cookie["sameSite"] == "Strict"
            assert admin not in cookie["value"]

            onlooker = look(server, "/dashboard")
            onlooker.fill("#key", reader)
            onlooker.keyboard.press("Enter")
            live(onlooker)
            assert onlooker.locator("#retrain").is_hidden()
            asked = onlooker.context.request.post(f"{server.address}/page/dashboard/retrain", data={})
            assert asked.status == 403

            revoke(store, "admin", time.time())
            page.wait_for_selector("#login:not([hidden])")
            assert page.context.request.get(f"{server.address}/page/dashboard/charts").status == 401
            assert onlooker.inner_text("#stream") == "Live"
            onlooker.click("#sign-out")
            onlooker.wait_for_selector("#login:not([hidden])")
    finally:
        store.close()


def test_the_stream_pauses_while_nobody_looks(front, look):
    page = look(front, "/dashboard")
    live(page)
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.clock.install()
    page.evaluate(hide, True)
    page.clock.fast_forward(31_000)
    assert page.inner_text("#stream") == "Paused while hidden"
    page.evaluate(hide, False)
    page.wait_for_selector("#stream.live")


def test_a_user_is_found_by_their_id(front, look):
    with front.client() as client:
        visitor = client.post("/page/visit", json={}).json()["visitor"]
    page = look(front, "/dashboard")
    live(page)
    page.fill("#find-user", visitor)
    page.keyboard.press("Enter")
    page.wait_for_selector("#decisions tr")
    assert page.inner_text("h1") == f"User {visitor}"
