"""The browser that page tests are given."""

from __future__ import annotations

from support.page_readers import find_violations


def test_it_runs_scripts_and_renders_text(page):
    page.set_content("<p id=p></p><script>p.textContent = 1 + 1</script>")
    assert page.inner_text("p") == "2"
    assert page.locator("p").bounding_box()["height"] > 0


def test_pages_share_nothing(new_page):
    one, other = new_page(), new_page()
    one.context.add_cookies([{"name": "seen", "value": "1", "url": "http://127.0.0.1/"}])
    assert len(one.context.cookies()) == 1
    assert other.context.cookies() == []


def test_a_page_takes_the_settings_of_its_context(new_page):
    page = new_page(viewport={"width": 320, "height": 640}, color_scheme="dark")
    assert page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]") == [320, True]


def test_the_accessibility_audit_finds_a_fault_and_passes_a_sound_page(page):
    page.set_content("<html lang=en><title>t</title><main><h1>t</h1><img src='data:,'></main>")
    assert [violation["id"] for violation in find_violations(page)] == ["image-alt"]
    page.set_content("<html lang=en><title>t</title><main><h1>t</h1></main>")
    assert find_violations(page) == []
