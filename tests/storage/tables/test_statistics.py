"""Event tables: the same statistics from every format, and a clear message for every bad file."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcb.errors import EventError, InputError
from lcb.features import cross
from lcb.stats import UserStats
from lcb.storage.tables.codes import hash_ids
from lcb.storage.tables.formats import delimited, json_lines
from lcb.storage.tables.formats import parquet as parquet_reader
from lcb.storage.tables.open_table import open_table
from lcb.storage.tables.sample import UserSample, draw_users
from lcb.storage.tables.statistics import read_log, read_stats

LIST_SUFFIXES = [".parquet", ".pq", ".jsonl", ".ndjson", ".jsonl.gz"]
COLUMN_SUFFIXES = [*LIST_SUFFIXES, ".csv", ".csv.gz"]
NAMES = ["age", "hour", "price"]


def events(n, n_users=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n_users, n), rng.normal(size=(n, len(NAMES))), rng.random(n)


def write(path, columns):
    """Write columns (name -> list) in the format of the suffix."""
    columns = {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in columns.items()}
    if path.suffix in (".parquet", ".pq"):
        pq.write_table(pa.table(columns), path)
        return path
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if ".csv" in path.suffixes:
        text = "\n".join([",".join(columns), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def text_file(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def assert_same(stats, expected):
    assert stats.users == expected.users
    assert stats.features == expected.features
    np.testing.assert_allclose(stats.packed, expected.packed, rtol=1e-12, atol=1e-12)


def refusal(path, kind=InputError, **options):
    """What `read_stats` says of a bad file, one line with the file and a remedy; FILE stands for its path."""
    with pytest.raises(kind) as caught:
        read_stats(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert "; " in message
    return message.replace(str(path), "FILE")


def small_batches(monkeypatch, rows=8, n_bytes=256):
    monkeypatch.setattr(parquet_reader, "PARQUET_ROWS", rows)
    monkeypatch.setattr(delimited, "CSV_BYTES", n_bytes)
    monkeypatch.setattr(json_lines, "JSON_BYTES", n_bytes)


# The same statistics from every format


@pytest.mark.parametrize("suffix", LIST_SUFFIXES)
@pytest.mark.parametrize("as_strings", [False, True])
def test_a_list_column_gives_the_statistics_of_its_rows(tmp_path, suffix, as_strings):
    user, x, reward = events(500)
    user = [f"u{u}" for u in user] if as_strings else user.tolist()
    path = write(tmp_path / f"events{suffix}", {"user": user, "reward": reward, "x": x})
    assert_same(read_stats(path), UserStats.from_rows(user, x, reward, features=("x0", "x1", "x2")))


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_named_columns_give_the_statistics_of_their_rows_in_the_order_named(tmp_path, suffix):
    user, x, reward = events(500)
    user = [f"u{u}" for u in user]
    columns = {
        "price": x[:, 2],
        "user": user,
        "other": user,
        "hour": x[:, 1],
        "reward": reward,
        "age": x[:, 0],
    }
    path = write(tmp_path / f"events{suffix}", columns)
    assert_same(read_stats(path, columns=NAMES), UserStats.from_rows(user, x, reward, features=NAMES))


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_named_user_columns_are_crossed_with_the_arms(tmp_path, suffix):
    user, x, reward = events(300)
    user = [f"u{u}" for u in user]
    columns = {"user": user, "reward": reward} | {name: x[:, j] for j, name in enumerate(NAMES)}
    path = write(tmp_path / f"events{suffix}", columns)
    stats = read_stats(path, columns=["age", "hour"], user_columns=["price"])
    names = ("age", "hour", "age*price", "hour*price")
    assert_same(stats, UserStats.from_rows(user, cross(x[:, :2], x[:, 2:]), reward, features=names))


@pytest.mark.parametrize("suffix", LIST_SUFFIXES)
def test_the_list_user_x_is_crossed_with_the_arms(tmp_path, suffix):
    user, x, reward = events(300)
    path = write(tmp_path / f"events{suffix}", {"user": user, "reward": reward, "x": x[:, :1], "user_x": x[:, 1:]})
    expected = cross(x[:, :1], x[:, 1:])
    names = ("x0", "x0*user_x0", "x0*user_x1")
    assert_same(read_stats(path), UserStats.from_rows(user, expected, reward, features=names))


@pytest.mark.parametrize("suffix", LIST_SUFFIXES)
def test_named_user_columns_take_the_place_of_user_x(tmp_path, suffix):
    user, x, reward = events(50)
    columns = {"user": user, "reward": reward, "x": x[:, :1], "user_x": x[:, 1:], "age": x[:, 2]}
    stats = read_stats(write(tmp_path / f"events{suffix}", columns), user_columns=["age"])
    names = ("x0", "x0*age")
    assert_same(stats, UserStats.from_rows(user, cross(x[:, :1], x[:, 2:]), reward, features=names))


def test_every_parquet_list_and_number_type_is_read(tmp_path):
    x = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    expected = UserStats.from_rows([1, 2, 1], x, [1, 0, 1], features=("x0", "x1"))
    numbers = [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.decimal128(25, 2),
    ]
    for number in numbers:
        flat = pa.array([int(value) for row in x for value in row]).cast(number)
        fixed = pa.FixedSizeListArray.from_arrays(flat, 2)
        lists = [fixed, fixed.cast(pa.list_(number)), fixed.cast(pa.large_list(number))]
        for column in lists:
            reward = pa.array([1, 0, 1]).cast(number)
            path = parquet(tmp_path / "events.parquet", user=pa.array([1, 2, 1]), reward=reward, x=column)
            assert_same(read_stats(path), expected)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_parquet_string_type_names_users(tmp_path, kind):
    user = pa.array(["b", "a", "b"]).cast(kind)
    path = parquet(tmp_path / "events.parquet", user=user, reward=[1, 0, 1], a=[1, 2, 3])
    assert read_stats(path, columns=["a"]).users == ("b", "a")


def test_a_csv_keeps_the_zeros_of_its_users(tmp_path):
    path = text_file(tmp_path / "events.csv", "user,reward,a\n007,1,1\n7,0,1\n")
    assert read_stats(path, columns=["a"]).users == ("007", "7")


def test_integer_users_and_string_users_stay_apart(tmp_path):
    integers = text_file(tmp_path / "a.jsonl", '{"user": 7, "reward": 1, "x": [1]}\n')
    strings = text_file(tmp_path / "b.jsonl", '{"user": "7", "reward": 1, "x": [1]}\n')
    assert read_stats(integers).users == (7,)
    assert read_stats(strings).users == ("7",)


def test_a_csv_may_have_blanks_truth_values_quotes_blank_lines_line_breaks_in_text_and_a_mark_at_its_start(
    tmp_path,
):
    content = '\ufeffuser,reward,a,title\r\n"x, y",True, 1,"two\nlines"\r\n\r\nz,false,+2.5e0,5" disk\r\n'
    path = text_file(tmp_path / "events.csv", content)
    expected = UserStats.from_rows(["x, y", "z"], [[1.0], [2.5]], [1, 0], features=("a",))
    assert_same(read_stats(path, columns=["a"]), expected)


def test_json_lines_may_mix_truth_values_and_numbers_and_have_blank_lines(tmp_path):
    lines = [
        '{"user": "a", "reward": true, "x": [true, 0]}',
        "",
        '{"x": [1, 2.5], "extra": {"deep": []}, "reward": 1, "user": "2020-01-01"}',
    ]
    path = text_file(tmp_path / "events.jsonl", "\n".join(lines) + "\n\n")
    expected = UserStats.from_rows(["a", "2020-01-01"], [[1, 0], [1, 2.5]], [1, 1], features=("x0", "x1"))
    assert_same(read_stats(path), expected)


def test_single_precision_is_kept_when_asked_for(tmp_path):
    path = write(tmp_path / "events.parquet", {"user": [1], "reward": [0.5], "x": [[1.0]]})
    assert read_stats(path, dtype=np.float32).packed.dtype == np.float32


def test_progress_counts_rows_and_knows_the_total_of_a_parquet_file(tmp_path, monkeypatch):
    small_batches(monkeypatch, rows=4)
    user, x, reward = events(10)
    reports = []
    path = write(tmp_path / "events.parquet", {"user": user, "reward": reward, "x": x})
    read_stats(path, progress=lambda *report: reports.append(report))
    assert reports == [("reading events.parquet", done, 10) for done in (4, 8, 10)]
    path = write(tmp_path / "events.jsonl", {"user": user, "reward": reward, "x": x})
    read_stats(path, progress=lambda *report: reports.append(report))
    assert reports[-1] == ("reading events.jsonl", 10, None)


# Batches


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_users_spread_over_many_batches_are_summed(tmp_path, monkeypatch, suffix):
    small_batches(monkeypatch)
    user, x, reward = events(1000)
    user = [f"u{u}" for u in user]
    columns = {"user": user, "reward": reward} | {name: x[:, j] for j, name in enumerate(NAMES)}
    path = write(tmp_path / f"events{suffix}", columns)
    reports = []
    stats = read_stats(path, columns=NAMES, progress=lambda *report: reports.append(report))
    assert len(reports) > 50
    assert_same(stats, UserStats.from_rows(user, x, reward, features=NAMES))


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(n=st.integers(1, 60), n_bytes=st.integers(1, 300), blank=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]))
def test_json_blocks_of_any_size_hold_the_same_rows(tmp_path, monkeypatch, n, n_bytes, blank):
    monkeypatch.setattr(json_lines, "JSON_BYTES", n_bytes)
    user, x, reward = events(n)
    rows = zip(user.tolist(), x.tolist(), reward.tolist(), strict=True)
    lines = [json.dumps({"user": u, "x": row, "reward": r}) for u, row, r in rows]
    path = text_file(tmp_path / "events.jsonl", blank.join(lines))
    assert_same(read_stats(path), UserStats.from_rows(user, x, reward, features=("x0", "x1", "x2")))


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
@pytest.mark.parametrize("bad_row", [1, 8, 9, 777, 1000])
def test_a_bad_row_beyond_the_first_batch_has_its_own_number(tmp_path, monkeypatch, suffix, bad_row):
    small_batches(monkeypatch)
    user, x, reward = events(1000)
    x[bad_row - 1, 1] = np.nan
    columns = {"user": [f"u{u}" for u in user], "reward": reward} | {name: x[:, j] for j, name in enumerate(NAMES)}
    path = write(tmp_path / f"events{suffix}", columns)
    assert refusal(path, EventError, columns=NAMES) == (
        f"FILE row {bad_row}: feature hour is nan; every feature must be a finite number, correct or drop the row"
    )


@pytest.mark.parametrize("bad_row", [1, 8, 777, 1000])
def test_a_word_among_numbers_beyond_the_first_batch_has_its_own_row_number(tmp_path, monkeypatch, bad_row):
    small_batches(monkeypatch)
    reward = ["1"] * 1000
    reward[bad_row - 1] = "abc"
    said = f"FILE row {bad_row}: reward is 'abc'; a number is wanted, correct or drop the row"
    path = write(tmp_path / "events.csv", {"user": ["u"] * 1000, "reward": reward, "a": ["2"] * 1000})
    assert refusal(path, EventError, columns=["a"]) == said
    rewards = [1.0 if word == "1" else word for word in reward]
    path = write(tmp_path / "events.jsonl", {"user": ["u"] * 1000, "reward": rewards, "x": [[2.0]] * 1000})
    assert refusal(path, EventError) == said


def test_two_hundred_thousand_rows_are_read_whole(tmp_path):
    user, x, reward = events(200_000, n_users=5_000)
    table = pa.table({"user": user, "reward": reward, "x": list(x)})
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=70_000)
    stats = read_stats(tmp_path / "events.parquet")
    expected = UserStats.from_rows(user, x, reward, features=("x0", "x1", "x2"))
    assert_same(stats, expected)
    assert stats.n_events == 200_000


def peak_bytes(path, **options):
    """The most memory held at once, by Python and numpy and by pyarrow."""
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        read_stats(path, **options)
        return tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".csv.gz"])
def test_memory_does_not_grow_with_events(tmp_path, monkeypatch, suffix):
    small_batches(monkeypatch, rows=parquet_reader.PARQUET_ROWS, n_bytes=1 << 16)
    user, x, reward = events(100_000 if suffix == ".parquet" else 30_000, n_users=50)  # several batches of either
    columns = {"user": user, "reward": reward} | {name: x[:, j] for j, name in enumerate(NAMES)}
    few = write(tmp_path / f"few{suffix}", columns)
    many = tmp_path / f"many{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.concat_tables([pq.read_table(few)] * 8), many, row_group_size=800_000)
    else:
        data = gzip.decompress(few.read_bytes()) if suffix == ".csv.gz" else few.read_bytes()
        head, body = data.split(b"\n", 1) if ".csv" in suffix else (b"", data)
        repeated = (head + b"\n" if head else b"") + body * 8
        many.write_bytes(gzip.compress(repeated, 1) if suffix == ".csv.gz" else repeated)
    read_stats(few, columns=NAMES)  # what is only done once
    # 8 times as many events; batches that are read ahead may take a part more on a busy machine
    assert peak_bytes(many, columns=NAMES) < 2.5 * peak_bytes(few, columns=NAMES)


# Files that are not tables


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_missing_file_is_named(tmp_path, suffix):
    assert refusal(tmp_path / f"no{suffix}") == "FILE does not exist; give the path of one table"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_folder_is_no_table(tmp_path, suffix):
    (tmp_path / f"a{suffix}").mkdir()
    assert refusal(tmp_path / f"a{suffix}").startswith(
        "FILE is a folder without tables; give the path of a table, or of its parts, which end in .parquet, .pq, .csv,"
    )


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_an_empty_file_is_refused(tmp_path, suffix):
    path = text_file(tmp_path / f"a{suffix}", b"")
    assert refusal(path, columns=["a"]) == "FILE is empty; give a table with at least one row"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_table_without_rows_is_refused(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    if suffix in (".parquet", ".pq"):
        parquet(
            path,
            user=pa.array([], pa.int64()),
            reward=pa.array([], pa.float64()),
            a=pa.array([], pa.float64()),
        )
    else:
        content = b"user,reward,a\n" if ".csv" in suffix else b"\n \n"
        text_file(path, gzip.compress(content) if suffix.endswith(".gz") else content)
    assert refusal(path, columns=["a"]) == "FILE has no rows; give a table with at least one row"


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    said = refusal(text_file(tmp_path / "events.xlsx", b"x"))
    assert said == (
        "FILE is of no known kind; give a file that ends in "
        ".parquet, .pq, .csv, .csv.gz, .tsv, .tsv.gz, .jsonl, .ndjson, .jsonl.gz, .ndjson.gz"
    )


def test_a_file_that_is_not_parquet_or_cut_off_anywhere_is_refused(tmp_path):
    whole = write(tmp_path / "whole.parquet", {"user": [1] * 50, "reward": [0.5] * 50, "x": [[1.0]] * 50}).read_bytes()
    for content in (b"user,reward,a\n1,1,1\n", b"PAR1", *(whole[:n] for n in range(1, len(whole), 97))):
        said = refusal(text_file(tmp_path / "events.parquet", content))
        assert said.startswith("FILE could not be read (")
        assert said.endswith("; write or download it again, or check its permissions")


def test_a_damaged_page_of_a_parquet_file_with_checksums_is_refused(tmp_path):
    user, x, reward = events(2000)
    path = tmp_path / "events.parquet"
    table = pa.table({"user": user, "reward": reward, "x": list(x)})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    assert refusal(text_file(path, bytes(data))).startswith("FILE could not be read (")


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl.gz"])
def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path, suffix):
    user, x, reward = events(20_000)
    columns = {"user": user, "reward": reward, "age": x[:, 0]}
    path = write(tmp_path / f"events{suffix}", columns)
    text_file(path, path.read_bytes()[:-100])
    assert refusal(path, columns=["age"]).startswith("FILE could not be read (")


# Columns that are not there, or not what they should be


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
@pytest.mark.parametrize("name", ["user", "reward", "a"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path, suffix, name):
    columns = {"user": ["u"], "reward": [1], "a": [2], "b": [3]}
    del columns[name]
    path = write(tmp_path / f"events{suffix}", columns)
    there = ", ".join(columns)
    said = refusal(path, columns=["a"])
    assert said == f"FILE has no column {name}; it has {there}: rename one, or name another"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_table_without_features_named_proposes_its_numeric_columns(tmp_path, suffix):
    path = write(tmp_path / f"events{suffix}", {"user": ["u"], "a": [2.5], "reward": [1], "title": ["t"], "b": [3]})
    said = refusal(path)
    assert said == "FILE has no list column x; name the feature columns, for example --columns a,b"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_table_without_any_features_says_so(tmp_path, suffix):
    path = write(tmp_path / f"events{suffix}", {"user": ["u"], "reward": [1], "title": ["t"]})
    assert refusal(path) == "FILE has no list column x and no numeric column to name; add features to it"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_log_of_items_is_to_be_imported(tmp_path, suffix):
    path = write(tmp_path / f"raw{suffix}", {"visitor": ["v0"], "article": ["a7"], "clicked": [1], "at": [0]})
    said = refusal(path)
    assert said == (
        "FILE has no column user, as a log of items has; import it first: lcb import FILE --user COLUMN --item COLUMN "
        "--reward COLUMN --out log, then lcb learn log --out models"
    )
    path = write(tmp_path / f"clicks{suffix}", {"user": ["u"], "item": ["a7"], "reward": [1], "time": [3], "age": [4]})
    said = refusal(path)
    assert said == (
        "FILE has a column item and no list column x, as a log of items has; import it first: lcb import FILE "
        "--out log, then lcb learn log --out models (a table of features instead names them: --columns age)"
    )


@pytest.mark.parametrize("name", ["user", "reward"])
def test_user_and_reward_are_no_features(tmp_path, name):
    path = write(tmp_path / "events.csv", {"user": ["1"], "reward": [1], "a": [2]})
    said = refusal(path, columns=["a", name])
    assert said == f"columns has {name}, which is not a feature of FILE; leave it out"


def test_a_column_named_twice_is_refused(tmp_path):
    path = write(tmp_path / "events.csv", {"user": ["1"], "reward": [1], "a": [2]})
    assert refusal(path, columns=["a", "a"]) == "columns has a more than once in FILE; name each column once"


@pytest.mark.parametrize("suffix", LIST_SUFFIXES)
def test_a_named_column_of_lists_is_refused(tmp_path, suffix):
    path = write(tmp_path / f"events{suffix}", {"user": [1], "reward": [1], "x": [[2.0]]})
    said = refusal(path, columns=["x"])
    assert said == "FILE column x holds lists; leave it out of columns, x is found by itself"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_column_user_x_without_lists_is_not_passed_over(tmp_path, suffix):
    path = write(tmp_path / f"events{suffix}", {"user": ["u"], "reward": [1], "a": [2.0], "user_x": [3.0]})
    said = refusal(path, columns=["a"])
    assert said == "FILE column user_x holds no lists; rename it, or use --user-columns user_x"


def test_a_header_that_names_a_column_twice_is_refused(tmp_path):
    path = text_file(tmp_path / "events.csv", "user,reward,a,a\n1,1,1,1\n")
    assert refusal(path, columns=["a"]) == "FILE has more than one column a; rename all but one"


@pytest.mark.parametrize(
    "column, kind, hint",
    [
        (pa.array([1.0, 2.0]), "double", " (one missing id turns integers into floats)"),
        (pa.array([True, False]), "bool", ""),
        (pa.array([b"a", b"b"]), "binary", ""),
        (pa.array([[1], [2]]), "list<element: int64>", ""),
    ],
)
def test_a_parquet_user_column_that_is_neither_integers_nor_strings_is_refused(tmp_path, column, kind, hint):
    path = parquet(tmp_path / "events.parquet", user=column, reward=[1, 0], a=[1, 2])
    said = refusal(path, columns=["a"])
    assert said == f"FILE column user holds {kind}{hint}; integers or strings are wanted, convert it"


@pytest.mark.parametrize("name", ["reward", "a", "x", "user_x"])
def test_a_parquet_column_of_strings_is_no_number(tmp_path, name):
    columns = {"user": [1], "reward": [1.0], "a": [1.0], "x": [[1.0]], "user_x": [[1.0]]}
    columns[name] = [["abc"]] if isinstance(columns[name][0], list) else ["abc"]
    path = parquet(tmp_path / "events.parquet", **columns)
    kind = "list<element: string>" if "x" in name else "string"
    said = refusal(path, columns=["a"] if name == "a" else [])
    assert said == f"FILE column {name} holds {kind}; numbers are wanted, convert it"


# Rows that are not events


def bad_rows():
    """A row that is bad as the second of three: the columns, and what is said of them."""
    missing = "is missing; every row needs one, correct or drop the row"
    finite = "must be a finite number, correct or drop the row"
    yield "no user", {"user": None}, f"user {missing}"
    yield "empty user", {"user": ""}, "user is empty; every row needs one, correct or drop the row"
    yield "no reward", {"reward": None}, f"reward {missing}"
    yield "nan reward", {"reward": np.nan}, f"reward is nan; every reward {finite}"
    yield "endless reward", {"reward": np.inf}, f"reward is inf; every reward {finite}"
    yield "no list", {"x": None}, f"x {missing}"
    yield "no number in list", {"x": [1.0, None]}, f"feature x1 {missing}"
    yield "nan in list", {"x": [np.nan, 1.0]}, f"feature x0 is nan; every feature {finite}"
    yield "short list", {"x": [1.0]}, "x has 1 numbers, the rows before 2; correct or drop the row"
    yield "long list", {"x": [1.0, 2.0, 3.0]}, "x has 3 numbers, the rows before 2; correct or drop the row"
    yield "empty list", {"x": []}, "x has 0 numbers, the rows before 2; correct or drop the row"
    yield "short user list", {"user_x": []}, "user_x has 0 numbers, the rows before 1; correct or drop the row"
    yield "endless user list", {"user_x": [-np.inf]}, f"feature user_x0 is -inf; every feature {finite}"


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("bad, said", [pytest.param(bad, said, id=name) for name, bad, said in bad_rows()])
def test_a_bad_row_is_named_with_its_column(tmp_path, suffix, bad, said):
    good = {"user": "u", "reward": 1.0, "x": [1.0, 2.0], "user_x": [3.0]}
    rows = [good, good | bad, good]
    path = write(tmp_path / f"events{suffix}", {name: [row[name] for row in rows] for name in good})
    assert refusal(path, EventError) == f"FILE row 2: {said}"


def test_a_null_in_a_named_parquet_column_is_refused(tmp_path):
    path = parquet(tmp_path / "events.parquet", user=[1, 2], reward=[1, 0], a=[1.0, None])
    said = refusal(path, EventError, columns=["a"])
    assert said == "FILE row 2: feature a is missing; every row needs one, correct or drop the row"


def test_lists_of_one_fixed_size_may_still_lack_a_number(tmp_path):
    x = pa.array([[1.0, 2.0], [None, 1.0]], pa.list_(pa.float64(), 2))
    path = parquet(tmp_path / "events.parquet", user=[1, 2], reward=[1, 0], x=x)
    said = refusal(path, EventError)
    assert said == "FILE row 2: feature x0 is missing; every row needs one, correct or drop the row"


def test_an_empty_first_list_is_refused(tmp_path):
    path = write(tmp_path / "events.jsonl", {"user": [1], "reward": [1], "x": [[]]})
    said = refusal(path, EventError)
    assert said == "FILE row 1: x is an empty list; give every row the same features, at least one"


@pytest.mark.parametrize("suffix", COLUMN_SUFFIXES)
def test_a_reward_outside_the_declared_range_is_refused(tmp_path, suffix):
    path = write(tmp_path / f"events{suffix}", {"user": ["u", "u"], "reward": [1.0, 7.0], "a": [2.0, 2.0]})
    said = refusal(path, EventError, columns=["a"], reward_range=(0, 1))
    assert said == (
        "FILE row 2: reward 7 is outside the declared range [0, 1]; mend the row, or declare the range of your rewards"
    )
    assert read_stats(path, columns=["a"], reward_range=(0, 7)).n_events == 2


@pytest.mark.parametrize(
    "cells, said",
    [
        ("u,abc,1", "reward is 'abc'; a number is wanted, correct or drop the row"),
        ("u,1,abc", "feature a is 'abc'; a number is wanted, correct or drop the row"),
        ("u,1,1_0", "feature a is '1_0'; a number is wanted, correct or drop the row"),
        ("u,1,0x1", "feature a is '0x1'; a number is wanted, correct or drop the row"),
        ("u,, 1", "reward is empty; a number is wanted, correct or drop the row"),
        ("u,1, ", "feature a is empty; a number is wanted, correct or drop the row"),
        (",1,1", "user is empty; every row needs one, correct or drop the row"),
        ("u,1", "2 cells, the header has 3; correct or drop the row"),
        ("u,1,1,1", "4 cells, the header has 3; correct or drop the row"),
        ("u,1,inf", "feature a is inf; every feature must be a finite number, correct or drop the row"),
        ("u,1,1e999", "feature a is inf; every feature must be a finite number, correct or drop the row"),
        (b"u,1,\xff", "feature a is '\ufffd'; a number is wanted, correct or drop the row"),
        (b"\xff,1,1", "user is not UTF-8 text; save the file as UTF-8"),
    ],
)
def test_a_bad_cell_of_a_csv_is_named_with_its_row_and_column(tmp_path, cells, said):
    cells = cells if isinstance(cells, bytes) else cells.encode()
    path = text_file(tmp_path / "events.csv", b"user,reward,a\nu,1,1\n\n" + cells + b"\nu,1,1\n")
    assert refusal(path, EventError, columns=["a"]) == f"FILE row 2: {said}"


@pytest.mark.parametrize("rest", ["", '\nu,1,1,x\n"u",1,1,"y"\n', "\nu,1,1,x" * 10_000])
def test_a_quote_that_is_not_closed_does_not_swallow_rows(tmp_path, rest):
    path = text_file(tmp_path / "events.csv", 'user,reward,a,title\nu,1,1,x\nu,1,1,"not closed' + rest)
    said = refusal(path, EventError, columns=["a"])
    assert said.startswith("FILE row 2: a quote is not closed, or is inside a text (")


def test_a_header_that_is_not_utf_8_is_refused(tmp_path):
    path = text_file(tmp_path / "events.csv", "user,reward,äge\nu,1,1\n".encode("latin-1"))
    said = "FILE has a header that is not UTF-8 text; save the file as UTF-8"
    assert refusal(path, columns=["äge"]) == said
    assert refusal(text_file(path, "user,reward,a\nu,1,1\n".encode("utf-16")), columns=["a"]) == said


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"user": 1, "rew', "is not one whole JSON object ("),
        ('{"user": 1, "reward": 1, "x": [1]} {"user": 1', "is not one whole JSON object ("),
        (
            '{"user": 1, "reward": 1, "x": [1]}{"user": 1, "reward": 1, "x": [1]}',
            "is not one whole JSON object (",
        ),
        ('{"user": 1, "reward": 1, "reward": 0, "x": [1]}', "is not one whole JSON object (it has the same name"),
        ('{"user": 1,\n"reward": 1, "x": [1]}', "is not one whole JSON object ("),
        ("garbage", "is not one whole JSON object ("),
        ("[" * 100_000, "is not one whole JSON object ("),
        ("[1, 2]", "is [1, 2], not a JSON object; write one object per line, correct or drop the row"),
        (b'{"user": 1, "reward": 1, "x": [1], "y": 1, \xff', "is not UTF-8 text; save the file as UTF-8"),
        (
            '{"user": "1", "reward": 1, "x": [1]}',
            "user is '1'; the rows before have integers, correct or drop the row",
        ),
        (
            '{"user": 1.0, "reward": 1, "x": [1]}',
            "user is 1.0; the rows before have integers, correct or drop the row",
        ),
        (
            '{"user": true, "reward": 1, "x": [1]}',
            "user is True; the rows before have integers, correct or drop the row",
        ),
        (
            '{"user": 9223372036854775808, "reward": 1, "x": [1]}',
            "user is 9223372036854775808; integers have 64 bits",
        ),
        ('{"user": 1, "reward": "1", "x": [1]}', "reward is '1'; a number is wanted, correct or drop the row"),
        ('{"user": 1, "reward": [1], "x": [1]}', "reward is [1]; a number is wanted, correct or drop the row"),
        ('{"user": 1, "reward": 1e999, "x": [1]}', "reward is inf; every reward must be a finite number"),
        (
            '{"user": 1, "reward": 1' + "0" * 400 + ', "x": [1]}',
            "reward is inf; every reward must be a finite number",
        ),
        ('{"user": 1, "reward": 1, "x": ["abc"]}', "x is ['abc']; a number is wanted, correct or drop the row"),
        ('{"user": 1, "reward": 1, "x": 1}', "x is 1; a list of numbers is wanted, correct or drop the row"),
        (
            '{"user": 1, "reward": 1, "x": {"a": 1}}',
            "x is {'a': 1}; a list of numbers is wanted, correct or drop the row",
        ),
        ('{"user": 1, "reward": 1}', "x is missing; every row needs one, correct or drop the row"),
    ],
)
def test_a_bad_json_line_is_named_with_its_row(tmp_path, line, said):
    line = line if isinstance(line, bytes) else line.encode()
    good = b'{"user": 1, "reward": 1, "x": [1]}'
    path = text_file(tmp_path / "events.jsonl", b"\n".join([good, b"", line, good]))
    assert refusal(path, EventError).startswith(f"FILE row 2: {said}")


@pytest.mark.parametrize(
    "line, said",
    [
        (
            '{"user": 2, "reward": 1, "x": [1]}',
            "user is 2; the rows before have text, correct or drop the row",
        ),
        (
            '{"user": "\\ud83d", "reward": 1, "x": [1]}',
            "user is '\\ud83d'; Unicode text without lone surrogates",
        ),
        (b'{"user": "\xff", "reward": 1, "x": [1]}', "user is not UTF-8 text; save the file as UTF-8"),
    ],
)
def test_a_json_user_that_is_no_text_is_named_with_its_row(tmp_path, line, said):
    line = line if isinstance(line, bytes) else line.encode()
    path = text_file(tmp_path / "events.jsonl", b'{"user": "1", "reward": 1, "x": [1]}\n' + line)
    assert refusal(path, EventError).startswith(f"FILE row 2: {said}")


def test_user_features_are_in_every_json_line_or_in_none(tmp_path):
    without, given = b'{"user": 1, "reward": 1, "x": [1]}\n', b'{"user": 1, "reward": 1, "x": [1], "user_x": [1]}\n'
    path = text_file(tmp_path / "events.jsonl", without + given)
    assert refusal(path, EventError).startswith("FILE row 1: user_x is missing; every row needs one")
    path = text_file(tmp_path / "events.jsonl", without * 1000 + given)
    assert refusal(path, EventError).startswith("FILE row 1001: user_x is [1]; the rows before have none, give it in")


def test_a_json_table_whose_first_user_is_null_is_refused(tmp_path):
    path = text_file(
        tmp_path / "events.jsonl", '{"user": null, "reward": 1, "x": [1]}\n{"user": 1, "reward": 1, "x": [1]}'
    )
    assert refusal(path, EventError) == "FILE row 1: user is missing; every row needs one, correct or drop the row"


@pytest.mark.parametrize("user", ["1.5", "true", "[1]"])
def test_a_first_json_user_that_is_neither_integer_nor_string_is_refused(tmp_path, user):
    path = text_file(tmp_path / "events.jsonl", f'{{"user": {user}, "reward": 1, "x": [1]}}\n')
    said = refusal(path, EventError)
    assert said.startswith("FILE row 1: user is ")
    assert said.endswith("; an integer or a string is wanted, correct or drop the row")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    suffix=st.sampled_from([".csv", ".jsonl"]),
    start=st.floats(0, 1),
    n_lost=st.integers(0, 30),
    added=st.lists(st.sampled_from(b'\n\r",{}[]: 1-t\xff\x00'), max_size=4),
)
def test_a_damaged_text_file_is_refused_or_read_without_losing_rows(tmp_path, suffix, start, n_lost, added):
    n = 20
    columns = {"user": ["u", "v"] * (n // 2), "reward": [1, 0.5] * (n // 2), "age": [2, 3] * (n // 2)}
    path = write(tmp_path / f"events{suffix}", columns | {"title": ["a long title of thirty letters"] * n})
    data = path.read_bytes()
    cut = int(start * len(data))
    text_file(path, data[:cut] + bytes(added) + data[cut + n_lost :])
    n_read, message = 0, ""
    try:
        n_read = read_stats(path, columns=["age"]).n_events
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert message or n_read >= n - 1


def test_one_endless_json_line_is_refused_without_reading_it_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LONGEST_LINE", 1000)
    small_batches(monkeypatch)
    path = text_file(tmp_path / "events.jsonl", "[" + '{"user": 1, "reward": 1, "x": [1]}, ' * 1000 + "]")
    assert refusal(path, EventError).startswith("FILE row 1: is not one whole JSON object (")


def test_a_path_may_be_a_string_and_is_named_as_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("events.csv"), {"user": ["u"], "reward": ["abc"], "a": [1]})
    with pytest.raises(EventError, match=r"^events\.csv row 1: reward is 'abc'"):
        read_stats("events.csv", columns=["a"])


def test_parquet_that_was_read_is_not_held(tmp_path):
    rng = np.random.default_rng(0)
    n = 1_500_000
    path = parquet(tmp_path / "events.parquet", user=rng.integers(0, 2**60, n), reward=rng.random(n), age=rng.random(n))
    before, most = pa.total_allocated_bytes(), 0
    for batch, _ in open_table(path).batches({"user": "id", "reward": "number", "age": "number"}):
        most = max(most, pa.total_allocated_bytes() - before)
        del batch
    assert most < path.stat().st_size / 2


# Parts


def write_parts(folder, user, x, reward, n_parts=5):
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(user)), n_parts)):
        write(folder / f"part-{i:02}.parquet", {"user": np.array(user)[rows], "reward": reward[rows], "x": x[rows]})
    return folder


@pytest.mark.parametrize("as_strings", [False, True])
@pytest.mark.parametrize("place", ["parts", "parts/*.parquet"])
def test_parts_give_the_bits_of_one_table(tmp_path, monkeypatch, as_strings, place):
    small_batches(monkeypatch)
    user, x, reward = events(500)
    user = [f"u{u}" for u in user] if as_strings else user.tolist()
    write_parts(tmp_path / "parts", user, x, reward)
    (tmp_path / "parts" / "_temporary.parquet").write_text("left out")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    whole = read_stats(write(tmp_path / "events.parquet", {"user": user, "reward": reward, "x": x}))
    stats = read_stats(tmp_path / place)
    assert stats.users == whole.users
    np.testing.assert_array_equal(stats.packed, whole.packed)


def test_a_bad_row_of_a_part_is_named_by_file_and_row(tmp_path):
    user, x, reward = events(100)
    reward[41] = np.nan
    parts = write_parts(tmp_path / "parts", user, x, reward)
    with pytest.raises(EventError, match=r"part-02\.parquet row 2: reward is nan"):
        read_stats(parts)
    sample = UserSample(1, int(hash_ids(pa.array(user[41:42]))[0]))
    with pytest.raises(EventError, match=r"part-02\.parquet row 2: reward is nan"):
        read_log(parts, sample=sample)


def test_parts_that_differ_are_refused(tmp_path):
    folder = tmp_path / "parts"
    write_parts(folder, *events(20), n_parts=1)
    write(folder / "part-99.parquet", {"user": [1], "reward": [1.0], "x": [[1.0]]})
    with pytest.raises(InputError, match=r"part-99\.parquet has the features x0, .*part-00\.parquet x0, x1, x2; give"):
        read_stats(folder)
    write(folder / "part-99.parquet", {"user": ["1"], "reward": [1.0], "x": [[1.0, 2.0, 3.0]]})
    with pytest.raises(InputError, match=r"part-99\.parquet column user holds text, .* integers; convert one"):
        read_stats(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="is a folder without tables"):
        read_stats(tmp_path / "none")
    with pytest.raises(InputError, match="no file matches"):
        read_stats(tmp_path / "none" / "*.parquet")


# A sample of the users


@pytest.mark.parametrize("as_strings", [False, True])
def test_a_sample_keeps_all_rows_of_exactly_so_many_users(tmp_path, monkeypatch, as_strings):
    small_batches(monkeypatch, rows=64)
    user, x, reward = events(3000, n_users=400)
    user = [f"u{u}" for u in user] if as_strings else user.tolist()
    path = write_parts(tmp_path / "parts", user, x, reward)
    sample = draw_users(path, 50)
    stats = read_log(path, sample=sample).stats
    whole = read_stats(path)
    assert stats.n_users == sample.n_users == 50
    assert 250 < sample.n_in_all < 640  # 400, by the hash: 50 / 400 of the range, a relative error of 14 %, 4.5 of them
    places = [whole.users.index(name) for name in stats.users]
    np.testing.assert_array_equal(stats.packed, whole.take(places).packed)
    again = draw_users(write(tmp_path / "one.parquet", {"user": user, "reward": reward, "x": x}), 50)
    assert again == sample


def test_a_sample_of_more_users_than_there_are_keeps_all(tmp_path):
    user, x, reward = events(100)
    path = write_parts(tmp_path / "parts", user, x, reward)
    sample = draw_users(path, 7)
    assert (sample.n_users, sample.n_in_all) == (7, 7)
    assert sample.describe() == "all 7 users, which are no more than were asked for"
    assert read_log(path, sample=sample).n_users == 7


def test_the_hash_is_even_and_stays_as_it_is():
    n = 100_000
    for column in (pa.array(range(n)), pa.array([f"user-{i}" for i in range(n)])):
        counts = np.bincount((hash_ids(column) >> np.uint64(56)).astype(int), minlength=256)
        assert ((counts - n / 256) ** 2 / (n / 256)).sum() < 255 + 4.5 * np.sqrt(2 * 255)
    assert [hex(h) for h in hash_ids(pa.array([1])).tolist()] == ["0x910a2dec89025cc1"]  # SplitMix64 of 1
    assert [hex(h) for h in hash_ids(pa.array(["ann"])).tolist()] == ["0xd8457affc1dacdc7"]
    encoded = pa.array(["ann", "bob", "ann"]).dictionary_encode()
    np.testing.assert_array_equal(hash_ids(encoded), hash_ids(pa.array(["ann", "bob", "ann"])))
