"""The reader's page in a real browser."""

from __future__ import annotations

import pytest

from support.harness import serving
from support.page_readers import (
    N_STEPS,
    PHONE,
    SCREENS,
    WIDE,
    answer,
    bars,
    believed,
    check_accessible,
    check_width,
    hurry,
    likes,
    n_answered,
    picture,
    play,
    ready,
)

POLICY = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"}


def test_by_mouse_the_belief_moves_to_the_kind_that_is_played(front, look):
    page = look(front, "/", **WIDE | {"viewport": {"width": 1280, "height": 960}})
    ready(page)
    page.click(".toggle")
    before = believed(page, "culture")
    assert sum(bars(page).values()) == pytest.approx(1, abs=1e-3)
    seen, titles = [], []

    def note(i):
        seen.append(believed(page, "culture"))
        titles.append(page.inner_text(".headline"))
        if i == 9:
            picture(page, "reader")

    opened = play(page, likes("culture"), each=note)
    assert before == pytest.approx(0.22, abs=1e-3)
    assert seen[-1] > 0.99
    for i, hit in enumerate(opened[: len(seen) - 1]):
        if hit:
            assert seen[i + 1] > seen[i] or seen[i] > 0.999
    assert sum(opened[-10:]) >= 8
    assert len(set(titles)) == N_STEPS
    page.wait_for_selector("#summary-title")
    assert page.inner_text("#summary-title") == f"You opened {sum(opened)} of {N_STEPS}"
    assert "arts, books, film and the like" in page.inner_text("#summary .lead")
    assert page.locator("#summary .opened > li").count() == sum(opened)


def test_by_keyboard_alone_all_is_reached(front, look):
    page = look(front)
    ready(page)
    page.keyboard.press("b")
    assert page.locator("#beliefs").is_visible()
    opened = play(page, likes("sport"), by="keyboard")
    assert page.evaluate("document.activeElement.id") == "summary-title"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.step').textContent.startsWith('1 of')")
    assert page.locator("#summary").is_hidden()
    assert sum(opened[-10:]) >= 8


def test_the_letter_keys_answer_and_can_be_turned_off(front, look):
    page = look(front)
    ready(page)
    page.keyboard.press("o")
    page.wait_for_selector("text=2 of 20")
    page.keyboard.press("p")
    page.wait_for_selector("text=3 of 20")
    assert page.locator("#deck .dot.opened").count() == page.locator("#deck .dot.passed").count() == 1
    page.click("text=Turn keys off")
    page.keyboard.press("o")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert n_answered(page) == 2


def test_a_reload_keeps_the_place_and_starting_again_is_somebody_else(front, look):
    page = look(front)
    ready(page)
    play(page, likes("home"), 4)
    headline, visitor = page.inner_text(".headline"), page.context.cookies()[0]["value"]
    page.reload()
    ready(page)
    assert (page.inner_text(".headline"), n_answered(page)) == (headline, 4)
    hurry(page, likes("home"))
    page.click("text=Start again")
    page.wait_for_selector("text=1 of 20")
    assert page.context.cookies()[0]["value"] != visitor


def test_an_impatient_double_click_counts_once(front, look):
    page = look(front)
    ready(page)
    page.dblclick("#deck .answer.open")
    page.wait_for_selector("text=2 of 20")
    page.wait_for_timeout(200)
    steps = page.evaluate("fetch('/page/visit', {method: 'POST', body: '{}'}).then(a => a.json())")["past"]
    assert len(steps) == n_answered(page) <= 2
    assert len({step["decision_id"] for step in steps}) == len(steps)


@pytest.mark.parametrize("screen", SCREENS)
def test_it_is_accessible_and_fits(front, look, screen):
    page = look(front, "/", **SCREENS[screen])
    ready(page)
    check_accessible(page)
    hurry(page, likes("tomorrow"), 6)
    ready(page)
    page.click(".toggle")
    answer(page, True)
    check_accessible(page)
    if screen == "phone":
        picture(page, "reader-phone", full_page=True)
    hurry(page, likes("tomorrow"))
    page.wait_for_selector("#summary-title")
    check_accessible(page)


def test_no_width_makes_it_scroll_sideways(front, look):
    page = look(front)
    ready(page)
    page.click(".toggle")
    for width in (320, 768, 1920):
        page.set_viewport_size({"width": width, "height": 700})
        check_width(page)


def test_both_answers_are_on_a_phones_first_screen(front, look):
    page = look(front, "/", **PHONE)
    ready(page)
    for button in (".answer.open", ".answer.pass"):
        box = page.locator(button).bounding_box()
        assert box["y"] + box["height"] <= PHONE["viewport"]["height"]
        assert box["height"] >= 44


def test_with_one_list_for_everybody_it_claims_to_know_nobody(tmp_path, settings, look):
    given = settings | {"recommenders": [settings["recommenders"][1]]}
    with serving(tmp_path, **given) as server:
        page = look(server)
        ready(page)
        page.click(".toggle")
        assert "One list for all visitors" in page.inner_text("#beliefs")
        check_accessible(page)
        hurry(page, likes("sport"))
        page.wait_for_selector("#summary-title")
        check_accessible(page)
        assert "one list for all visitors" in page.inner_text("#summary .lead")


@pytest.mark.parametrize("path", ["/", "/study", "/dashboard", "/users/somebody"])
def test_the_policy_of_every_page_is_strict(front, new_page, path):
    page = new_page()
    answered = page.goto(front.address + path)
    policy = {part.strip() for part in answered.headers["content-security-policy"].split(";")}
    assert policy >= POLICY
    assert "unsafe" not in answered.headers["content-security-policy"]
    assert answered.headers["x-content-type-options"] == "nosniff"
    page.evaluate("""() => {
        window.breaches = [];
        document.addEventListener('securitypolicyviolation', (event) => breaches.push(event.effectiveDirective));
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.head.append(script);
        const style = document.createElement('style');
        style.textContent = 'body { display: none }';
        document.head.append(style);
        fetch('http://127.0.0.2:9/').catch(() => 0);
    }""")
    page.wait_for_function("() => breaches.length >= 3")
    assert set(page.evaluate("breaches")) == {"script-src-elem", "style-src-elem", "connect-src"}
    assert page.evaluate("window.ran") is None
    assert page.locator("body").is_visible()


def test_a_visitor_cannot_answer_for_another(front, look, watched):
    watched.forgive("404")
    one, other = look(front), look(front)
    ready(one), ready(other)
    visit = "fetch('/page/visit', {method: 'POST', body: '{}'}).then(a => a.json())"
    mine, theirs = one.evaluate(visit), other.evaluate(visit)
    assert mine["visitor"] != theirs["visitor"]
    send = "body => fetch('/page/answer', {method: 'POST', body: JSON.stringify(body)}).then(a => a.status)"
    assert other.evaluate(send, {"decision_id": mine["offer"]["decision_id"], "opened": True}) == 404
    assert one.evaluate(visit)["past"] == []
    assert one.evaluate(send, {"decision_id": mine["offer"]["decision_id"], "opened": True}) == 200


def test_another_site_cannot_answer_for_a_visitor(front):
    with front.client() as client:
        offer = client.post("/page/visit", json={}).json()["offer"]
        body = {"decision_id": offer["decision_id"], "opened": True}
        assert client.post("/page/answer", json=body, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.post("/page/answer", json=body, headers={"sec-fetch-site": "same-origin"}).status_code == 200
