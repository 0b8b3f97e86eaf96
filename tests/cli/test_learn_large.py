"""lcb learn on parts, on a sample of the users, and on statistics that another program made."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from lcb.storage.models.folder import load_models

DOCS = Path(__file__).parents[2] / "docs" / "large.md"
WEIGHTS = np.array([[1.0, 0.0], [0.0, 1.0]])


def learn(lcb, *arguments):
    found = lcb("learn", *arguments)
    assert found.code == 0, found.err
    return found.out


def refusal(lcb, *arguments):
    found = lcb("learn", *arguments)
    assert found.code == 2
    return found.err


def write_events(path, n_users=60, n_parts=1):
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(n_users), 10)
    x = rng.standard_normal((len(user), 2))
    reward = (WEIGHTS[user % 2] * x).sum(axis=1) + 0.1 * rng.standard_normal(len(user))
    order = rng.permutation(len(user))
    for i, rows in enumerate(np.array_split(order, n_parts)):
        table = {"user": [f"u{u}" for u in user[rows]], "reward": reward[rows]}
        table |= {"sport": x[rows, 0], "arts": x[rows, 1]}
        pq.write_table(pa.table(table), path if n_parts == 1 else path / f"part-{i}.parquet")
    return path


def test_parts_and_a_pattern_are_learned_as_one_table(lcb, tmp_path):
    (tmp_path / "parts").mkdir()
    write_events(tmp_path / "parts", n_parts=3)
    write_events(tmp_path / "one.parquet")
    found = []
    for events in ("one.parquet", "parts", "parts/*.parquet"):
        learn(
            lcb,
            tmp_path / events,
            "--columns",
            "sport,arts",
            "--classes",
            2,
            "--learner",
            "em",
            "--out",
            tmp_path / "m",
        )
        found.append(load_models(tmp_path / "m").beta)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_folder_of_csv_parts_is_learned_and_one_of_two_kinds_refused(lcb, tmp_path):
    (tmp_path / "parts").mkdir()
    write_events(tmp_path / "parts", n_parts=3)
    for part in sorted((tmp_path / "parts").iterdir())[1:]:
        csv.write_csv(pq.read_table(part), part.with_suffix(".csv"))
        part.unlink()
    options = ("--columns", "sport,arts", "--classes", 2, "--learner", "em", "--out", "models")
    said = refusal(lcb, "parts", *options)
    assert "parts has tables of two kinds, such as parts/part-0.parquet and parts/part-1.csv" in said
    assert "2 classes from 600 events of 60 users" in learn(lcb, "parts/**/*", *options)
    (tmp_path / "parts" / "part-0.parquet").unlink()
    assert "2 classes from 400 events of 60 users" in learn(lcb, "parts", *options)


def test_folders_without_tables_say_what_to_give(lcb, tmp_path):
    (tmp_path / "none").mkdir()
    assert "none is an empty folder; give an imported log, or a table" in refusal(lcb, "none", "--out", "models")
    (tmp_path / "ml").mkdir()
    for name in ("ratings.csv", "movies.csv"):
        (tmp_path / "ml" / name).write_text("userId,movieId,rating,timestamp\n1,2,3,4\n")
    for command in ("learn", "compare-learners"):
        found = lcb(command, "ml", *(("--out", "models") if command == "learn" else ()))
        assert found.code == 2
        assert "ml is MovieLens; import it first: lcb import ml --out log" in found.err


def test_a_sample_of_the_users_is_said_and_recorded(lcb, tmp_path):
    events = write_events(tmp_path / "events.parquet")
    options = ("--columns", "sport,arts", "--out", tmp_path / "models")
    said = learn(lcb, events, *options, "--users", 40)
    assert re.search(r"learned from a sample of 40 users, drawn by a hash of their names, of about \d+", said)
    assert re.search(r"2 classes from 400 events of 40 users", said)
    provenance = load_models(tmp_path / "models").provenance
    assert (provenance["users_kept"], provenance["users_drawn_by"]) == (40, "hash")
    assert "all 60 users" in learn(lcb, events, *options, "--users", 100)


def test_a_sample_of_an_imported_log(lcb, tmp_path):
    (tmp_path / "log").mkdir()
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(60), 10), np.tile([1, 2], 300)
    reward = (rng.random(600) < np.array([[0.9, 0.1], [0.1, 0.9]])[user % 2, item - 1]).astype(float)
    events = {"user": user, "order": np.tile(np.arange(10), 60), "item": item, "reward": reward}
    pq.write_table(pa.table(events), "log/events.parquet")
    pq.write_table(pa.table({"item": [1, 2], "categories": [[0], [1]]}), "log/items.parquet")
    Path("log/categories.json").write_text(json.dumps(["sport", "arts"]))
    said = learn(lcb, "log", "--users", 40, "--classes", 2, "--learner", "em", "--out", "models")
    assert "learned from a sample of 40 users" in said
    assert "2 classes from 400 events of 40 users" in said


@pytest.mark.parametrize("option", [(), ("--learner", "personal"), ("--users", 2), ("--on-disk", ".")], ids=str)
def test_users_of_a_dictionary_that_no_row_has_are_not_learned_from(lcb, tmp_path, option):
    rng = np.random.default_rng(0)
    names, of_row = [f"u{k}" for k in range(40)], np.repeat(np.arange(3, 23, dtype=np.int32), 10)
    x = rng.standard_normal(200)
    user = pa.DictionaryArray.from_arrays(of_row, names)
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"user": user, "reward": x + 0.1 * rng.standard_normal(200), "a": x}), path)
    chosen = () if not option else ("--classes", 1)
    found = lcb("learn", path, "--columns", "a", *option, *chosen, "--out", tmp_path / "models")
    assert found.code == 0, found.err
    n = 2 if "--users" in option else 20
    assert f"{10 * n} events of {n} users" in found.out


def test_the_query_of_the_docs_gives_the_models_of_the_events(lcb):
    write_events(Path("events.parquet"))
    duckdb.sql(re.search(r"```sql\n(.*?)```", DOCS.read_text(), re.S)[1])
    options = ("--columns", "sport,arts", "--learner", "em")
    learn(lcb, "events.parquet", *options, "--out", "of-events")
    said = json.loads(
        learn(lcb, "--statistics", "statistics.parquet", *options, "--out", "of-statistics", "--json", "-")
    )
    assert (said["classes"], said["users"], said["events"]) == (2, 60, 600)
    one, other = load_models(Path("of-events")), load_models(Path("of-statistics"))
    assert other.features == ("sport", "arts")
    np.testing.assert_allclose(other.beta, one.beta, rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.beta[np.argsort(other.beta[:, 1])], WEIGHTS, atol=0.05)


GOOD = {"user": "ann", "count": 3, "square_sum": 2.0, "moment": [1.0, 1.0], "gram": [2.0, 1.0, 1.0, 2.0]}


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"count": 0}, "row 2: count is no whole number above 0"),
        ({"count": 1.5}, "row 2: count is no whole number above 0"),
        ({"square_sum": -1.0}, "row 2: square_sum is below 0"),
        ({"moment": [1.0, float("nan")]}, "row 2: moment is not finite"),
        ({"moment": [9.0, 1.0]}, "row 2: moment is larger than gram and square_sum allow"),
        ({"moment": None}, "row 2: moment is missing"),
        ({"moment": [1.0]}, "row 2: moment has 1 numbers, the rows before 2"),
        ({"gram": [2.0, 1.0, 0.5, 2.0]}, "row 2: gram is not symmetric"),
        ({"gram": [2.0, 5.0, 5.0, 2.0]}, "row 2: gram has a sum of"),
        ({"gram": [-2.0, 0.0, 0.0, 2.0]}, "row 2: the diagonal of gram is below 0"),
        ({"count": 2}, "row 2: count is 2, but the other sums are those of at least 3 rows"),
        ({"square_sum": 0.6}, "row 2: square_sum is smaller than moment and gram allow"),
        ({"user": "bob"}, "row 2: user 'bob' is there twice"),
        ({"user": ""}, "row 2: user is empty"),
    ],
    ids=str,
)
def test_statistics_that_no_rows_can_have_are_refused(lcb, tmp_path, changed, said):
    pq.write_table(pa.Table.from_pylist([GOOD | {"user": "bob"}, GOOD | changed]), tmp_path / "s.parquet")
    assert said in refusal(lcb, "--statistics", tmp_path / "s.parquet", "--out", tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_statistics_and_events_are_not_mixed(lcb, tmp_path):
    out = ("--out", tmp_path / "models")
    assert "give either EVENTS or --statistics FILE; neither came" in refusal(lcb, *out)
    assert "both came" in refusal(lcb, "a.parquet", "--statistics", "b.parquet", *out)
    assert "--users is for events" in refusal(lcb, "--statistics", "b.parquet", "--users", 5, *out)
    for name in ("--user", "--item", "--reward"):
        assert f"{name} is for events" in refusal(lcb, "--statistics", "b.parquet", name, "column", *out)
    assert "learns from rows" in refusal(lcb, "--statistics", "b.parquet", "--learner", "spectral", *out)


def test_statistics_on_disk_give_the_same_models_and_leave_no_file(lcb, tmp_path):
    events = write_events(tmp_path / "events.parquet")
    (tmp_path / "scratch").mkdir()
    options = ("--columns", "sport,arts", "--learner", "em")
    learn(lcb, events, *options, "--out", "of-memory")
    learn(lcb, events, *options, "--on-disk", "scratch", "--out", "of-disk")
    np.testing.assert_array_equal(load_models(Path("of-disk")).beta, load_models(Path("of-memory")).beta)
    said = learn(lcb, events, "--columns", "sport,arts", "--on-disk", "scratch", "--out", "chosen")
    assert "chosen: 2 point classes" in said
    assert "2 classes from 600 events of 60 users" in said
    assert list((tmp_path / "scratch").iterdir()) == []
    assert "--on-disk is for events" in refusal(lcb, "--statistics", "s", "--on-disk", "scratch", "--out", "models")
