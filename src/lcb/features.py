"""Features made of features.

The choice between arms depends on `beta . x` across arms, so features of the user alone, added beside the
arm's, shift every arm alike and never change the choice.  Crossed with the arm's they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lcb.events import Floats


def cross(x: Floats, user_x: Floats) -> Floats:
    """The arm's features, then each times each of the user's: (..., d) and (..., q) -> (..., d + d q).

    >>> cross(np.array([[1.0, 2.0]]), np.array([[10.0]]))
    array([[ 1.,  2., 10., 20.]])
    """
    products = (x[..., :, None] * user_x[..., None, :]).reshape(*x.shape[:-1], -1)
    return np.concatenate([x, products], axis=-1)


def cross_names(features: Sequence[str], user_features: Sequence[str]) -> tuple[str, ...]:
    """The names that go with `cross`.

    >>> cross_names(["sport", "arts"], ["age"])
    ('sport', 'arts', 'sport*age', 'arts*age')
    """
    return (*features, *(f"{name}*{user}" for name in features for user in user_features))
