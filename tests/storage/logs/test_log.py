"""Opening a log: what a folder contains, and a clear message for every inconsistent folder."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcb.errors import InputError
from lcb.storage.logs.log import open_log

EVENTS = {"user": [7, 3, 3, 7], "order": [0, 1, 0, 1], "item": [1, 1, 2, 3], "rating": [5, 4, 2, 1]}
ITEMS = {"item": [1, 2, 3], "categories": [[0, 1], [1], []], "title": ["One", "Two", "Three"]}
CATEGORIES = ["sport", "arts"]


def folder(path, events=EVENTS, items=ITEMS, categories=CATEGORIES):
    path.mkdir(exist_ok=True)
    pq.write_table(events if isinstance(events, pa.Table) else pa.table(events), path / "events.parquet")
    if items is not None:
        pq.write_table(items if isinstance(items, pa.Table) else pa.table(items), path / "items.parquet")
    if categories is not None:
        (path / "categories.json").write_text(json.dumps(categories))
    return path


def test_events_come_by_user_and_order(tmp_path):
    log = open_log(folder(tmp_path / "log"))
    assert log.users.to_pylist() == [3, 7]
    assert log.user.tolist() == [0, 0, 1, 1]
    assert log.item.tolist() == [1, 0, 0, 2]
    assert log.order.tolist() == [0, 1, 0, 1]
    assert log.rating.tolist() == [2.0, 4.0, 5.0, 1.0]
    assert log.titles.to_pylist() == ["One", "Two", "Three"]
    assert log.item_categories.toarray().tolist() == [[True, True], [False, True], [False, False]]
    assert (log.n_users, log.n_items, log.n_events) == (2, 3, 4)
    assert log.start.tolist() == [0, 2, 4]
    assert log.notes == ("1 item without a category, with 1 of 4 events",)


def test_arrays_are_small(tmp_path):
    log = open_log(folder(tmp_path / "log", EVENTS | {"propensity": [0.5] * 4, "reward": [1, 0, 1, 0]}))
    assert {log.user.dtype, log.item.dtype} == {np.dtype(np.int32)}
    assert {log.rating.dtype, log.reward.dtype, log.propensity.dtype} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint16(),
        pa.int32(),
        pa.int64(),
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_ids_may_be_of_any_width(tmp_path, kind):
    def cast(values):
        array = pa.array(values)
        if pa.types.is_dictionary(kind):
            return array.cast(pa.string()).dictionary_encode()
        return array.cast(kind)

    events = EVENTS | {"user": cast(EVENTS["user"]), "item": cast(EVENTS["item"])}
    log = open_log(folder(tmp_path / "log", events, ITEMS | {"item": cast(ITEMS["item"])}))
    assert [str(user) for user in log.users.to_pylist()] == ["3", "7"]
    assert log.item.tolist() == [1, 0, 0, 2]


def test_events_alone_are_a_log(tmp_path):
    log = open_log(folder(tmp_path / "log", {"user": ["b", "a", "b"], "item": ["y", "x", "x"]}, None, None))
    assert log.users.to_pylist() == ["a", "b"]
    assert log.items.to_pylist() == ["x", "y"]
    assert log.item.tolist() == [0, 1, 0]
    assert log.order.tolist() == [1, 0, 2]
    assert (log.categories, log.item_categories.shape, log.notes) == ((), (2, 0), ())
    assert log.rating is log.reward is log.propensity is log.x is log.titles is None


@pytest.mark.parametrize(
    "cells", [["sport", "arts", None], [["sport"], ["arts"], []], [0, 1, None], [[0], [1], []]], ids=str
)
def test_categories_are_names_or_indices_alone_or_in_lists(tmp_path, cells):
    name = "category" if not isinstance(cells[0], list) else "categories"
    log = open_log(folder(tmp_path / "log", items={"item": [1, 2, 3], name: cells}))
    assert log.item_categories.toarray().tolist() == [[True, False], [False, True], [False, False]]


def test_categories_without_their_file_are_those_that_items_have(tmp_path):
    log = open_log(
        folder(tmp_path / "log", items={"item": [1, 2, 3], "categories": [["b"], ["a"], []]}, categories=None)
    )
    assert log.categories == ("a", "b")
    assert log.item_categories.toarray().tolist() == [[False, True], [True, False], [False, False]]
    log = open_log(
        folder(tmp_path / "numbers", items={"item": [1, 2, 3], "categories": [[40], [7], []]}, categories=None)
    )
    assert log.categories == ("7", "40")


def test_categories_that_no_event_has_and_repeated_events_are_noted(tmp_path):
    events = {"user": [1, 1, 1, 2], "order": [0, 0, 0, 0], "item": [1, 2, 1, 1]}
    log = open_log(folder(tmp_path / "log", events, categories=["sport", "arts", "war", "weather"]))
    assert log.notes == (
        "1 of 4 events repeat another of the same user, item and order",
        "2 of 4 categories have no event: war, weather",
    )


def test_a_column_without_any_value_is_as_good_as_none(tmp_path):
    log = open_log(folder(tmp_path / "log", EVENTS | {"rating": pa.nulls(4, pa.int8()), "reward": pa.nulls(4)}))
    assert log.rating is log.reward is None


def test_labels_are_likes_or_rewards(tmp_path):
    log = open_log(folder(tmp_path / "log", EVENTS | {"reward": [1, 0, 1, 0]}))
    assert log.labels().tolist() == [1.0, 0.0, 1.0, 0.0]
    assert log.labels(like=4).tolist() == [0.0, 1.0, 1.0, 0.0]
    with pytest.raises(InputError, match=r"no rewards; say from which rating on an item is liked"):
        open_log(folder(tmp_path / "ratings")).labels()
    with pytest.raises(InputError, match=r"like 4 is a rating, and the log has none"):
        open_log(folder(tmp_path / "choices", {"user": [1], "item": [1]})).labels(like=4)


def test_arms_are_categories_or_else_the_most_frequent_items(tmp_path):
    log = open_log(folder(tmp_path / "log"))
    names, matrix = log.arms()
    assert (names, matrix is log.item_categories) == (("sport", "arts"), True)
    log = open_log(folder(tmp_path / "bare", {"user": [1] * 5, "item": [4, 2, 9, 9, 4]}, None, None))
    assert log.arms()[0] == ("2", "4", "9")
    names, matrix = log.arms(limit=2)
    assert names == ("4", "9")
    assert matrix.toarray().tolist() == [[False, False], [True, False], [False, True]]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_some_users_have_the_events_they_had(tmp_path_factory, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n = data.draw(st.integers(1, 60))
    events = {"user": rng.integers(0, 9, n), "item": rng.integers(0, 5, n), "reward": rng.random(n)}
    log = open_log(folder(tmp_path_factory.mktemp("log"), events, None, None))
    chosen = data.draw(st.lists(st.integers(0, log.n_users - 1), unique=True))
    part = log.of_users(chosen)
    assert part.users.to_pylist() == [log.users[u].as_py() for u in chosen]
    assert part.counts.tolist() == [int(log.counts[u]) for u in chosen]
    for new, old in enumerate(chosen):
        for name in ("item", "order", "reward"):
            np.testing.assert_array_equal(getattr(part, name)[part.user == new], getattr(log, name)[log.user == old])


BAD_EVENTS = {
    "no user column": (
        {"who": [1], "item": [1]},
        "events.parquet has no column user; it has who, item: name yours with: lcb import",
    ),
    "no item column": ({"user": [1], "what": [1]}, "events.parquet has no column item"),
    "no rows": ({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}, "events.parquet has no rows"),
    "unknown items": (
        {"user": [1, 1, 2], "item": [1, 8, 9]},
        "2 of 3 events in .* are of 2 items missing in .*items.parquet, such as 8, 9",
    ),
    "items of another type": (
        {"user": [1], "item": ["1"]},
        "column item holds string, .*items.parquet column item holds int64",
    ),
    "missing user": ({"user": [1, None, None], "item": [1, 1, 1]}, "column user has 2 missing of 3 values"),
    "float user": ({"user": [1.5], "item": [1]}, "column user holds double; integers or strings are wanted"),
    "missing rating": (
        {"user": [1, 1], "item": [1, 1], "rating": [1, None]},
        "column rating has 1 missing of 2 values",
    ),
    "ratings as text": (
        {"user": [1], "item": [1], "rating": ["five"]},
        "column rating holds string; numbers are wanted",
    ),
    "infinite reward": (
        {"user": [1], "item": [1], "reward": [np.inf]},
        "column reward has 1 values that are not finite numbers",
    ),
    "missing order": ({"user": [1], "item": [1], "order": pa.array([None], pa.int64())}, "column order has 1 missing"),
    "order as text": (
        {"user": [1], "item": [1], "order": ["x"]},
        "column order holds string; numbers or times are wanted",
    ),
    "order not a number": (
        {"user": [1], "item": [1], "order": [np.nan]},
        "column order has 1 values that are not finite numbers",
    ),
    "zero propensities": (
        {"user": [1] * 4, "item": [1] * 4, "propensity": [0.0, 0.0, 0.5, 1.5]},
        "column propensity has 2 zeros and 1 values outside 0 to 1 in 4 events",
    ),
}


@pytest.mark.parametrize("what", BAD_EVENTS)
def test_events_that_do_not_fit_are_refused_with_counts(tmp_path, what):
    events, said = BAD_EVENTS[what]
    with pytest.raises(InputError, match=said):
        open_log(folder(tmp_path / "log", events))


BAD_ITEMS = {
    "no item column": ({"id": [1]}, CATEGORIES, "items.parquet has no column item; it has id"),
    "an item twice": ({"item": [1, 1, 2, 3]}, CATEGORIES, "items.parquet has 1 item more than once"),
    "an index too high": (
        {"item": [1, 2, 3], "categories": [[0], [2], [5]]},
        CATEGORIES,
        "has 2 indices outside 0 to 1, such as 2",
    ),
    "an unknown name": (
        {"item": [1, 2, 3], "categories": [["sport"], ["war"], []]},
        CATEGORIES,
        "has 1 names that are not in .*, such as 'war'",
    ),
    "a missing category": ({"item": [1, 2, 3], "categories": [[0, None], [1], []]}, CATEGORIES, "has 1 missing values"),
    "categories of another type": (
        {"item": [1, 2, 3], "categories": [[0.5], [1.0], []]},
        CATEGORIES,
        "holds double; indices or names",
    ),
    "names in an object": (ITEMS, {"0": "sport"}, "categories.json is not a list of names"),
    "a name twice": (ITEMS, ["sport", "sport"], "categories.json repeats 1 names"),
}


@pytest.mark.parametrize("what", BAD_ITEMS)
def test_items_that_do_not_fit_are_refused_with_counts(tmp_path, what):
    items, categories, said = BAD_ITEMS[what]
    with pytest.raises(InputError, match=said):
        open_log(folder(tmp_path / "log", items=items, categories=categories))


@pytest.mark.parametrize("name", ["events.parquet", "items.parquet"])
def test_a_truncated_file_is_named(tmp_path, name):
    path = folder(tmp_path / "log") / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=f"{name} could not be read"):
        open_log(tmp_path / "log")


def test_categories_that_are_no_json_are_named(tmp_path):
    (folder(tmp_path / "log") / "categories.json").write_text("[sport")
    with pytest.raises(InputError, match=r"categories.json is not JSON"):
        open_log(tmp_path / "log")


def test_a_path_that_is_no_log_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"does not exist; give an imported log or a folder"):
        open_log(tmp_path / "none")
    with pytest.raises(
        InputError, match=r"is an empty folder; give an imported log, or a table or a folder of its parts"
    ):
        open_log(tmp_path)
    (tmp_path / "u.data").write_text("1 2 3")
    with pytest.raises(InputError, match=r"has no events.parquet; import it first: lcb import"):
        open_log(tmp_path)
    (tmp_path / "log.csv").write_text("user,item\n1,2\n")
    with pytest.raises(InputError, match=r"log.csv is not a log; import it first: lcb import"):
        open_log(tmp_path / "log.csv")


def test_the_hour_of_events_in_nanoseconds_does_not_blur(tmp_path):
    order = [1_600_000_000_000_000_001, 1_600_000_000_000_000_002]
    log = open_log(folder(tmp_path / "log", {"user": [1, 1], "item": [1, 1], "order": order}))
    assert log.order.tolist() == order
    assert not any("repeat" in note for note in log.notes)


def test_progress_is_told_column_by_column(tmp_path):
    seen = []
    open_log(folder(tmp_path / "log"), progress=lambda *words: seen.append(words))
    assert seen == [("opening events.parquet", i, 4) for i in range(4)]
