"""The classes of a mixture on the dashboard and on the page of a user's story, in a real browser."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.harness import serving
from support.mixture_service import BETA, IDLE, MixtureInside
from support.page_readers import check_accessible

INK = """() => {
    const canvas = document.querySelector('#chart-mixture canvas');
    if (!canvas) return 0;
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""
SPEC = {"name": "mix", "bandit": "mixture", "settings": {"n_samples": 2, "n_sweeps": 4}, "uniform": 0.05}


def write_log(folder: Path) -> tuple[int, int]:
    """Serve 24 users, the last twelve of other classes; return how many classes there are, and ever were."""
    with MixtureInside(folder) as inside:
        for i in range(24):
            inside.beta = BETA if i < 12 else -BETA
            inside.visit(i, 6)
            inside.leave_all()
            if i % 4 == 3:
                inside.refit()
        inside.stop()
        return len(inside.mixture.shares()), inside.mixture.n_classes_ever


def test_classes_are_born_grow_and_fade_on_the_dashboard_and_a_story_tells_of_them(tmp_path, look):
    with ThreadPoolExecutor(1) as thread:  # this one has the loop of the browser
        n_classes, n_ever = thread.submit(write_log, tmp_path).result()
    assert n_ever >= 4
    given = {"recommenders": [SPEC], "rewards": "last", "pages": True, "learning": {"idle": IDLE}}
    with serving(tmp_path, **given) as server:
        page = look(server, "/dashboard", viewport={"width": 1440, "height": 1500})
        page.wait_for_selector("#mixture:not([hidden])")
        note = page.inner_text("#mixture-note")
        assert "mixture of mix: 24 users have left" in note
        assert f"{n_classes} classes now, {n_ever} ever" in note
        page.wait_for_function(f"() => ({INK})() > 20")
        check_accessible(page)
        page.goto(f"{server.address}/users/u23")
        page.wait_for_selector("#chart-posterior canvas")
        facts = dict(zip(*(page.locator(f"#facts {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
        assert (facts["Decisions"], facts["Rewards"]) == ("6", "6")
        assert facts["Most probable class"].startswith("class ")
        check_accessible(page)
