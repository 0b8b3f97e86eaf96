"""`lcb import`: what it prints, what it refuses, and that the page of docs says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lcb.storage.logs.log import open_log

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text()
NAMES = ("--user", "visitor", "--item", "article", "--reward", "clicked", "--time", "at", "--item-categories", "topics")


@pytest.fixture
def clicks(tmp_path):
    """The log of the page."""
    path = tmp_path / "clicks.csv"
    path.write_text(re.search(r"```text\n(visitor,.*?)```", PAGE, re.DOTALL)[1])
    return path


def timeless(text):
    return re.sub(r"\d+\.\d s\b", "0.1 s", text)


def test_the_worked_example_of_the_page_prints_what_the_page_says(lcb, clicks):
    transcript = re.search(r"```text\n(\$ lcb import.*?)```", PAGE, re.DOTALL)[1]
    for step in transcript.split("$ lcb ")[1:]:
        words, _, said = step.partition("\n")
        outcome = lcb(*words.split())
        assert timeless(outcome.out + outcome.err).strip() == said.strip()


def test_a_log_is_imported_and_counted_in_json(lcb, clicks, tmp_path):
    outcome = lcb("import", clicks, *NAMES, "--on-error", "skip", "--out", "events.parquet", "--json", "-")
    found = json.loads(outcome.out)
    assert outcome.code == 0
    assert {name: found[name] for name in ("rows", "events", "users", "items", "categories", "out_of_order")} == {
        "rows": 6, "events": 4, "users": 2, "items": 3, "categories": 3, "out_of_order": 1,
    }  # fmt: skip
    assert found["bad_rows"] == {"clicked is no number": 1}
    assert found["listed"] == [f"{clicks} row 3: clicked is 'no idea'; a number is wanted"]
    assert found["duplicates"] == {"rows": 1, "done": "drop"}
    assert found["columns"] == ["user", "order", "item", "reward"]
    assert found["events_per_user"] == {"median": 2.0, "most": 2, "users_with_5": 0, "users_with_20": 0}
    assert found["files"] == ["events.parquet", "items.parquet", "categories.json"]
    assert open_log(tmp_path / "events.parquet").n_events == 4


def test_a_refused_log_leaves_no_file_and_exit_code_2(lcb, clicks, tmp_path):
    outcome = lcb("import", clicks, *NAMES, "--out", "log", "--json", "found.json")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.splitlines()[0] == f"{clicks} row 3: clicked is 'no idea'; a number is wanted"
    assert outcome.err.splitlines()[-1].startswith("lcb: clicks.csv has 1 bad row of 6")
    assert [path.name for path in tmp_path.iterdir()] == ["clicks.csv"]


def test_a_known_folder_is_told_with_its_licence(lcb, tmp_path):
    folder = tmp_path / "ml-latest-small"
    folder.mkdir()
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,1,4.0,964982703\n")
    (folder / "movies.csv").write_text("movieId,title,genres\n1,Toy Story (1995),Adventure|Animation\n")
    outcome = lcb("import", folder, "--like", "4", "--out", "log")
    assert outcome.code == 0
    assert "holds MovieLens: an event is a rating of 0.5 to 5 stars; categories are the genres" in outcome.out
    assert "licence: GroupLens' own" in outcome.out
    assert "1 event of 1 user on 1 item in 2 categories, from 2 rows" in outcome.out
    assert lcb("import", folder, "--dataset", "movielens", "--out", "log").code == 0


def test_a_table_of_items_and_kept_duplicates(lcb, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"user": 1, "item": 7, "stars": 5, "x": [1, 2]}\n' * 2)
    (tmp_path / "films.csv").write_text("id,genre\n7,War;Drama\n8,Comedy\n")
    outcome = lcb(
        "import", "log.jsonl", "--rating", "stars", "--like", 4, "--features", "x", "--items", "films.csv",
        "--item-id", "id", "--item-categories", "genre", "--separator", ";", "--out", "log",
    )  # fmt: skip
    assert "duplicates: 1 row, kept; drop them with --duplicates drop" in outcome.out
    assert "note: 1 of 3 categories have no event: Comedy" in outcome.out
    log = open_log(tmp_path / "log")
    assert (log.features, log.reward.tolist()) == (("x0", "x1"), [1.0, 1.0])


def test_the_sets_are_listed_with_places_and_licences(lcb):
    outcome = lcb("import", "--list")
    assert outcome.code == 0
    for words in (
        "https://grouplens.org/datasets/movielens/",
        "https://msnews.github.io/",
        "CC BY-SA 4.0",
        "research.zozo.com",
    ):
        assert words in outcome.out
    assert "lcb downloads nothing" in outcome.out
    listed = json.loads(lcb("import", "--list", "--json", "-").out)
    assert [made["name"] for made in listed] == ["movielens", "mind", "kuairand", "open-bandit", "goodbooks", "folder"]
    for made in listed:
        assert f"| `{made['name']}` |" in PAGE


REFUSED = {
    "nothing": ([], "SOURCE or --out is missing"),
    "no place": (["clicks.csv"], "SOURCE or --out is missing"),
    "two orders": (
        ["clicks.csv", "--time", "at", "--order", "at", "--out", "log"],
        "--time and --order were both given",
    ),
    "no file": (["gone.csv", "--out", "log"], "gone.csv does not exist; give a file or a folder"),
    "an unknown set": (
        ["clicks.csv", "--dataset", "netflix", "--out", "log"],
        "--dataset netflix is not known; give one of movielens",
    ),
    "a set that is not there": (
        [".", "--dataset", "mind", "--out", "log"],
        "is not MIND, which has behaviors.tsv and news.tsv",
    ),
    "a folder of no set": (
        [".", "--out", "log"],
        "is not the folder of a known data set; give a file, or see: lcb import --list",
    ),
    "a part of no set": (["clicks.csv", "--part", "all", "--out", "log"], "--part all is for a known data set"),
    "a column of a set": (["set", "--user", "who", "--out", "log"], "--user is not needed for a log as a folder"),
    "items of a set": (["set", "--items", "clicks.csv", "--out", "log"], "--items is not needed"),
    "features of a set": (["set", "--features", "a", "--out", "log"], "--features is not needed"),
    "a missing column": (
        ["clicks.csv", "--user", "visitor", "--item", "what", "--out", "log"],
        "has no column what; it has visitor, article",
    ),
    "json over the source": (
        ["clicks.csv", *NAMES, "--json", "clicks.csv", "--out", "log"],
        "--json clicks.csv is also clicks.csv",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_is_one_line(lcb, clicks, tmp_path, what):
    words, said = REFUSED[what]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "events.parquet").write_bytes(b"")
    outcome = lcb("import", *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "log").exists()


def test_help_shows_an_example(lcb):
    outcome = lcb("import", "--help")
    assert "Example:" in outcome.out
    assert "lcb import clicks.csv" in outcome.out
