"""Importing a log: the same events from every format, in memory and on disk, and a clear message for every bad row."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcb.errors import BadRows, InputError, OutputError
from lcb.storage.importing import sorting
from lcb.storage.importing.import_log import import_log
from lcb.storage.importing.table_source import Columns, table_source
from lcb.storage.logs.log import open_log
from lcb.storage.tables import codes
from lcb.storage.tables.formats import delimited, parquet

SUFFIXES = [".parquet", ".csv", ".csv.gz", ".tsv", ".jsonl", ".ndjson.gz"]


def write(path, rows):
    """Rows (dictionaries) in the format of the suffix."""
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if ".jsonl" in path.suffixes or ".ndjson" in path.suffixes:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        mark = "\t" if ".tsv" in path.suffixes else ","
        cells = [["" if row[name] is None else str(row[name]) for name in names] for row in rows]
        text = "\n".join(mark.join(line) for line in [names, *cells]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def text(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def events_of(log):
    """(user, order, item, rating, reward, propensity) of each event, by names."""
    parts = [
        values if values is not None else [None] * log.n_events for values in (log.rating, log.reward, log.propensity)
    ]
    users, items = log.users.to_pylist(), log.items.to_pylist()
    rows = zip(log.user.tolist(), log.order.tolist(), log.item.tolist(), *parts, strict=True)
    return [(users[u], t, items[i], *(None if v is None else float(v) for v in values)) for u, t, i, *values in rows]


def categories_of(log):
    names = np.array(log.categories, object)
    return {log.items[i].as_py(): set(names[row]) for i, row in enumerate(log.item_categories.toarray())}


def imported(source, out, **settings):
    """What was found, and the log; the file itself is sorted, and each user and item has one name."""
    found, log = import_log(source, out, **settings), open_log(out)
    table = pq.read_table(found.files.events)
    assert table["user"].to_pylist() == [log.users[u].as_py() for u in log.user.tolist()]
    assert table["order"].to_pylist() == log.order.tolist()
    assert table["item"].to_pylist() == [log.items[i].as_py() for i in log.item.tolist()]
    assert (found.n_events, found.n_users, found.n_items) == (log.n_events, log.n_users, log.n_items)
    assert found.events_per_user == {
        "median": np.median(log.counts),
        "most": log.counts.max(),
        "users_with_5": np.sum(log.counts >= 5),
        "users_with_20": np.sum(log.counts >= 20),
    }
    return found, log


def log_rows(n=200, n_users=9, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "user": f"u{rng.integers(n_users)}",
            "item": f"i{rng.integers(5)}",
            "time": int(rng.integers(20)),
            "rating": float(rng.integers(1, 6)),
            "propensity": 0.25,
        }
        for _ in range(n)
    ]


def expected_events(rows):
    """The import by the book: the last of equal rows stays, users by name, then time, then place in the file."""
    last = {(row["user"], row["item"], row["time"]): i for i, row in enumerate(rows)}
    kept = [
        (row["user"], row["time"], i) for i, row in enumerate(rows) if last[row["user"], row["item"], row["time"]] == i
    ]
    return [
        (user, time, rows[i]["item"], rows[i]["rating"], None, rows[i]["propensity"]) for user, time, i in sorted(kept)
    ]


# What comes out


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_log(tmp_path, suffix):
    rows = log_rows()
    path = write(tmp_path / f"log{suffix}", rows)
    found, log = imported(table_source(path), tmp_path / "out")
    assert events_of(log) == expected_events(rows)
    assert found.n_rows == 200
    assert found.n_events == len(expected_events(rows)) == 200 - found.n_duplicates
    assert found.columns == ("user", "order", "item", "rating", "propensity")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(n=st.integers(1, 120), n_users=st.integers(1, 30), seed=st.integers(0, 2**32 - 1), most=st.integers(1, 40))
def test_spilled_rows_give_what_a_plain_sort_gives(tmp_path_factory, n, n_users, seed, most):
    folder, rows = tmp_path_factory.mktemp("spill"), log_rows(n, n_users, seed)
    path = write(folder / "log.parquet", rows)
    _, log = imported(table_source(path), folder / "out", most_rows=most)
    assert events_of(log) == expected_events(rows)


def test_rows_are_spilled_in_several_batches_and_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "PARQUET_ROWS", 50)
    rows = log_rows(1000, 40)
    seen = []
    path = write(tmp_path / "log.parquet", rows)
    _, log = imported(table_source(path), tmp_path / "out", most_rows=100, progress=lambda *words: seen.append(words))
    assert events_of(log) == expected_events(rows)
    assert {what for what, _, _ in seen} == {"reading log.parquet", "dividing", "sorting"}
    assert [done for what, done, _ in seen if what == "reading log.parquet"] == list(range(50, 1001, 50))
    assert sum(what == "sorting" for what, _, _ in seen) > 5
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "categories.json",
        "events.parquet",
        "items.parquet",
    ]


@pytest.mark.parametrize("names", [[5, -3, 2**62, 0, 5], [f"{i}" for i in (5, -3, 2**62, 0, 5)]])
def test_ids_keep_their_type(tmp_path, names):
    rows = [{"user": u, "item": i, "time": t} for t, (u, i) in enumerate(zip(names, names[::-1], strict=True))]
    _, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out")
    assert log.users.to_pylist() == sorted(set(names))
    assert log.items.to_pylist() == sorted(set(names))
    assert sorted(event[:3] for event in events_of(log)) == sorted(
        (row["user"], row["time"], row["item"]) for row in rows
    )


def test_more_integer_ids_than_the_first_table_holds_are_all_told_apart(tmp_path):
    users = np.random.default_rng(1).integers(-(2**62), 2**62, 20_000)
    pq.write_table(
        pa.table(
            {
                "user": np.concatenate([users, users]),
                "item": np.zeros(40_000, np.int64),
                "time": np.repeat([0, 1], 20_000),
            }
        ),
        tmp_path / "log.parquet",
    )
    _, log = imported(table_source(tmp_path / "log.parquet"), tmp_path / "out")
    assert log.users.to_pylist() == sorted(set(users.tolist()))
    assert (log.counts == 2).all()


@pytest.mark.parametrize("bits", [0, 3, 10, 64])
def test_texts_whose_hashes_are_one_are_told_apart(tmp_path, monkeypatch, bits):
    strong = codes.hash_texts
    monkeypatch.setattr(codes, "hash_texts", lambda *texts: strong(*texts) & np.uint64(2**bits - 1))
    monkeypatch.setattr(parquet, "PARQUET_ROWS", 700)
    rows = [{"user": f"user {i % 2500}", "item": "ab" * (i % 7), "time": i} for i in range(5000)]
    for row in rows:
        row["item"] = row["item"] or "none"
    _, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out")
    assert log.users.to_pylist() == sorted({row["user"] for row in rows})
    assert sorted(event[:3] for event in events_of(log)) == sorted((r["user"], r["time"], r["item"]) for r in rows)


def test_long_texts_are_kept_whole(tmp_path):
    names = ["x" * n for n in (1, 70_000, 200_000, 3)]
    rows = [{"user": name, "item": "i", "time": 0} for name in names]
    _, log = imported(table_source(write(tmp_path / "log.jsonl", rows)), tmp_path / "out")
    assert log.users.to_pylist() == sorted(names)


def test_dictionary_and_float_ids_are_read(tmp_path):
    table = pa.table({"user": pa.array(["b", "a", None]).dictionary_encode(), "item": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "log.parquet")
    found, log = imported(table_source(tmp_path / "log.parquet"), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {"user is missing": 1}
    assert [event[:3] for event in events_of(log)] == [("a", 0, 2), ("b", 0, 1)]


def test_columns_are_named_by_the_caller(tmp_path):
    rows = [{"who": "ann", "what": "x", "stars": 4, "when": 7, "chance": 0.5, "age": 30, "size": 2.5}]
    columns = Columns("who", "what", rating="stars", order="when", propensity="chance", features=("age", "size"))
    _, log = imported(table_source(write(tmp_path / "log.csv", rows), columns), tmp_path / "out", like=4)
    assert events_of(log) == [("ann", 7, "x", 4.0, 1.0, 0.5)]
    assert log.features == ("age", "size")
    assert log.x.tolist() == [[30.0, 2.5]]


def test_a_list_of_features_becomes_a_column_for_each_place(tmp_path):
    rows = [{"user": 1, "item": 2, "x": [1.0, 2.0]}, {"user": 1, "item": 3, "x": [3.0, 4.0]}]
    source = table_source(write(tmp_path / "log.jsonl", rows), Columns(features=("x",)))
    _, log = imported(source, tmp_path / "out")
    assert log.features == ("x0", "x1")
    assert log.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_an_imported_log_is_an_event_table_to_learn_from(tmp_path):
    from lcb.storage.tables.statistics import read_stats

    rows = [{"user": "ann", "item": 1, "reward": 1, "age": 0.5}, {"user": "bob", "item": 1, "reward": 0, "age": 0.25}]
    import_log(table_source(write(tmp_path / "log.csv", rows), Columns(features=("age",))), tmp_path / "out")
    stats = read_stats(tmp_path / "out" / "events.parquet", columns=["age"])
    assert stats.users == ("ann", "bob")
    assert stats.moment.tolist() == [[0.5], [0.0]]


@pytest.mark.parametrize("like", [None, 4])
def test_likes_are_ratings_from_the_threshold_on(tmp_path, like):
    rows = [{"user": 1, "item": i, "rating": r} for i, r in enumerate([3.5, 4, 5])]
    _, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out", like=like)
    assert log.rating.tolist() == [3.5, 4.0, 5.0]
    assert (log.reward is None) if like is None else log.reward.tolist() == [0.0, 1.0, 1.0]


def test_a_log_without_labels_is_one_of_choices(tmp_path):
    rows = [{"user": 1, "item": i} for i in (3, 1, 3, 3)]
    found, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out")
    assert [event[:3] for event in events_of(log)] == [(1, 0, 3), (1, 1, 1), (1, 2, 3), (1, 3, 3)]
    assert (found.n_duplicates, found.duplicates) == (2, "keep")
    with pytest.raises(InputError, match=r"the log has no rewards; read it as choices"):
        log.labels()


# Time


TIMES = {
    "whole numbers": (["20", "3", "100"], [20, 3, 100]),
    "numbers": (["2.5", "-1", "1e3"], [2.5, -1.0, 1000.0]),
    "dates": (
        ["2020-01-02", "2020-01-01 12:30:00", "2020-01-02T00:00:01+01:00"],
        ["2020-01-02", "2020-01-01T12:30", "2020-01-01T23:00:01"],
    ),
}


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_times_are_numbers_or_dates(tmp_path, kind, suffix):
    cells, values = TIMES[kind]
    if kind == "dates":
        values = [int(datetime.fromisoformat(v).replace(tzinfo=UTC).timestamp() * 1e6) for v in values]
    elif suffix == ".parquet":
        cells = values
    rows = [{"user": "a", "item": i, "time": t} for i, t in enumerate(cells)]
    _, log = imported(table_source(write(tmp_path / f"log{suffix}", rows)), tmp_path / "out")
    assert log.order.tolist() == sorted(values)


def test_dates_of_parquet_become_microseconds(tmp_path):
    day = datetime(2020, 1, 2, tzinfo=UTC)
    for kind in (pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32()):
        pq.write_table(pa.table({"user": [1], "item": [1], "time": pa.array([day], kind)}), tmp_path / "log.parquet")
        _, log = imported(table_source(tmp_path / "log.parquet"), tmp_path / "out")
        assert log.order.tolist() == [int(day.timestamp() * 1e6)]


def test_time_going_backwards_is_counted_and_put_right(tmp_path):
    rows = [
        {"user": u, "item": i, "time": t} for i, (u, t) in enumerate([("a", 5), ("a", 9), ("b", 1), ("a", 7), ("b", 0)])
    ]
    found, log = imported(table_source(write(tmp_path / "log.csv", rows)), tmp_path / "out")
    assert found.n_back == 2
    assert [event[:3] for event in events_of(log)] == [
        ("a", 5, "0"),
        ("a", 7, "3"),
        ("a", 9, "1"),
        ("b", 0, "4"),
        ("b", 1, "2"),
    ]


def test_times_may_be_as_far_apart_as_integers_go(tmp_path):
    times = [2**62, -(2**62), 0, 2**63 - 1, -(2**63)]
    rows = [{"user": u, "item": i, "time": t} for u in (2, 1) for i, t in enumerate(times)]
    _, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out")
    assert log.order.tolist() == sorted(times) * 2
    assert log.item.tolist() == [4, 1, 2, 0, 3] * 2


def test_fractions_of_a_second_count(tmp_path):
    rows = [{"user": u, "item": i, "time": t} for u in (2, 1) for i, t in enumerate([0.75, 0.25, 0.5, -3.5])]
    _, log = imported(table_source(write(tmp_path / "log.parquet", rows)), tmp_path / "out")
    assert log.order.tolist() == [-3.5, 0.25, 0.5, 0.75] * 2
    assert log.item.tolist() == [3, 1, 2, 0] * 2


def test_equal_times_keep_the_order_of_the_file(tmp_path):
    rows = [{"user": "a", "item": i, "time": 5} for i in "zyxw"]
    found, log = imported(table_source(write(tmp_path / "log.csv", rows)), tmp_path / "out")
    assert [event[2] for event in events_of(log)] == list("zyxw")
    assert found.n_back == 0


# Duplicates


ROWS = [("a", "x", 1, 3), ("a", "x", 1, 5), ("a", "x", 2, 4), ("b", "x", 1, 2), ("a", "y", 1, 1)]


def duplicated(tmp_path, *, timed=True):
    rows = [{"user": u, "item": i, "time": t, "rating": r} for u, i, t, r in ROWS]
    for row in rows:
        if not timed:
            del row["time"]
    return table_source(write(tmp_path / "log.parquet", rows))


def test_of_rows_equal_in_user_item_and_time_the_last_stays(tmp_path):
    found, log = imported(duplicated(tmp_path), tmp_path / "out")
    assert (found.n_duplicates, found.duplicates) == (1, "drop")
    assert [event[:4] for event in events_of(log)] == [
        ("a", 1, "x", 5.0),
        ("a", 1, "y", 1.0),
        ("a", 2, "x", 4.0),
        ("b", 1, "x", 2.0),
    ]


def test_duplicates_can_be_kept(tmp_path):
    found, log = imported(duplicated(tmp_path), tmp_path / "out", duplicates="keep")
    assert (found.n_duplicates, found.n_events) == (1, 5)
    assert log.notes == ("1 of 5 events repeat another of the same user, item and order",)


def test_duplicates_can_stop_the_import(tmp_path):
    with pytest.raises(InputError, match=r"1 row repeating user, item and time, such as user a, item x"):
        import_log(duplicated(tmp_path), tmp_path / "out", duplicates="stop")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_without_a_time_the_same_item_twice_is_a_duplicate_only_if_asked(tmp_path):
    found, _ = imported(duplicated(tmp_path, timed=False), tmp_path / "kept")
    assert (found.n_duplicates, found.duplicates, found.n_events) == (2, "keep", 5)
    found, log = imported(duplicated(tmp_path, timed=False), tmp_path / "dropped", duplicates="drop")
    assert found.n_events == 3
    assert [event[:4] for event in events_of(log)] == [("a", 0, "x", 4.0), ("a", 1, "y", 1.0), ("b", 0, "x", 2.0)]
    with pytest.raises(InputError, match=r"2 rows repeating user and item"):
        import_log(duplicated(tmp_path, timed=False), tmp_path / "stopped", duplicates="stop")


def test_an_unknown_policy_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"duplicates='forget'; give one of drop, stop, keep"):
        import_log(duplicated(tmp_path), tmp_path / "out", duplicates="forget")
    with pytest.raises(InputError, match=r"on_error='cry'; give stop or skip"):
        import_log(duplicated(tmp_path), tmp_path / "out", on_error="cry")


# Categories


CELLS = {"m1": ["War", "Comedy"], "m2": [], "m3": ["Comedy"]}
EXPECTED = {name: set(cells) for name, cells in CELLS.items()}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_categories_stand_beside_the_events(tmp_path, suffix):
    as_list = suffix in (".parquet", ".jsonl", ".ndjson.gz")
    rows = [
        {"user": "a", "item": i, "genres": CELLS[i] if as_list else " | ".join(CELLS[i])}
        for i in ("m1", "m2", "m1", "m3")
    ]
    source = table_source(write(tmp_path / f"log{suffix}", rows), Columns(categories="genres"))
    found, log = imported(source, tmp_path / "out")
    assert log.categories == ("Comedy", "War")
    assert categories_of(log) == EXPECTED
    assert found.notes == ("1 item without a category, with 1 of 4 events",)


def test_an_item_with_other_categories_in_other_rows_has_them_all(tmp_path):
    rows = [{"user": 1, "item": i, "categories": c} for i, c in [(1, "a"), (1, "b|a"), (2, "c"), (1, "a")]]
    found, log = imported(table_source(write(tmp_path / "log.jsonl", rows)), tmp_path / "out")
    assert categories_of(log) == {1: {"a", "b"}, 2: {"c"}}
    assert found.notes == ("1 item has different categories in different rows; all are kept",)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("items_suffix", SUFFIXES)
def test_categories_come_from_a_table_of_items(tmp_path, suffix, items_suffix):
    rows = [{"user": 1, "item": i, "rating": 5} for i in (7, 8, 7)]
    films = [
        {"id": 9, "title": "Nine", "genre": "Drama"},
        {"id": 8, "title": "Eight", "genre": "War;Drama"},
        {"id": 7, "title": "Seven", "genre": ""},
    ]
    items = write(tmp_path / f"films{items_suffix}", films)
    path = write(tmp_path / f"log{suffix}", rows)
    source = table_source(path, Columns(categories="genre"), items=items, item_id="id", separator=";")
    found, log = imported(source, tmp_path / "out")
    names = [str(i) if suffix in (".csv", ".csv.gz", ".tsv") else i for i in (9, 8, 7)]
    assert log.items.to_pylist() == names
    assert log.titles.to_pylist() == ["Nine", "Eight", "Seven"]
    assert categories_of(log) == dict(zip(names, [{"Drama"}, {"War", "Drama"}, set()], strict=True))
    assert log.item.tolist() == [2, 1, 2]
    assert found.notes == ("1 item without a category, with 2 of 3 events",)


def test_categories_that_no_event_has_are_told(tmp_path):
    items = write(tmp_path / "items.jsonl", [{"item": 1, "categories": ["a"]}, {"item": 2, "categories": ["b", "c"]}])
    path = write(tmp_path / "log.jsonl", [{"user": 1, "item": 1}])
    found, log = imported(table_source(path, items=items), tmp_path / "out")
    assert found.notes == log.notes == ("2 of 3 categories have no event: b, c",)


def test_an_item_in_two_rows_of_its_table_is_refused(tmp_path):
    items = write(tmp_path / "items.csv", [{"item": 1}, {"item": 1}, {"item": 1}])
    with pytest.raises(InputError, match=r"items.csv has 2 items more than once; give every item one row"):
        table_source(write(tmp_path / "log.csv", [{"user": 1, "item": 1}]), items=items)


def test_a_table_of_items_without_an_id_is_refused(tmp_path):
    items = write(tmp_path / "items.csv", [{"item": 1, "categories": "a"}, {"item": None, "categories": "b"}])
    with pytest.raises(InputError, match=r"items.csv row 2: item is missing; 1 bad row of items"):
        table_source(write(tmp_path / "log.csv", [{"user": 1, "item": 1}]), items=items)


def test_items_that_cannot_be_those_of_the_log_are_refused(tmp_path):
    items = write(tmp_path / "items.csv", [{"item": 1}, {"item": "x"}])
    with pytest.raises(InputError, match=r"has 1 item named by no whole number, such as 'x'; those of log.parquet are"):
        table_source(write(tmp_path / "log.parquet", [{"user": 1, "item": 1}]), items=items)


# Bad rows


BAD = {
    "rating as text": ({"rating": "five"}, "rating is no number", "rating is 'five'; a number is wanted"),
    "no rating": ({"rating": None}, "rating is missing", "rating is missing"),
    "infinite rating": ({"rating": "inf"}, "rating is not finite", "rating is inf; a finite number is wanted"),
    "rating beyond 32 bits": ({"rating": "1e39"}, "rating is not finite", "rating is 1e+39; a finite number is wanted"),
    "no user": ({"user": None}, "user is missing", "user is missing"),
    "no item": ({"item": None}, "item is missing", "item is missing"),
    "no time": ({"time": None}, "time is missing", "time is missing"),
    "time as text": (
        {"time": "noon"},
        "time is no time",
        "time is 'noon'; a whole number is wanted, as in most of the first rows",
    ),
    "zero propensity": (
        {"propensity": "0"},
        "propensity is 0",
        "propensity is 0; an item that was shown has a probability above 0",
    ),
    "vanishing propensity": (
        {"propensity": "1e-60"},
        "propensity is 0",
        "propensity is 0; an item that was shown has a probability above 0",
    ),
    "negative propensity": (
        {"propensity": "-0.5"},
        "propensity is outside (0, 1]",
        "propensity is -0.5; a probability in (0, 1] is wanted",
    ),
    "propensity above 1": (
        {"propensity": "1.5"},
        "propensity is outside (0, 1]",
        "propensity is 1.5; a probability in (0, 1] is wanted",
    ),
    "feature as text": ({"age": "old"}, "age is no number", "age is 'old'; a number is wanted"),
}
GOOD = {"user": "u", "item": "i", "time": "3", "rating": "4", "propensity": "0.5", "age": "20"}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_is_named_counted_and_left_out_if_asked(tmp_path, suffix, what):
    change, reason, said = BAD[what]
    rows = [GOOD, GOOD | {"time": "5"}, GOOD | change, GOOD | {"time": "6"}, GOOD | change]
    path = write(tmp_path / f"log{suffix}", rows)
    source = table_source(path, Columns(features=("age",)))
    with pytest.raises(BadRows) as refused:
        import_log(source, tmp_path / "out")
    assert str(refused.value) == (
        f"log{suffix} has 2 bad rows of 5: {reason} (2); correct them, or leave them out with "
        "lcb import --on-error skip"
    )
    assert refused.value.listed == tuple(f"{path} row {row}: {said}" for row in (3, 5))
    assert [path.name for path in tmp_path.iterdir()] == [f"log{suffix}"]
    found, log = imported(source, tmp_path / "out", on_error="skip")
    assert found.bad_rows == {reason: 2}
    assert found.listed == refused.value.listed
    assert log.order.tolist() == [3, 5, 6]


def test_a_row_that_is_wrong_in_two_ways_counts_once(tmp_path):
    rows = [GOOD, GOOD | {"rating": "x", "propensity": "0"}, GOOD | {"propensity": "0", "time": "9"}]
    source = table_source(write(tmp_path / "log.csv", rows))
    found = import_log(source, tmp_path / "out", on_error="skip")
    assert found.bad_rows == {"rating is no number": 1, "propensity is 0": 1}


def test_unknown_items_are_bad_rows(tmp_path):
    items = write(tmp_path / "items.csv", [{"item": "a"}])
    path = write(tmp_path / "log.csv", [{"user": 1, "item": i} for i in "abac"])
    found, log = imported(table_source(path, items=items), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {f"item which is not in {items}": 2}
    assert found.listed == tuple(
        f"{path} row {row}: item is '{i}', which is not in {items}" for row, i in ((2, "b"), (4, "c"))
    )
    assert log.items.to_pylist() == ["a"]


def test_the_first_twenty_bad_rows_are_listed_in_the_order_of_the_file(tmp_path):
    rows = [GOOD | ({"rating": "x"} if i % 2 else {"propensity": "0"}) for i in range(100)]
    with pytest.raises(
        BadRows, match=r"log.csv has 100 bad rows of 100: rating is no number .50., propensity is 0 .50."
    ) as refused:
        import_log(table_source(write(tmp_path / "log.csv", rows)), tmp_path / "out")
    assert len(refused.value.listed) == 20
    assert [line.split(" row ")[1].split(":")[0] for line in refused.value.listed] == [str(row) for row in range(1, 21)]


def test_a_log_without_good_rows_is_refused(tmp_path):
    source = table_source(write(tmp_path / "log.csv", [GOOD | {"rating": "x"}]))
    with pytest.raises(InputError, match=r"log.csv has no good rows \(rating is no number \(1\)\)"):
        import_log(source, tmp_path / "out", on_error="skip")
    pq.write_table(
        pa.table({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}), tmp_path / "no.parquet"
    )
    with pytest.raises(InputError, match=r"no.parquet has no good rows; give a log with at least one event"):
        import_log(table_source(tmp_path / "no.parquet"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "no.parquet"]


def test_rows_with_too_many_or_too_few_cells_are_left_out_and_the_others_keep_their_numbers(tmp_path):
    path = text(tmp_path / "log.csv", "user,item,rating\na,1,5\na,2\na,3,x\na,4,4,9\na,5,y\n")
    found, log = imported(table_source(path), tmp_path / "out", on_error="skip")
    assert found.n_rows == 5
    assert found.listed == (
        f"{path} row 2: 2 cells, the header has 3",
        f"{path} row 3: rating is 'x'; a number is wanted",
        f"{path} row 4: 4 cells, the header has 3",
        f"{path} row 5: rating is 'y'; a number is wanted",
    )
    assert log.items.to_pylist() == ["1"]


def test_row_numbers_hold_across_blocks_of_a_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "CSV_BYTES", 200)
    lines = ["a,1,5"] * 300
    for row in (50, 120, 299):
        lines[row - 1] = "a,1"
    for row in (51, 119, 300):
        lines[row - 1] = "a,1,bad"
    path = text(tmp_path / "log.csv", "\n".join(["user,item,rating", *lines]) + "\n")
    found = import_log(table_source(path), tmp_path / "out", on_error="skip")
    assert [int(line.split(" row ")[1].split(":")[0]) for line in found.listed] == [50, 51, 119, 120, 299, 300]
    assert found.n_rows == 300


def test_an_unclosed_quote_is_refused_with_its_row(tmp_path):
    path = text(tmp_path / "log.csv", 'user,item\na,1\nb,"2\nc,3\n')
    with pytest.raises(InputError, match=r"log.csv row 2: a quote is not closed"):
        import_log(table_source(path), tmp_path / "out", on_error="skip")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.parametrize("content", ["user,item\n", "user,item", "\ufeffuser,item\r\n\r\n"])
def test_a_header_without_rows_is_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"log.csv (has no good rows|could not be read)"):
        import_log(table_source(text(tmp_path / "log.csv", content)), tmp_path / "out")


def test_byte_order_marks_other_line_ends_and_blank_lines_are_read(tmp_path):
    path = text(tmp_path / "log.csv", "\ufeffuser,item,rating\r\na,1, 4 \r\n\r\nb,2,x\r\n")
    found, log = imported(table_source(path), tmp_path / "out", on_error="skip")
    assert events_of(log) == [("a", 0, "1", 4.0, None, None)]
    assert found.listed == (f"{path} row 2: rating is 'x'; a number is wanted",)


def test_quoted_cells_may_hold_commas_and_line_breaks(tmp_path):
    path = text(tmp_path / "log.csv", 'user,item\n"a,\nb",1\nc,"2"\n')
    _, log = imported(table_source(path), tmp_path / "out")
    assert log.users.to_pylist() == ["a,\nb", "c"]


@pytest.mark.parametrize("column", ["user", "item"])
def test_text_that_is_not_utf_8_is_a_bad_row(tmp_path, column):
    cells = {"user": b"a,1\n\xff,1\n", "item": b"a,1\na,\xff\n"}[column]
    path = text(tmp_path / "log.csv", b"user,item\n" + cells)
    found, log = imported(table_source(path), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {f"{column} is not UTF-8 text": 1}
    assert found.listed[0].startswith(f"{path} row 2: {column} is not UTF-8 text")
    assert log.n_events == 1


def test_lines_that_are_no_json_and_mixed_types_are_bad_rows(tmp_path):
    lines = [
        '{"user": 1, "item": "a", "rating": 5}',
        "nonsense",
        '{"user": "1", "item": "a", "rating": 4.5}',
        "[1]",
        '{"user": 2, "item": 7, "rating": 1}',
        '{"user": 2, "item": "b", "rating": "2.5"}',
        '{"user": 3, "item": "b", "rating": {"stars": 4}}',
        '{"user": true, "item": "b", "rating": 4}',
    ]
    path = text(tmp_path / "log.jsonl", "\n".join(lines) + "\n")
    found, log = imported(table_source(path), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {
        "no JSON object": 2,
        "user of another type": 2,
        "item of another type": 1,
        "rating is no number": 1,
    }
    assert [line.split(" row ")[1][0] for line in found.listed] == ["2", "3", "4", "5", "7", "8"]
    assert found.listed[1] == f"{path} row 3: user is '1'; the rows before have integers"
    assert found.listed[3] == f"{path} row 5: item is 7; the rows before have text"
    assert events_of(log) == [(1, 0, "a", 5.0, None, None), (2, 0, "b", 2.5, None, None)]


def test_a_number_among_text_and_text_among_numbers_are_read_as_numbers(tmp_path):
    rows = [{"user": 1, "item": 1, "rating": r, "time": t} for t, r in enumerate(["3", 4, 4.5, True])]
    _, log = imported(table_source(write(tmp_path / "log.jsonl", rows)), tmp_path / "out")
    assert log.rating.tolist() == [3.0, 4.0, 4.5, 1.0]


def test_values_missing_from_the_first_lines_are_found_in_later_ones(tmp_path):
    rows = [
        {"user": 1, "item": 1, "rating": None},
        {"item": 1, "rating": 5, "user": 2},
        {"user": 3, "item": 1, "rating": 4.5},
    ]
    found, log = imported(table_source(write(tmp_path / "log.jsonl", rows)), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {"rating is missing": 1}
    assert log.users.to_pylist() == [2, 3]


# Bad files


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = write(tmp_path / "log.csv", [{"who": 1, "item": 2}])
    with pytest.raises(InputError, match=r"log.csv has no column user; it has who, item: rename one, or name another"):
        table_source(path)
    with pytest.raises(InputError, match=r"log.csv has no column stars"):
        table_source(path, Columns(user="who", rating="stars"))
    items = write(tmp_path / "items.csv", [{"item": 2}])
    with pytest.raises(InputError, match=r"items.csv has no column genre"):
        table_source(path, Columns(user="who", categories="genre"), items=items)


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    path = text(tmp_path / "log.csv", "user,item,user\n1,2,3\n")
    with pytest.raises(InputError, match=r"more than one column user"):
        table_source(path)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_truncated_parquet_file_is_refused_and_leaves_nothing(tmp_path, share):
    path = write(tmp_path / "log.parquet", log_rows(2000))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match=r"log.parquet could not be read .*; write or download it again"):
        import_log(table_source(path), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_a_parquet_file_damaged_in_the_middle_is_refused_and_leaves_nothing(tmp_path):
    path = tmp_path / "log.parquet"
    rng = np.random.default_rng(0)
    table = pa.table({"user": rng.integers(0, 2**60, 200_000), "item": rng.integers(0, 9, 200_000)})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"log.parquet could not be read"):
        import_log(table_source(path), tmp_path / "out", most_rows=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


@pytest.mark.parametrize(
    "columns",
    [{"user": [1.5]}, {"user": [[1]]}, {"user": [True]}, {"rating": [[1]]}, {"time": [[1]]}, {"x": [[]]}],
    ids=str,
)
def test_columns_of_the_wrong_type_are_refused(tmp_path, columns):
    pq.write_table(pa.table({"user": [1], "item": [1], "x": [1]} | columns), tmp_path / "log.parquet")
    with pytest.raises(InputError, match=r"log.parquet"):
        import_log(table_source(tmp_path / "log.parquet", Columns(features=("x",))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_lists_of_features_of_two_lengths_are_refused(tmp_path):
    rows = [{"user": 1, "item": 1, "x": [1.0]}, {"user": 1, "item": 1, "x": [1.0, 2.0]}]
    with pytest.raises(InputError, match=r"column x has lists of \[1, 2\] numbers"):
        import_log(table_source(write(tmp_path / "log.parquet", rows), Columns(features=("x",))), tmp_path / "out")


def test_features_that_are_columns_of_the_log_are_refused(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "age": 3}])
    with pytest.raises(InputError, match=r"features has user, a reserved column name"):
        table_source(path, Columns(features=("user",)))
    with pytest.raises(InputError, match=r"features has age more than once"):
        table_source(path, Columns(features=("age", "age")))


@pytest.mark.parametrize("name", ["log.txt", "nothing.csv", "empty.csv", ".", "blank.jsonl"])
def test_a_file_that_is_no_table_is_refused(tmp_path, name):
    text(tmp_path / "log.txt", "a")
    text(tmp_path / "empty.csv", "")
    text(tmp_path / "blank.jsonl", "\n\n")
    with pytest.raises(InputError, match=r"of no known kind|does not exist|is empty|is not the folder|has no rows"):
        table_source(tmp_path / name)


def test_a_time_that_is_neither_number_nor_date_is_refused(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "time": "noon"}])
    with pytest.raises(InputError, match=r"column time of .*log.csv starts with 'noon'; a number or a date"):
        import_log(table_source(path), tmp_path / "out")


def test_the_first_time_may_be_the_wrong_one(tmp_path):
    rows = [{"user": 1, "item": 1, "time": t} for t in ("noon", "3", "2.5", "never")]
    found, log = imported(table_source(write(tmp_path / "log.csv", rows)), tmp_path / "out", on_error="skip")
    assert found.bad_rows == {"time is no time": 2}
    assert found.listed[0].endswith("row 1: time is 'noon'; a number is wanted, as in most of the first rows")
    assert log.order.tolist() == [2.5, 3.0]


def test_likes_need_ratings_and_no_rewards(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "reward": 1}])
    with pytest.raises(InputError, match=r"--like needs ratings, and .*log.csv has none"):
        import_log(table_source(path), tmp_path / "out", like=4)
    path = write(tmp_path / "both.csv", [{"user": 1, "item": 1, "reward": 1, "rating": 2}])
    with pytest.raises(InputError, match=r"--like turns ratings into rewards, but .*both.csv already has rewards"):
        import_log(table_source(path), tmp_path / "out", like=4)


def test_an_empty_separator_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"the separator is empty"):
        table_source(write(tmp_path / "log.csv", [{"user": 1, "item": 1}]), separator="")


# Where it goes


def test_a_file_gets_its_items_and_categories_beside_it(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "categories": "a"}])
    found, log = imported(table_source(path), tmp_path / "clicks.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clicks.categories.json",
        "clicks.items.parquet",
        "clicks.parquet",
        "log.csv",
    ]
    assert log.categories == ("a",)
    assert found.files.items == tmp_path / "clicks.items.parquet"


def test_events_parquet_stands_for_its_folder(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "categories": "a"}])
    import_log(table_source(path), tmp_path / "out" / "events.parquet")
    assert open_log(tmp_path / "out").categories == open_log(tmp_path / "out" / "events.parquet").categories == ("a",)


def test_importing_again_replaces_the_import(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "categories": "a"}])
    import_log(table_source(path), tmp_path / "out")
    path = write(tmp_path / "log.csv", [{"user": 2, "item": 2}])
    _, log = imported(table_source(path), tmp_path / "out")
    assert (log.users.to_pylist(), log.categories) == (["2"], ())


def test_a_failed_import_leaves_the_one_before(tmp_path):
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "time": 1}])
    import_log(table_source(path), tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    path = write(tmp_path / "log.csv", [{"user": 1, "item": 1, "time": 1}] * 2)
    with pytest.raises(InputError, match=r"1 row repeating"):
        import_log(table_source(path), tmp_path / "out", duplicates="stop")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_an_interrupted_import_leaves_nothing(tmp_path):
    path = write(tmp_path / "log.parquet", log_rows(500))

    def interrupt(what, done, total):
        if what == "sorting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_log(table_source(path), tmp_path / "out", most_rows=50, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


@pytest.mark.parametrize("name", ["events.parquet", "items.parquet", "categories.json"])
def test_what_no_import_wrote_is_not_overwritten(tmp_path, name):
    source = table_source(write(tmp_path / "log.csv", [{"user": 1, "item": 1}]))
    (tmp_path / "out").mkdir()
    text(tmp_path / "out" / name, "precious")
    with pytest.raises(OutputError, match=f"{name} exists and was not written by an import; move it away"):
        import_log(source, tmp_path / "out")
    assert (tmp_path / "out" / name).read_text() == "precious"


def test_the_source_is_not_overwritten(tmp_path):
    path = write(tmp_path / "events.parquet", [{"user": 1, "item": 1}])
    with pytest.raises(InputError, match=r"events.parquet would be overwritten while it is read"):
        import_log(table_source(path), tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"would be overwritten"):
        import_log(table_source(path), link)


def test_a_place_that_cannot_be_written_is_refused_before_the_log_is_read(tmp_path):
    source = table_source(write(tmp_path / "log.csv", [{"user": 1, "item": 1}]))
    with pytest.raises(OutputError, match=r"cannot be written"):
        import_log(source, tmp_path / "log.csv" / "out")


def test_a_full_disk_is_told_in_one_line(tmp_path, monkeypatch):
    source = table_source(write(tmp_path / "log.parquet", log_rows(500)))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_stream", full)
    with pytest.raises(OutputError, match=r"No space left on device.*needs space for two copies of the log"):
        import_log(source, tmp_path / "out", most_rows=50)
    monkeypatch.undo()
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OutputError, match=r"events.parquet could not be written .No space left on device."):
        import_log(source, tmp_path / "out")
    monkeypatch.setattr(pq.ParquetWriter, "close", lambda writer: writer.is_open and full())
    with pytest.raises(OutputError, match=r"events.parquet could not be written .No space left on device."):
        import_log(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_items_of_another_import_are_told_from_the_events_own(tmp_path):
    for name in ("one", "two"):
        path = write(tmp_path / f"{name}.csv", [{"user": 1, "item": name, "categories": name}])
        import_log(table_source(path), tmp_path / name)
    (tmp_path / "one" / "items.parquet").write_bytes((tmp_path / "two" / "items.parquet").read_bytes())
    with pytest.raises(InputError, match=r"are from different imports; import the log again"):
        open_log(tmp_path / "one")


def test_the_same_log_gives_the_same_bytes(tmp_path):
    path = write(tmp_path / "log.csv", log_rows())
    for name in ("one", "two"):
        import_log(table_source(path), tmp_path / name)
    for name in ("events.parquet", "items.parquet", "categories.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


# Memory


def test_reading_parquet_holds_a_few_batches_only(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "log.parquet"
    n = 1_500_000
    table = pa.table({"user": rng.integers(0, 2**60, n), "item": rng.integers(0, 2**60, n)})
    pq.write_table(table, path, use_dictionary=False, row_group_size=100_000)
    del table
    before, most = pa.total_allocated_bytes(), 0
    for chunk in table_source(path).chunks(run_problems()):
        most = max(most, pa.total_allocated_bytes() - before)
        del chunk
    assert most < path.stat().st_size / 2


def run_problems():
    from lcb.storage.importing.bad_rows import Problems

    return Problems()


def test_the_spill_is_gone_while_parts_are_sorted(tmp_path):
    path = write(tmp_path / "log.parquet", log_rows(500, 50))
    seen = []

    def look(what, done, total):
        if what == "sorting":
            folder = next(Path(tmp_path / "out").glob(".lcb-import-*"))
            seen.append(sorted(path.name for path in folder.iterdir()))

    import_log(table_source(path), tmp_path / "out", most_rows=50, progress=look)
    assert seen
    assert all("rows" not in names for names in seen)
    assert seen[-1] == []
    assert sorting.MOST_ROWS == 1 << 21
