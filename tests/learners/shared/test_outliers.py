"""Users whose features would decide alone what everybody's classes are, and users who only seem so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from lcb.learners.shared.outliers import find_outliers
from lcb.stats import UserStats


def stats_of(extra: Sequence[tuple[int, list[float]]], scale: Sequence[float] = (1, 1, 1, 1)) -> UserStats:
    """200 users with 20 rewards of one-hot arms, in units of `scale`, and further users: (rewards, features)."""
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(200), 20), np.eye(4)[rng.integers(0, 4, 4000)] * scale
    for n, features in extra:
        user, x = np.append(user, np.full(n, user[-1] + 1)), np.append(x, np.tile(features, (n, 1)), axis=0)
    return UserStats.from_rows(user, x, np.zeros(len(user)))


@pytest.mark.parametrize(("n", "size"), [(1, 1e9), (1, 1e3), (20, 30.0), (1000, 10.0)])
def test_who_counts_for_more_than_all_others_by_large_features_is_an_outlier(n: int, size: float) -> None:
    assert np.flatnonzero(find_outliers(stats_of([(n, [size, 0, 0, 0])]))).tolist() == [200]


def test_outliers_are_found_in_a_feature_of_small_units_too() -> None:
    scale = (10_000.0, 1.0, 1.0, 0.01)
    strange = [(20, [0, 0, 0, 1.0]), (20, [0, 100.0, 0, 0])]
    assert np.flatnonzero(find_outliers(stats_of(strange, scale))).tolist() == [200, 201]


def test_many_who_agree_do_not_hide_each_other() -> None:
    strange = [(20, [1e6, 0.0, 0.0, 0.0])] * 60
    assert np.flatnonzero(find_outliers(stats_of(strange))).tolist() == list(range(200, 260))


@pytest.mark.parametrize(
    "extra",
    [
        [(20_000, [1, 0, 0, 0])],  # one who rewards a thousand times as often as others
        [(20, [4, 4, 4, 4])],  # features a little larger than usual
        [(1, [10, 0, 0, 0])],  # one large value among thousands of rewards
    ],
)
def test_who_is_only_busy_or_a_little_different_is_none(extra: list[tuple[int, list[float]]]) -> None:
    assert not find_outliers(stats_of(extra)).any()


def test_a_feature_that_few_have_is_measured_by_the_others() -> None:
    def with_rare(size: float) -> NDArray[np.bool_]:
        rng = np.random.default_rng(1)
        x = np.column_stack((np.eye(4)[rng.integers(0, 4, 4000)], np.zeros(4000)))
        x[:3, 4] = size
        return find_outliers(UserStats.from_rows(np.repeat(np.arange(200), 20), x, np.zeros(4000)))

    assert not with_rare(1.0).any()
    assert np.flatnonzero(with_rare(1e6)).tolist() == [0]


def test_real_valued_features_have_no_outliers_and_few_users_tell_nothing() -> None:
    rng = np.random.default_rng(2)
    shape = (4000, 5)
    for x in (rng.standard_normal(shape), np.exp(rng.standard_normal(shape)), rng.standard_t(3, shape)):
        assert not find_outliers(UserStats.from_rows(np.repeat(np.arange(200), 20), x, np.zeros(4000))).any()
    assert not find_outliers(UserStats.from_rows([0, 1, 2], [[1.0], [1.0], [1e9]], [0, 0, 0])).any()
