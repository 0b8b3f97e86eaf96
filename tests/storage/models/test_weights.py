"""A CSV of weights, as spreadsheets write it."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.storage.models.weights import read_weights


@pytest.mark.parametrize("text", ["\ufeff1,2\n3,4\n", "1,2\n   \n3,4\n\t\n\n", "1,2\r\n \r\n3,4", " 1, 2\n3 ,4\n"])
def test_a_byte_order_mark_and_blank_lines_are_no_weights(tmp_path, text):
    path = tmp_path / "classes.csv"
    path.write_text(text, encoding="utf-8", newline="")
    np.testing.assert_array_equal(read_weights(path), [[1, 2], [3, 4]])


@pytest.mark.parametrize("cell", ["1000001", "-2e6", "1e300"])
def test_weights_too_large_to_compute_with_are_refused_with_the_remedy(tmp_path, cell):
    path = tmp_path / "classes.csv"
    path.write_text(f"1,2\n3,{cell}\n")
    with pytest.raises(InputError, match=r"classes.csv row 2 column 2 is .*; scale features and rewards"):
        read_weights(path)


def test_a_weight_of_a_million_is_accepted(tmp_path):
    path = tmp_path / "classes.csv"
    path.write_text("1e6,-1e6\n")
    np.testing.assert_array_equal(read_weights(path), [[1e6, -1e6]])


@pytest.mark.parametrize("text", [" \n\t\n", "1,,2\n", "1,2\n3\n", '"' + "1" * 200_000])
def test_what_is_no_table_of_weights_is_refused(tmp_path, text):
    path = tmp_path / "classes.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"classes\.csv"):
        read_weights(path)
