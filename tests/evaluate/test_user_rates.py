from __future__ import annotations

import numpy as np
import pytest

from lcb.evaluate.user_rates import draw_rates

N_USERS, N_ARMS = 500, 8


def true_rates(kind, rng):
    classes = rng.beta(0.6, 1.2, (4, N_ARMS))
    if kind == "classes":
        return classes[rng.integers(0, 4, N_USERS)]
    mean = classes.mean(axis=0)
    return np.tile(mean, (N_USERS, 1)) if kind == "alike" else rng.beta(6 * mean, 6 * (1 - mean), (N_USERS, N_ARMS))


def draw_labels(rate, n_labels, rng):
    shown = rng.multinomial(n_labels, np.full(N_ARMS, 1 / N_ARMS), N_USERS)
    clicked = rng.binomial(shown, rate)
    return clicked, shown - clicked


@pytest.mark.parametrize(("kind", "n_classes"), [("classes", 4), ("alike", 1), ("unique", 1)])
def test_drawn_rates_are_spread_as_the_true_ones_however_few_the_labels(kind, n_classes):
    """Two labels of an arm: the user's own shares of clicks are spread by 0.35 and more, whatever the truth."""
    rng = np.random.default_rng(3)
    rate = true_rates(kind, rng)
    clicked, passed = draw_labels(rate, 16, rng)
    drawn = draw_rates(clicked, passed, rng)
    assert drawn.n_classes == n_classes
    assert drawn.rate.std(axis=0).mean() == pytest.approx(rate.std(axis=0).mean(), abs=0.04)
    assert drawn.rate.max(axis=1).mean() == pytest.approx(rate.max(axis=1).mean(), abs=0.04)


def test_with_many_labels_the_rates_are_the_users_own():
    rng = np.random.default_rng(4)
    rate = true_rates("unique", rng)
    drawn = draw_rates(*draw_labels(rate, 4000, rng), rng)
    assert np.abs(drawn.rate - rate).mean() < 0.03


def test_a_user_has_no_part_in_the_model_of_their_own_rates():
    """One user likes what nobody likes; without labels for that arm, nobody else's rate of it is drawn higher."""
    rng = np.random.default_rng(5)
    clicked, passed = np.zeros((40, 2)), np.full((40, 2), 30.0)
    clicked[0] = [500.0, 500.0]
    drawn = draw_rates(clicked, passed, rng)
    assert drawn.rate[0].min() > 0.85
    assert np.median(drawn.rate[1:]) < 0.1


def test_few_users_and_arms_without_labels_are_no_obstacle():
    drawn = draw_rates(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), np.random.default_rng(0))
    assert drawn.rate.shape == (1, 2)
    assert ((drawn.rate > 0) & (drawn.rate < 1)).all()
