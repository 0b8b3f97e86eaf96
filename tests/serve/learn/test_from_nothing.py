"""A service that starts from nothing and learns from its own decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import CHOSEN
from support.from_nothing import draw_rates, serve


def test_a_service_from_nothing_finds_three_kinds_of_people_from_what_it_chose_itself(tmp_path: Path) -> None:
    """The true classes reach three quarters of the best.  Classes that take their weights for certain stay at two
    thirds: they find two kinds, and show nothing by which the third could be found."""
    rates = draw_rates("kinds", 300, np.random.default_rng(4))
    folders = [tmp_path / "classes", tmp_path / "one-for-all"]
    for folder in folders:
        folder.mkdir()
    by_classes, _ = serve(CHOSEN, rates, 4, folders[0])
    by_one, _ = serve(RecommenderSpec("lcb", "linucb", "everyone"), rates, 4, folders[1])
    late = slice(100, None)
    assert by_classes[late].mean() > 0.69 * rates[late].max(axis=1).mean()
    assert by_classes[late].mean() > 1.2 * by_one[late].mean()
