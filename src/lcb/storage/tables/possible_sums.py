"""Refuses sums of users that no rows can have.

Let z be the features of a row and its reward, and S = [[gram, moment], [moment', square_sum]] the sum of z z' over
`count` rows.  Such rows exist if and only if S is positive semidefinite and its rank is at most `count`.  S is scaled
to a diagonal of 1 and compared with a room for rounding: sums differ by their order, and tables may be of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcb.arrays import LARGEST, Floats
from lcb.storage.tables._possible_sums_numba import find_suspects
from lcb.storage.tables.row_errors import Place

_ROUNDING = 1e-6  # of a sum, relative to the sums of squares beside it
_MOST_COUNT = 2.0**53  # whole numbers of a float are exact below it
_AT_ONCE = 1 << 22  # numbers


def check_sums(count: Floats, square_sum: Floats, moment: Floats, gram: Floats, place: Place) -> None:
    """Raise EventError for the first user whose sums (n,), (n,), (n, d), (n, d, d) are impossible."""
    d = moment.shape[1]
    step = max(1, _AT_ONCE // (d + 1) ** 2)
    for first in range(0, len(count), step):
        part = slice(first, first + step)
        here = Place(place.path, place.first_row + first)
        _check_alone(count[part], square_sum[part], moment[part], gram[part], here)
        _check_together(count[part], square_sum[part], moment[part], gram[part], here)


def _check_alone(count: Floats, square_sum: Floats, moment: Floats, gram: Floats, place: Place) -> None:
    """Refuse what one or two numbers show."""
    whole = (count >= 1) & (count < _MOST_COUNT) & (count == np.floor(count))
    _refuse(~whole, "count is no whole number above 0 and below 2^53; it is count(*)", place)
    flat = gram.reshape(len(gram), -1)
    for name, values in (("square_sum", square_sum), ("moment", moment), ("gram", flat)):
        wrong = ~(np.abs(values.reshape(len(values), -1)) <= LARGEST * LARGEST).all(axis=1)
        words = f"is not finite, or larger than {LARGEST * LARGEST:g}; leave out rows without a number"
        _refuse(wrong, f"{name} {words}", place)
    _refuse(square_sum < 0, "square_sum is below 0; it is sum(reward * reward)", place)
    _refuse((np.einsum("nii->ni", gram) < 0).any(axis=1), "the diagonal of gram is below 0; it is sum(x * x)", place)
    size = np.sqrt(np.einsum("nii->ni", gram))
    room = size[:, :, None] * size[:, None, :]
    uneven = (np.abs(gram - gram.transpose(0, 2, 1)) > _ROUNDING * room).any(axis=(1, 2))
    _refuse(uneven, "gram is not symmetric; give all sums of x[i] * x[j], row by row", place)
    large = (np.abs(gram) > (1 + _ROUNDING) * room).any(axis=(1, 2))
    _refuse(large, "gram has a sum of x[i] * x[j] that its diagonal does not allow; sum the same rows", place)
    large = (np.abs(moment) > (1 + _ROUNDING) * size * np.sqrt(square_sum)[:, None]).any(axis=1)
    _refuse(large, "moment is larger than gram and square_sum allow; sum the same rows, without nulls", place)


def _check_together(count: Floats, square_sum: Floats, moment: Floats, gram: Floats, place: Place) -> None:
    """Refuse what only all numbers of a user show."""
    scaled = _scale(square_sum, moment, gram)
    suspects = np.flatnonzero(find_suspects(scaled.copy(), count, _ROUNDING))
    d = moment.shape[1]
    room = (d + 1) * _ROUNDING
    for i in suspects.tolist():
        of_gram, of_all = np.linalg.eigvalsh(scaled[i, :d, :d]), np.linalg.eigvalsh(scaled[i])
        n_needed = int(np.sum(of_all > room))
        if of_gram[0] < -room:
            words = "gram is not positive semidefinite, as sums of x[i] * x[j] are; sum the same rows, as doubles"
        elif of_all[0] < -room:
            words = "square_sum is smaller than moment and gram allow: squared residuals would add up to less than 0"
            words += "; sum the same rows, as doubles"
        elif n_needed > count[i]:
            words = (
                f"count is {count[i]:.0f}, but the other sums are those of at least {n_needed} rows; sum the same rows"
            )
        else:
            continue
        raise place.error(i, words)


def _scale(square_sum: Floats, moment: Floats, gram: Floats) -> Floats:
    """Return S (n, d + 1, d + 1), scaled to a diagonal of 1; 0 where a feature or all rewards are 0."""
    n, d = moment.shape
    made = np.empty((n, d + 1, d + 1))
    made[:, :d, :d] = (gram + gram.transpose(0, 2, 1)) / 2
    made[:, :d, d] = made[:, d, :d] = moment
    made[:, d, d] = square_sum
    size = np.sqrt(np.einsum("nii->ni", made))
    size[size == 0] = 1.0
    made /= size[:, :, None]
    made /= size[:, None, :]
    return made


def _refuse(wrong: Any, words: str, place: Place) -> None:
    if wrong.any():
        raise place.error(int(np.argmax(wrong)), words)
