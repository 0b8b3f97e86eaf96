"""One user's story in a real browser."""

from __future__ import annotations

import pytest

from lcb.demo.readers import CATEGORIES
from support.page_readers import N_STEPS, SCREENS, check_accessible, likes, picture


def read(server, kind, n=N_STEPS, study=False):
    """A visitor who opens what this kind likes; their name and how many they opened."""
    with server.client() as client:
        seen, opened = client.post("/page/visit", json={"study": study}).json(), 0
        while seen["step"] < n:
            hit = bool(set(seen["offer"]["categories"]) & likes(kind))
            opened += hit
            body = {"decision_id": seen["offer"]["decision_id"], "opened": hit}
            seen = client.post("/page/answer", json=body).json()
        return seen["visitor"], opened


@pytest.fixture(scope="module")
def reader(front):
    return read(front, "culture", 12)


def test_every_decision_is_told_with_what_was_offered_and_learned(front, look, reader):
    visitor, opened = reader
    page = look(front, f"/users/{visitor}", viewport={"width": 1280, "height": 1000})
    page.wait_for_selector("#chart-posterior canvas")
    assert page.inner_text("h1") == f"User {visitor}"
    facts = dict(zip(*(page.locator(f"#facts {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert facts["Recommender"] == "reader"
    assert (facts["Decisions"], facts["Rewards"]) == ("13", "12")
    assert facts["Most probable class"].startswith("arts, books, film")
    rows = page.locator("#decisions > tr")
    assert rows.count() == 13
    assert rows.nth(12).locator("td").nth(6).inner_text() == "waiting"
    rewards = [rows.nth(i).locator("td").nth(6).inner_text() for i in range(12)]
    assert rewards.count("1") == opened
    rows.nth(0).locator("summary").click()
    rows.nth(0).locator(".arms li").first.wait_for()  # the list is made when it is opened
    assert rows.nth(0).locator(".arms li").count() == 170
    assert rows.nth(0).locator(".arms .chosen").count() == 1
    rows.nth(0).locator("summary").click()


def test_every_decision_recomputed_from_the_log_is_the_same(front, look, reader):
    page = look(front, f"/users/{reader[0]}", viewport={"width": 1280, "height": 1000})
    page.wait_for_selector("#chart-posterior canvas")
    page.click("#verify")
    page.wait_for_selector("#verified.good")
    assert page.inner_text("#verified").startswith("All 13 decisions were recomputed from the log")
    picture(page, "story")


@pytest.mark.parametrize("screen", SCREENS)
def test_it_is_accessible_and_fits(front, look, reader, screen):
    page = look(front, f"/users/{reader[0]}", **SCREENS[screen])
    page.wait_for_selector("#chart-posterior canvas")
    check_accessible(page)


def test_of_somebody_without_classes_there_is_no_picture_of_them(front, look):
    for _ in range(30):
        visitor, _ = read(front, "sport", 2, study=True)
        with front.client() as client:
            if client.get(f"/v1/users/{visitor}").json()["recommender"] == "population":
                break
    page = look(front, f"/users/{visitor}")
    page.wait_for_selector("#decisions tr")
    assert page.locator("#posterior").is_hidden()
    assert "population" in page.inner_text("#facts")
    check_accessible(page)


@pytest.mark.parametrize("name", ["<b>a/b</b> c", "100% ünï?#x/story"])
def test_any_name_is_shown_as_it_is(front, look, name):
    arms = [{"id": "<i>one</i>", "x": [1.0] + [0.0] * (len(CATEGORIES) - 1)}]
    with front.client() as client:
        made = client.post("/v1/decisions", json={"user": name, "arms": arms})
        assert made.status_code == 200, made.text
    page = look(front, "/dashboard")
    page.fill("#find-user", name)
    page.keyboard.press("Enter")
    page.wait_for_selector("#decisions tr")
    assert page.inner_text("h1") == f"User {name}"
    assert page.locator("h1 b, td i").count() == 0
    assert "<i>one</i>" in page.inner_text("#decisions")


def test_somebody_unknown_is_said_to_be_unknown(front, look, watched):
    watched.forgive("404")
    page = look(front, "/users/nobody")
    page.wait_for_selector("#message:not([hidden])")
    assert page.inner_text("#message") == "There is no user nobody."
    check_accessible(page)
