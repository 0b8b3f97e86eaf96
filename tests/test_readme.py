"""The console blocks of the README and of pages of docs are run, and print what they show (... stands for anything)."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.demo.readers import CATEGORIES, draw_articles, reader_classes
from support.console import ROOT, check_example, examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the log the README learns from."""
    place, rng = tmp_path_factory.mktemp("readme"), np.random.default_rng(0)
    lines = ["user,reward,sport,arts,science"]
    for u in range(60):
        liked = (0.9, 0.1, 0.3) if u % 2 else (0.1, 0.8, 0.4)
        for x in rng.random((20, 3)):
            lines.append(f"u{u},{x @ liked + 0.1 * rng.standard_normal():.4f}," + ",".join(f"{v:.4f}" for v in x))
    (place / "events.csv").write_text("\n".join(lines) + "\n")
    (place / "clicks.csv").write_text(news_log(rng))
    return place


def news_log(rng: np.random.Generator) -> str:
    """600 visitors of a news page, 60 articles each."""
    catalogue = draw_articles(120, rng)
    topics = ["|".join(CATEGORIES[c] for c in np.flatnonzero(row)) for row in catalogue]
    world = reader_classes()
    lines = ["visitor,article,clicked,at,topics"]
    for u, kind in enumerate(rng.choice(world.n_classes, 600, p=world.pi)):
        for t, a in enumerate(rng.integers(0, 120, 60)):
            clicked = int(rng.random() < catalogue[a] @ world.beta[kind])
            lines.append(f"v{u},a{a},{clicked},{t},{topics[a]}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("page", "n_commands"), [("README.md", 3), ("docs/evaluate.md", 2)])
def test_a_page_shows_what_its_commands_print(folder, page, n_commands):
    shown = examples(page)
    assert len(shown) == n_commands
    for command, expected in shown:
        check_example(command, expected, folder)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110
