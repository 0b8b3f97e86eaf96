"""The study in a real browser: consent, twenty headlines, thanks, results."""

from __future__ import annotations

import re
import time

import pytest

from lcb.serve.web.keys import create
from lcb.storage.store.open_store import open_store
from support.harness import find_port, serving, start
from support.page_readers import (
    N_STEPS,
    SCREENS,
    WIDE,
    WRITE_PICTURES,
    answer,
    check_accessible,
    check_width,
    hurry,
    likes,
    n_answered,
    picture,
    play,
    ready,
)

RESULTS = "fetch('/page/study/results').then(a => a.json())"


def agree(page):
    page.click("#start")
    ready(page)


def finished(page):
    """Visitors per recommender, as the server counts them."""
    return {row["name"]: row["users"] for row in page.evaluate(RESULTS)["recommenders"]}


def test_by_mouse_from_consent_to_thanks(front, look):
    page = look(front, "/study")
    before = finished(page)
    agree(page)
    words = page.inner_text("body")
    assert "LCB" not in words
    assert "LinUCB" not in words
    opened = play(page, likes("culture"))
    page.wait_for_selector("#thanks-words:not(:empty)")
    assert f"You opened {sum(opened)} of {N_STEPS}." in page.inner_text("#thanks-words")
    page.wait_for_selector("#here tbody th")
    assert sum(finished(page).values()) == sum(before.values()) + 1
    rows = page.locator("#paper tbody tr").all_inner_texts()
    assert rows == ["LCB\t5\t0.380\t± 0.076", "Population LinUCB\t5\t0.196\t± 0.096"]


def test_by_keyboard_alone_from_consent_to_the_next_person(front, look):
    page = look(front, "/study")
    page.wait_for_load_state("networkidle")
    for _ in range(5):
        if page.evaluate("document.activeElement.id") == "start":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    ready(page)
    play(page, likes("home"), by="keyboard")
    page.wait_for_function("() => document.activeElement.id === 'thanks-title'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "consent-title"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 of 20")
    assert n_answered(page) == 0


def test_nothing_is_kept_before_consent_nor_by_looking_at_results(front, look):
    page = look(front, "/study")
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    page.wait_for_load_state("networkidle")
    page.click("#look")
    page.wait_for_selector("#here tbody tr")
    assert set(sent) <= {"GET"}
    assert page.context.cookies() == []


def test_nothing_that_the_server_sends_tells_who_chose(front, look):
    page = look(front, "/study")
    said = []
    page.wait_for_load_state("networkidle")
    page.on("response", lambda answered: "/page/" in answered.url and said.append(answered))
    agree(page)
    play(page, likes("sport"), 3)
    assert len(said) >= 4
    for answered in said:
        text = answered.text()
        assert '"beliefs":null' in text
        for word in ("lcb", "population", "recommender", "linucb", "thompson"):
            assert word not in text.lower()


def test_a_server_killed_in_the_middle_loses_nothing(tmp_path, settings, look, watched):
    watched.forgive("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "503")
    settings = settings | {"port": find_port()}
    with serving(tmp_path, **settings) as server:
        page = look(server, "/study")
        agree(page)
        play(page, likes("tomorrow"), 10)
        before = page.evaluate("fetch('/page/visit?study=true').then(a => a.json())")
        server.kill()
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("#trouble:not([hidden])")
        assert "Your place is kept" in page.inner_text("#trouble")
        check_accessible(page)
        again = start(tmp_path, **settings)
        try:
            page.wait_for_selector("text=12 of 20")  # the page tries again by itself
            assert page.locator("#trouble").is_hidden()
            after = page.evaluate("fetch('/page/visit?study=true').then(a => a.json())")
            assert after["visitor"] == before["visitor"]
            assert after["past"][:10] == before["past"]
            assert after["past"][10]["decision_id"] == before["offer"]["decision_id"]
            assert after["past"][10]["opened"] is False
            play(page, likes("tomorrow"), 9)
            page.wait_for_selector("#here tbody th")
            assert sum(finished(page).values()) == 1
            assert again.stop() == 0
        finally:
            if again.process.poll() is None:
                again.kill()


def test_simulated_visitors_fill_the_table_while_it_is_looked_at(front, look):
    page = look(front, "/study", viewport={"width": 1280, "height": 1150})
    page.click("#look")
    page.wait_for_selector("#here tbody th")
    before, n = sum(finished(page).values()), 40 if WRITE_PICTURES else 24  # a group of fewer than two: 3 in a million
    page.fill("#count", str(n))
    page.click("#simulate button")
    page.wait_for_selector("#simulate-state:not([hidden])")
    page.wait_for_function(
        "n => document.getElementById('simulate-words').textContent === 'All ' + n + ' have finished'", arg=n
    )
    assert sum(finished(page).values()) == before + n
    assert "simulated" in page.inner_text("#here")
    shown = page.inner_text("#difference")
    assert re.match(rf"{before + n} visitors so far, (all|\d+) of them simulated\. Those with LCB opened", shown)
    assert page.locator("#results-chart circle").count() == 4
    check_width(page)
    page.evaluate("scrollTo(0, 0)")
    page.click("#results-title")
    picture(page, "study", full_page=True)
    with page.expect_download() as download:
        page.click("text=Download the results as CSV")
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "visitor,recommender,simulated,opened,steps,rate"
    assert len(lines) == 1 + before + n


@pytest.mark.parametrize("screen", SCREENS)
def test_it_is_accessible_and_fits(front, look, screen):
    page = look(front, "/study", **SCREENS[screen])
    page.wait_for_load_state("networkidle")
    check_accessible(page)
    agree(page)
    answer(page, True)
    check_accessible(page)
    hurry(page, likes("sport"))
    page.wait_for_selector("#here tbody th")
    page.wait_for_selector("#results-chart svg")
    check_accessible(page)


def test_where_there_are_keys_a_visitor_lets_nobody_in(tmp_path, settings, look):
    with serving(tmp_path, **settings) as server:
        store = open_store(str(tmp_path / "lcb.db"))
        key = create(store, "ops", "writer", time.time())
        store.close()
        with server.client() as client:
            until = time.monotonic() + 20
            while client.get("/v1/models").status_code != 401 and time.monotonic() < until:
                time.sleep(0.1)
            assert client.post("/page/study/visitors", json={"n": 1}).status_code == 401
            bearer = {"authorization": f"Bearer {key}"}
            assert client.post("/page/study/visitors", json={"n": 1}, headers=bearer).status_code == 202
        page = look(server, "/study", **WIDE)
        page.click("#look")
        page.wait_for_selector("#here tbody th")
        page.wait_for_selector("#simulate", state="hidden")
