"""The generated readers, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.demo.readers import CATEGORIES, KINDS, NewsFront, click_probability, draw_articles
from lcb.errors import InputError


def test_a_visitor_clicks_as_often_as_a_drawn_reader_would():
    rng = np.random.default_rng(0)
    users = NewsFront(draw_articles(30, rng), n_arms=4).draw(20, 3, rng)
    for label, contexts, means in zip(users.label, users.contexts, users.means, strict=True):
        for x, mean in zip(contexts.reshape(-1, 21), means.ravel(), strict=True):
            names = [CATEGORIES[j] for j in np.flatnonzero(x)]
            assert click_probability(list(KINDS)[label], names) == pytest.approx(mean)


def test_unknown_words_are_refused():
    with pytest.raises(InputError, match="unknown category 'cars'; the categories are arts, books"):
        click_probability("sport", ["law", "cars"])
    with pytest.raises(InputError, match="unknown kind of reader 'motor'; the kinds are sport, culture"):
        click_probability("motor", ["law"])
    with pytest.raises(InputError, match="at least one"):
        click_probability("sport", [])
