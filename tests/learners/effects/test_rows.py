from __future__ import annotations

import numpy as np

from lcb.event_log import EventLog
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import find_user_means
from lcb.models import LatentModels
from lcb.models.item_effects import ItemEffects


def some_rows(n_items=50, d=4):
    rng = np.random.default_rng(0)
    x, user = rng.normal(size=(n_items, d)), np.sort(rng.integers(0, 30, 400))
    return ItemRows(tuple(map(str, range(n_items))), x, user, rng.integers(0, n_items, 400), rng.normal(size=400))


def test_statistics_are_those_of_the_rows():
    rows = some_rows()
    expected = EventLog.from_rows(rows.user, rows.x[rows.item], rows.reward).stats.packed
    np.testing.assert_allclose(rows.history().stats.packed, expected, atol=1e-10)


def test_the_spread_of_a_row_is_that_of_its_users_weights():
    rows, rng = some_rows(), np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    models = LatentModels(
        np.ones(1), rng.normal(size=(1, 4)), np.ones(1), covariance=(root @ root.T)[None], personal=True
    )
    none = ItemEffects(rows.ids, np.zeros(50), np.zeros(50), np.zeros(50))
    fitted, spread = find_user_means(rows, models, none.effect, with_spread=True)
    for u in (0, 17):
        own = rows.x[rows.item[rows.user == u]]
        covariance = np.linalg.inv(np.linalg.inv(models.covariance[0]) + own.T @ own)
        mean = covariance @ (
            np.linalg.solve(models.covariance[0], models.beta[0]) + own.T @ rows.reward[rows.user == u]
        )
        np.testing.assert_allclose(fitted[rows.user == u], own @ mean)
        np.testing.assert_allclose(spread[rows.user == u], np.einsum("ni,ij,nj->n", own, covariance, own))
