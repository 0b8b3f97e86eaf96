"""Weights of given classes in a CSV: one row per class, one number per feature, no header.

A byte order mark and blank lines, which spreadsheets write, are ignored.
"""

from __future__ import annotations

import csv
import os

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError

_LARGEST = 1e6  # with larger weights the noise is lost in rounding


def read_weights(path: str | os.PathLike[str]) -> Floats:
    """Return the weights, (N, d)."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if len(row) > 1 or "".join(row).strip()]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} could not be read ({error}); give a CSV with one row of weights per class") from None
    if not rows:
        raise InputError(f"{path} is empty; give one row of weights per class")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            words = f"{path} row {number} has {len(row)} weights, row 1 has {len(rows[0])}"
            raise InputError(f"{words}; give every class all features")
        for column, cell in enumerate(row, start=1):
            words = f"{path} row {number} column {column} is {cell!r}"
            if not _is_finite(cell):
                raise InputError(f"{words}; every weight must be a finite number (no header)")
            if abs(float(cell)) > _LARGEST:
                raise InputError(f"{words}, above {_LARGEST:g}; scale features and rewards so that weights are smaller")
    return np.array([[float(cell) for cell in row] for row in rows])


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False
