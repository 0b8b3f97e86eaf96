from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from lcb.errors import InputError
from lcb.learners.spectral import moments as module
from lcb.learners.spectral._lifted import lifted_map, monomials, pack, position, unpack, weights
from lcb.learners.spectral.moments import Moments

PARTS = ("second", "third")


def rows(seed, counts=(5, 4, 2, 1), d=3):
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(len(counts)), counts)
    return user, rng.standard_normal((len(user), d)), rng.standard_normal(len(user))


def outer(vectors):
    tensor = vectors[0]
    for vector in vectors[1:]:
        tensor = np.multiply.outer(tensor, vector)
    return tensor


def enumerated(user, x, reward, degree):
    """Gram and moment over all ordered tuples of different rows of each user, one by one."""
    gram, moment = 0.0, 0.0
    for u in np.unique(user):
        mine = np.flatnonzero(user == u)
        weight = 1 / np.prod(len(mine) - np.arange(1, degree)) if len(mine) >= degree else 0
        for tuple_ in permutations(mine, degree):
            lifted = pack(outer([x[t] for t in tuple_]))
            gram = gram + weight * np.outer(lifted, lifted)
            moment = moment + weight * np.prod(reward[list(tuple_)]) * lifted
    return gram, moment


def assert_normal_equations(moments, degree, gram, moment, atol):
    sums = getattr(moments, PARTS[degree - 2])
    np.testing.assert_allclose(sums[:, module.features_only(moments.n_features, degree)], gram, atol=atol)
    np.testing.assert_allclose(sums[:, -1], moment, atol=atol)


@settings(max_examples=15, deadline=None)
@given(seed=integers(0, 2**32 - 1), d=integers(1, 4))
def test_grouped_moments_are_those_of_all_pairs_and_triples(seed, d):
    user, x, reward = rows(seed, d=d)
    moments = Moments.from_rows(user, x, reward)
    for degree in (2, 3):
        gram, moment = enumerated(user, x, reward, degree)
        assert_normal_equations(moments, degree, gram, moment, atol=1e-9)


def test_a_reward_less_a_regression_is_a_change_of_coordinates():
    user, x, reward = rows(4)
    b = np.array([0.3, -1.0, 2.0])
    change = np.eye(4)
    change[:3, 3] = -b
    for form in ("pooled", "grouped"):
        raw, less = Moments.from_rows(user, x, reward, form=form), Moments.from_rows(user, x, reward - x @ b, form=form)
        np.testing.assert_allclose(raw.second @ lifted_map(change, 2), less.second, atol=1e-10)
        np.testing.assert_allclose(raw.third @ lifted_map(change, 3), less.third, atol=1e-10)


def test_pooled_moments_are_those_of_the_powers_of_each_row():
    user, x, reward = rows(0)
    moments = Moments.from_rows(user, x, reward, form="pooled")
    for degree in (2, 3):
        lifted = np.array([pack(outer([row] * degree)) for row in x])
        assert_normal_equations(moments, degree, lifted.T @ lifted, lifted.T @ reward**degree, atol=1e-12)


@pytest.mark.parametrize("form", ["pooled", "grouped"])
def test_blocks_change_nothing(form, monkeypatch):
    user, x, reward = rows(1, counts=(30, 3, 200, 1, 60))
    whole = Moments.from_rows(user, x, reward, form=form)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)  # 64 rows
    for name in PARTS:
        blocked = getattr(Moments.from_rows(user, x, reward, form=form), name)
        np.testing.assert_allclose(blocked, getattr(whole, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", ["pooled", "grouped"])
def test_the_order_of_rows_and_the_names_of_users_change_nothing(form):
    user, x, reward = rows(2)
    order = np.random.default_rng(0).permutation(len(user))
    names = np.array(["dora", "ann", "carl", "bob"], dtype=object)
    one = Moments.from_rows(user, x, reward, form=form)
    other = Moments.from_rows(names[user[order]], x[order], reward[order], form=form)
    for name in PARTS:
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-11)


@pytest.mark.parametrize("form", ["pooled", "grouped"])
def test_moments_of_different_users_add_up(form):
    user, x, reward = rows(3)
    first = user < 2
    parts = [Moments.from_rows(user[mine], x[mine], reward[mine], form=form) for mine in (first, ~first)]
    whole, joined = Moments.from_rows(user, x, reward, form=form), parts[0] + parts[1]
    for name in PARTS:
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), atol=1e-12)
    np.testing.assert_allclose(joined.stats.packed, whole.stats.packed)
    assert joined.values[0] == reward.min()
    assert joined.values[-1] == reward.max()


def test_grouped_moments_that_share_a_user_cannot_be_added():
    moments = Moments.from_rows(*rows(0))
    with pytest.raises(InputError, match="all rows of a user together"):
        moments + moments
    pooled = Moments.from_rows(*rows(0), form="pooled")
    np.testing.assert_allclose((pooled + pooled).third, 2 * pooled.third)
    with pytest.raises(InputError, match="cannot be added"):
        moments + pooled


def test_two_values_are_seen_across_a_sum():
    clicks = [Moments.from_rows([u] * 3, np.eye(3), [0, u, u]) for u in (0, 1)]
    assert clicks[0].values == (0,)
    assert (clicks[0] + clicks[1]).values == (0, 1)
    assert (clicks[0] + clicks[1]).two_valued
    assert not (clicks[1] + Moments.from_rows([2] * 3, np.eye(3), [0, 1, 2])).two_valued


def test_too_many_features_are_refused_with_the_memory_they_need():
    with pytest.raises(InputError, match=r"40 features need [\d.]+ GiB .* at most \d+ "):
        Moments.from_rows([0], np.ones((1, 40)), [1.0])


@pytest.mark.parametrize("x, r", [(1e60, 1.0), (1e55, 1e90), (1e-60, 1.0), (1.0, 1e-120)])
def test_sizes_beyond_the_range_of_numbers_are_refused(x, r):
    user, rows_, reward = rows(0)
    with pytest.raises(InputError, match="overflow or underflow"):
        Moments.from_rows(user, rows_ * x, reward * r)


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match=r"'pooled' .* or 'grouped'"):
        Moments.from_rows(*rows(0), form="mixed")


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_packing_keeps_norms_and_comes_back(degree):
    rng = np.random.default_rng(degree)
    x, y = rng.standard_normal((2, 4))
    tensor = outer([x] * degree) + outer([y] * degree)
    packed = pack(tensor)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(tensor))
    np.testing.assert_allclose(unpack(packed, 4, degree), tensor, atol=1e-14)
    lifted = weights(4, degree) * monomials(x[:, None], degree)[:, 0]
    np.testing.assert_allclose(lifted, pack(outer([x] * degree)), atol=1e-14)
    assert position(4, degree).max() == len(packed) - 1


@pytest.mark.parametrize("degree", [2, 3])
def test_turned_features_have_turned_lifted_features(degree):
    rng = np.random.default_rng(0)
    x, turn = rng.standard_normal(4), rng.standard_normal((4, 3))
    turned = pack(outer([turn.T @ x] * degree))
    np.testing.assert_allclose(lifted_map(turn, degree).T @ pack(outer([x] * degree)), turned, atol=1e-12)
