"""The columns `offered` and `distribution` of a log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.errors import InputError
from lcb.storage.logs.log import open_log

EVENTS = {
    "user": ["b", "a", "a", "b"],
    "item": ["z", "x", "y", "y"],
    "reward": [1.0, 0.0, 1.0, 0.0],
    "propensity": [0.25, 0.5, 0.9, 0.5],
    "offered": [["z", "y"], None, ["y", "z"], None],
    "distribution": [[0.25, 0.75], [0.5, 0.25, 0.25], None, [0.5, 0.5]],
    "n_arms": [2, 3, 2, 2],
}


def write(folder, **changed):
    folder.mkdir()
    pq.write_table(pa.table({**EVENTS, **changed}), folder / "events.parquet")
    pq.write_table(pa.table({"item": ["x", "y", "z"]}), folder / "items.parquet")
    return folder


def tell(offers, names=("x", "y", "z")):
    found = [offers.of_event(e) for e in range(len(offers.size))]
    return [([names[i] for i in items], None if p is None else p.tolist()) for items, p in found]


def test_every_event_has_its_offer_after_sorting_and_selecting(tmp_path):
    log = open_log(write(tmp_path / "log"))
    first = [(["x", "y", "z"], [0.5, 0.25, 0.25]), (["y", "z"], None)]
    second = [(["z", "y"], [0.25, 0.75]), (["x", "y"], [0.5, 0.5])]
    assert tell(log.offers) == first + second
    assert tell(log.of_users([1]).offers) == second
    assert tell(log.offers.take(np.array([False, True, True, False]))) == [first[1], second[0]]
    assert open_log(tmp_path / "log", with_offers=False).offers is None


def test_without_both_columns_as_lists_there_are_no_offers(tmp_path):
    assert open_log(write(tmp_path / "log", offered=["yes"] * 4)).offers is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"distribution": [[0.25], None, None, None]}, "row 0: columns offered and distribution do not have one value"),
        ({"n_arms": [2, 3, 2, 9], "distribution": pa.nulls(4, pa.list_(pa.float64()))}, "row 3: columns offered"),
        (
            {"offered": [["z", "q"], None, ["y", "z"], None]},
            "names items that are not in the table of items, such as q",
        ),
        ({"item": ["x", "x", "y", "y"]}, "row 0: the item shown is not among the items on offer"),
        ({"propensity": [0.25, 0.5, 0.9, 0.4]}, "row 3: the item shown has probability 0.5 in column distribution"),
        ({"offered": [["z", "z"], None, ["y", "z"], None]}, "row 0: the item shown is more than once"),
    ],
)
def test_offers_that_contradict_the_events_are_refused(tmp_path, changed, words):
    with pytest.raises(InputError, match=words):
        open_log(write(tmp_path / "log", **changed))
