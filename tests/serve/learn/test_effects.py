"""Item effects of a new version, and what they make of an item that comes after it."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.effects.rows import ItemRows
from lcb.models import LatentModels
from lcb.progress import silent
from lcb.serve.config.recommenders import ITEM_BONUS
from lcb.serve.learn.effects import fit_with_effects
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.items import ItemState

X = np.eye(2)[np.arange(13) % 2]
RATES = np.where(np.arange(13) % 2 == 0, 0.2, 0.35)  # by category; the items of a category are alike


def learn_one_class(log: EventLog, last: LatentModels | None) -> LatentModels:
    return fit(log, 1, rng=0, likelihood="gaussian").models


def count_offers(rate: float, seed: int) -> int:
    """How many of 150 newcomers, each with one decision, are offered item 12, which came after the version."""
    rng = np.random.default_rng(seed)
    user, item = np.repeat(np.arange(300), 12), np.tile(np.arange(12), 300)
    reward = (rng.random(3600) < RATES[item]).astype(float)
    rows = ItemRows(tuple(map(str, range(12))), X[:12], user, item, reward)
    models = fit_with_effects(rows, learn_one_class, None, keep_rows=False, progress=silent)
    assert models.item_effects is not None
    assert models.item_effects.prior_variance < 0.002  # items are alike so far
    bandit, items = LearnedClasses(models, item_bonus=ITEM_BONUS), ItemState(Catalogue())
    items.restore(items.sums, models.item_effects)
    ids, n_offers = [str(i) for i in range(13)], 0
    for _ in range(150):
        decision = bandit.choose(bandit.start(), X, rng, items.of_arms(ids))
        got = float(rng.random() < (rate if decision.arm == 12 else RATES[decision.arm]))
        assert decision.means is not None
        items.add(ids[decision.arm], (1, got - float(decision.means[decision.arm])))
        n_offers += decision.arm == 12
    return n_offers


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_newcomer_that_is_better_than_all_is_found_where_items_were_alike_so_far(seed: int) -> None:
    """Its category is the worse one; by the variance of the effects alone nobody is offered it."""
    assert count_offers(0.6, seed) > 75


@pytest.mark.parametrize("seed", [0, 1])
def test_a_newcomer_like_the_others_of_a_worse_category_is_soon_dropped(seed: int) -> None:
    assert 0 < count_offers(RATES[12], seed) < 50
