"""A table that is a folder of parts: every table of the folder is read, or the folder is refused."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.errors import InputError
from lcb.storage.logs.files import find_table
from lcb.storage.tables.parts import has_parts, list_parts
from lcb.storage.tables.statistics import read_stats

ROWS = [("ann", 1.0, 0.5), ("bob", 0.0, 0.25), ("ann", 1.0, 0.75), ("eve", 0.5, 1.0)]


def write_part(folder, name, rows):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    user, reward, x = map(list, zip(*rows, strict=True))
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"user": user, "reward": reward, "a": x}), path)
    elif ".jsonl" in name:
        lines = [f'{{"user": "{u}", "reward": {r}, "a": {v}}}\n' for u, r, v in rows]
        path.write_text("".join(lines))
    else:
        mark = "\t" if ".tsv" in name else ","
        text = "".join(mark.join(map(str, row)) + "\n" for row in [("user", "reward", "a"), *rows])
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


@pytest.mark.parametrize("suffixes", [(".parquet",) * 2, (".csv", ".csv.gz"), (".tsv",) * 2, (".jsonl",) * 2])
def test_parts_of_one_kind_are_read_as_one_table(tmp_path, suffixes):
    write_part(tmp_path, f"events/p0{suffixes[0]}", ROWS[:2])
    write_part(tmp_path, f"events/day=2/p1{suffixes[1]}", ROWS[2:])
    for left_out in ("_SUCCESS", ".p0.csv.crc", "_temporary/p9.csv", "README.txt", "p2.parquet.tmp"):
        path = tmp_path / "events" / left_out
        path.parent.mkdir(exist_ok=True)
        path.write_text("left out")
    folder = tmp_path / "events"
    assert has_parts(folder)
    assert find_table(folder) == folder
    stats = read_stats(folder, columns=["a"])
    counts = dict(zip(stats.users, stats.count.tolist(), strict=True))
    assert counts == {"ann": 2.0, "bob": 1.0, "eve": 1.0}
    assert stats.square_sum.sum() == 2.25


@pytest.mark.parametrize("other", ["p3.csv", "p3.tsv", "p3.jsonl.gz", "day=3/p3.csv"])
def test_a_folder_of_two_kinds_is_refused_with_both_names_and_the_patterns_that_read_it(tmp_path, other):
    for i in range(3):
        write_part(tmp_path, f"p{i}.parquet", ROWS[:2])
    write_part(tmp_path, other, ROWS[2:])
    with pytest.raises(InputError) as caught:
        list_parts(tmp_path)
    said, first = str(caught.value), min(tmp_path / "p0.parquet", tmp_path / other)
    second = max(tmp_path / "p0.parquet", tmp_path / other)
    assert f"{tmp_path} has tables of two kinds, such as {first} and {second}; " in said
    assert f"'{tmp_path}/**/*' all files" in said
    if other == "p3.csv":
        assert read_stats(f"{tmp_path}/**/*.parquet", columns=["a"]).count.tolist() == [3.0, 3.0]
        assert read_stats(f"{tmp_path}/**/*", columns=["a"]).count.tolist() == [4.0, 3.0, 1.0]


def test_a_folder_with_the_name_of_a_table_is_no_part(tmp_path):
    write_part(tmp_path, "day1.parquet/p0.parquet", ROWS)
    assert list_parts(tmp_path) == [str(tmp_path / "day1.parquet" / "p0.parquet")]
