"""Columns that are encoded by a dictionary: values that no row has are nobody, as in a filtered pandas Categorical."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lcb
from lcb.errors import InputError
from lcb.event_log import EventLog
from lcb.stats import UserStats
from lcb.storage.importing.import_log import import_log
from lcb.storage.importing.open_any import open_any
from lcb.storage.importing.table_source import table_source
from lcb.storage.logs.log import open_log
from lcb.storage.tables.codes import StringCodes, hash_ids
from lcb.storage.tables.sample import draw_users
from lcb.storage.tables.statistics import read_log, read_stats
from lcb.storage.tables.user_statistics import read_user_statistics

NAMES = [f"u{k}" for k in range(40)]
USER = ["u30", "u7", "u30", "u12", "u7"]  # of 40 in the dictionary, not in its order
REWARD = [0.5, 1.0, 0.0, 2.0, 0.25]
X = [1.0, 2.0, 3.0, 4.0, 5.0]


def encode(values, among, kind=None):
    """Encode values by a dictionary that has others too."""
    indices = pa.array([None if value is None else among.index(value) for value in values], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(among, kind))


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def events(tmp_path):
    return write(tmp_path / "events.parquet", user=encode(USER, NAMES), reward=REWARD, a=X)


@pytest.fixture
def truth():
    return UserStats.from_rows(USER, [[x] for x in X], REWARD, features=("a",))


def assert_same(stats, truth):
    assert stats.users == truth.users
    np.testing.assert_array_equal(stats.packed, truth.packed)


def test_users_of_a_table_are_those_of_its_rows_in_their_order(events, truth):
    assert_same(read_stats(events, columns=["a"]), truth)
    log = read_log(events, columns=["a"], keep_rows=True)
    assert_same(log.stats, truth)
    assert len(log.hashes) == 3


def test_a_sample_and_users_on_disk_are_those_of_the_rows(events, truth, tmp_path):
    sample = draw_users(events, 2)
    kept = read_log(events, columns=["a"], sample=sample).stats
    assert sample.n_users == kept.n_users == 2
    assert_same(kept, truth.take([truth.users.index(name) for name in kept.users]))
    on_disk = read_log(events, columns=["a"], folder=tmp_path)
    np.testing.assert_array_equal(on_disk.stats.packed, truth.packed)
    np.testing.assert_array_equal(on_disk.hashes, hash_ids(pa.array(truth.users)))


def test_parts_with_other_dictionaries_give_the_users_of_their_rows(tmp_path, truth):
    write(tmp_path / "a.parquet", user=encode(USER[:2], NAMES), reward=REWARD[:2], a=X[:2])
    write(tmp_path / "b.parquet", user=encode(USER[2:], NAMES[::-1]), reward=REWARD[2:], a=X[2:])
    assert_same(read_stats(tmp_path, columns=["a"]), truth)


def test_codes_are_of_the_rows_whatever_the_dictionary():
    codes = StringCodes()
    assert codes.codes(encode(USER, NAMES)).tolist() == [0, 1, 0, 2, 1]
    assert codes.names().to_pylist() == ["u30", "u7", "u12"]


def test_a_table_of_statistics_has_the_users_of_its_rows(tmp_path):
    rows = {"count": [1, 1], "square_sum": [1.0, 1.0], "moment": [[1.0], [1.0]], "gram": [[1.0], [1.0]]}
    path = write(tmp_path / "s.parquet", user=encode(["u9", "u3"], NAMES), **rows)
    assert read_user_statistics(path).users == ("u9", "u3")


def frames():
    columns = {"user": USER, "item": ["b", "a", "b", "b", "a"], "reward": REWARD, "category": ["y", "x", "y", "y", "x"]}
    arrow = pa.table(
        {
            "user": encode(USER, NAMES),
            "item": encode(columns["item"], ["a", "b", "c"]),
            "reward": encode(REWARD, [9.0, *sorted(REWARD)]),
            "category": encode(columns["category"], ["x", "y", "z"]),
        }
    )
    pandas = pd.DataFrame(columns).assign(
        user=pd.Categorical(USER, NAMES),
        item=pd.Categorical(columns["item"], ["a", "b", "c"]),
        reward=pd.Categorical(REWARD, [9.0, *sorted(REWARD)]),
        category=pd.Categorical(columns["category"], ["x", "y", "z"]),
    )
    polars = pl.DataFrame(columns).with_columns(
        pl.col("user").cast(pl.Enum(NAMES)),
        pl.col("item").cast(pl.Enum(["a", "b", "c"])),
        pl.col("category").cast(pl.Categorical),
    )
    return {"arrow": arrow, "pandas": pandas, "polars": polars}


@pytest.mark.parametrize("name", ["arrow", "pandas", "polars"])
def test_frames_have_the_users_items_and_rewards_of_their_rows(name):
    frame = frames()[name]
    log = EventLog.from_table(frame, item="item")
    assert log.stats.users == ("u30", "u7", "u12")
    assert log.stats.features == ("b", "a")
    assert log.stats.square_sum.tolist() == [0.25, 1.0625, 4.0]
    opened = open_any(frame)
    assert opened.users.to_pylist() == ["u12", "u30", "u7"]
    assert opened.items.to_pylist() == ["a", "b"]


def test_an_import_has_the_users_items_and_categories_of_its_rows(tmp_path):
    table = frames()["arrow"].rename_columns(["user", "item", "reward", "categories"])
    pq.write_table(table, tmp_path / "visits.parquet")
    import_log(table_source(tmp_path / "visits.parquet"), tmp_path / "log")
    log = open_log(tmp_path / "log")
    assert log.users.to_pylist() == ["u12", "u30", "u7"]
    assert log.items.to_pylist() == ["a", "b"]
    assert log.categories == ("x", "y")
    assert log.reward.tolist() == [2.0, 0.5, 0.0, 1.0, 0.25]


# Other types of ids


def test_text_as_views_names_users_of_a_sample(tmp_path):
    path = write(tmp_path / "events.parquet", user=pa.array(USER).cast(pa.string_view()), reward=REWARD, a=X)
    sample = draw_users(path, 2)
    assert read_log(path, columns=["a"], sample=sample).n_users == 2
    assert lcb.read_log(path, columns=["a"], users=["u7"]).stats.count.tolist() == [2.0]


@pytest.mark.parametrize("user", [[1.0, 2.0], [b"a", b"b"], [True, False]], ids=["float", "binary", "bool"])
def test_users_that_are_neither_integers_nor_text_are_refused_by_name_of_the_column(tmp_path, user):
    rows = {"count": [1, 1], "square_sum": [1.0, 1.0], "moment": [[1.0], [1.0]], "gram": [[1.0], [1.0]]}
    path = write(tmp_path / "s.parquet", user=user, **rows)
    with pytest.raises(InputError, match=r"s\.parquet column user holds .*; integers or strings are wanted"):
        read_user_statistics(path)
    events = write(tmp_path / "e.parquet", user=user, reward=[1.0, 0.0], a=[1.0, 2.0])
    with pytest.raises(InputError, match=r"e\.parquet column user holds .*; integers or strings are wanted"):
        draw_users(events, 1)
