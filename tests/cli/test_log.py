"""`lcb log` on the store of a service."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from compatibility.facts import DATA
from lcb.demo.readers import CATEGORIES
from lcb.serve import events
from lcb.serve.audit import export as export_module
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage import load_feature_map, load_models
from lcb.storage.store.base import NewRow
from lcb.storage.store.open_store import open_store
from lcb.storage.store.sqlite.store import SQLite
from support.inside import Inside, fold_log, sqlite
from support.sessions import run_session

SOME = CATEGORIES[:6]


@pytest.fixture
def store(tmp_path):
    """A session with something of everything."""
    with run_session(tmp_path / "lcb.db"):
        pass
    return tmp_path / "lcb.db"


@pytest.fixture
def news(tmp_path):
    """Readers of two kinds and 12 items of known categories, shown uniformly; half of the users also lately."""
    given = Settings(recommenders=(RecommenderSpec("any", "uniform", uniform=0.0),), categories=SOME, pages=False)
    rng = np.random.default_rng(0)
    beta = np.array([[0.9] * 3 + [0.1] * 3, [0.1] * 3 + [0.9] * 3])
    path = tmp_path / "news.db"
    with Inside(sqlite(path), given) as inside:
        inside.items(*({"id": f"n{j}", "categories": [SOME[j % 6]], "title": f"No. {j}"} for j in range(12)))
        for t in range(25):
            answers = [(u, inside.begin_decide(f"reader{u}")) for u in range(60)]
            inside.write()
            rewards = []
            for u, asked in answers:
                answer = json.loads(asked.result())
                click = rng.random() < beta[u % 2, int(answer["arm"][1:]) % 6]
                if (u, t) != (0, 24):
                    rewards.append(inside.begin_reward(answer["decision_id"], float(click)))
            inside.write()
            assert all(one.result() for one in rewards)
    return path


def test_a_good_log_verifies(lcb, store):
    found = lcb("log", "verify", store)
    assert found.code == 0, found
    assert "recomputed" in found.out
    assert "are erased" in found.out
    assert found.out.endswith("no differences\n")


def test_a_changed_log_is_told_and_the_exit_code_is_1(lcb, store):
    with sqlite3.connect(store) as connection:
        connection.execute(
            "update event set model = 7 where seq = (select max(seq) from event where kind = 'decision')"
        )
    connection.close()
    found = lcb("log", "verify", store, "--json", "-")
    assert found.code == 1
    told = json.loads(found.out)
    assert told["n_differences"] >= 1
    assert "is not what was written at this place" in told["differences"][0]["what"]
    assert told["differences"][1]["what"] == "recommender and model"
    found = lcb("log", "verify", store)
    assert "recommender and model: stored" in found.out
    assert f"the first wrong event is {told['first']}" in found.out


def test_a_part_of_a_log_is_verified_against_the_head_before_it(lcb, store):
    head = json.loads(lcb("log", "head", store, "--json", "-").out)
    with sqlite3.connect(store) as connection:
        (link,) = connection.execute("select link from event where seq = 12").fetchone()
        connection.execute("delete from event where seq <= 12")
    connection.close()
    assert "give the head before it (lcb log verify --after)" in lcb("log", "verify", store).out
    found = lcb("log", "verify", store, "--after", f"12:{link.hex()}", "--head", f"{head['seq']}:{head['link']}")
    assert found.code == 0, found
    assert f"{head['seq'] - 12:,} events after 12: order and chain checked" in found.out
    assert found.out.endswith("no differences\n")
    wrong = lcb("log", "verify", store, "--after", f"12:{bytes(32).hex()}")
    assert wrong.code == 1
    assert "the first wrong event is 13" in wrong.out
    assert lcb("log", "verify", store, "--after", f"11:{link.hex()}").code == 1
    assert "is not SEQ:LINK" in lcb("log", "verify", store, "--after", "12").err
    assert "leave out --user" in lcb("log", "verify", store, "--after", f"12:{link.hex()}", "--user", "ann").err


def test_the_head_is_printed_and_a_log_that_lost_its_end_does_not_have_it(lcb, store):
    head = lcb("log", "head", store).out.strip()
    n = int(head.split(":")[0])
    assert json.loads(lcb("log", "head", store, "--json", "-").out) == {"seq": n, "link": head.split(":")[1]}
    Path("heads.txt").write_text(f"\n{head}\n")
    for given in (head, "heads.txt"):
        assert lcb("log", "verify", store, "--head", given).code == 0
    with sqlite3.connect(store) as connection:
        connection.execute("delete from event where seq > ?", (n - 2,))
    connection.close()
    found = lcb("log", "verify", store, "--head", "heads.txt")
    assert found.code == 1
    assert f"event {n - 2}: the last event: stored {n - 2}, recomputed at least {n}" in found.out


def test_a_head_is_the_same_with_white_space_around_it_and_in_capitals(lcb, store):
    head = lcb("log", "head", store).out.strip()
    Path("heads.txt").write_text(f"  {head.upper()}\t\n")
    for given in (f" {head}", f"{head}\n", head.upper(), "heads.txt"):
        found = lcb("log", "verify", store, "--head", given)
        assert found.code == 0, found
    wrong = lcb("log", "verify", store, "--head", f" {head.upper()[:-1]}{'0' if head[-1] != '0' else '1'} ")
    assert (wrong.code, "the given head: stored" in wrong.out) == (1, True)
    with sqlite3.connect(store) as connection:
        (link,) = connection.execute("select link from event where seq = 12").fetchone()
    connection.close()
    assert lcb("log", "verify", store, "--after", f" 12:{link.hex().upper()} ").code == 0


@pytest.mark.parametrize("option", ["--head", "--after"])
@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_head_is_told_as_empty(lcb, store, option, given):
    found = lcb("log", "verify", store, option, given)
    assert found.code == 2
    more = ", or a file with one per line" if option == "--head" else ""
    assert found.err == f"lcb: {option} is empty; give SEQ:LINK, as lcb log head prints it{more}\n"


@pytest.mark.parametrize("given", ["nowhere.txt", "12", "12:ab", "bad.txt"])
def test_a_head_that_is_none_is_refused(lcb, store, given):
    Path("bad.txt").write_text("12:zz\n")
    found = lcb("log", "verify", store, "--head", given)
    assert found.code == 2
    assert "SEQ:LINK" in found.err


def test_a_log_of_an_earlier_version_has_no_head_and_verify_says_where_the_chain_begins(lcb, tmp_path):
    old = shutil.copy(DATA / "once.db", tmp_path)
    found = lcb("log", "head", old)
    assert (found.code, "no chain yet" in found.err) == (2, True)
    assert "no chain: all events were written by an earlier version of lcb" in lcb("log", "verify", old).out
    store = open_store(old)
    store.append([NewRow("activate/1", "activate", None, None, events.encode(events.ActivateBody(1.0, 1, "")))], 405)
    store.close()
    assert "the chain begins at event 406;" in lcb("log", "verify", old).out


def test_rebuild_forgets_the_snapshots_of_a_stopped_store_and_is_refused_on_a_running_one(lcb, store):
    running = open_store(str(store), serve=True)
    found = lcb("log", "rebuild", store)
    assert (found.code, "is being served by another process; stop that one" in found.err) == (2, True)
    n, head = len(list(running.all_snapshots())), running.head()
    assert n > 0
    running.close()
    found = lcb("log", "rebuild", store)
    assert (found.code, found.out) == (0, f"forgot {n} snapshots; the next start reads all {head} events\n")
    assert "0 snapshots" in lcb("log", "verify", store).out


def test_one_user_is_verified_alone(lcb, store):
    assert lcb("log", "verify", store, "--user", "u2").code == 0
    found = lcb("log", "verify", store, "--user", "nobody")
    assert (found.code, "no events of user 'nobody'" in found.err) == (2, True)


def test_a_store_that_is_not_there_is_refused(lcb):
    found = lcb("log", "verify", "nothing.db")
    assert (found.code, "does not exist" in found.err) == (2, True)
    assert not Path("nothing.db").exists()


def test_the_log_is_shown_in_words(lcb, store):
    found = lcb("log", "show", store, "--last", "1000").out
    for word in (
        "decision",
        "reward",
        "items",
        "model",
        "activate",
        "service",
        "recommender",
        "erase",
        "erased reward",
    ):
        assert f"  {word} " in found
    assert "own choice" in found
    alone = lcb("log", "show", store, "--user", "u2", "--last", "3").out.splitlines()
    assert len(alone) == 3
    assert all("u2: " in line for line in alone)
    assert json.loads(lcb("log", "show", store, "--last", "2", "--json", "-").out)[1]["seq"] > 2
    assert lcb("log", "show", store, "--user", "nobody").code == 2


def test_the_audit_says_who_did_what(lcb, store, tmp_path):
    new = tmp_path / "keys.db"
    assert "no entries" in lcb("log", "audit", _empty(tmp_path)).out
    lcb("keys", "create", "ops", "--scope", "admin", "--store", new)
    lcb("keys", "revoke", "ops", "--store", new)
    lcb("keys", "revoke", "ops", "--store", new)
    found = json.loads(lcb("log", "audit", new, "--json", "-").out)
    assert [one["action"] for one in found] == ["created key ops (admin)", "revoked key ops"]
    assert all(one["address"].startswith("command line of ") for one in found)
    shown = lcb("log", "audit", new, "--last", "1").out
    assert "revoked key ops" in shown
    assert "created key" not in shown
    assert "ops (admin)" in lcb("log", "show", new).out
    older = json.loads(lcb("log", "audit", store, "--json", "-").out)  # not recorded by whom
    assert {one["action"].split()[0] for one in older} == {"activated", "erased"}
    assert {(one["key"], one["address"]) for one in older} == {(None, None)}


def _empty(folder):
    SQLite(folder / "empty.db").close()
    return folder / "empty.db"


@pytest.mark.parametrize(("folder", "said"), [("nodir", "does not exist"), ("file", "is not a folder")])
def test_a_backup_into_a_folder_that_is_none_says_to_make_it(lcb, store, tmp_path, folder, said):
    (tmp_path / "file").write_bytes(b"")
    there, out = tmp_path / folder, tmp_path / folder / "x.db"
    found = lcb("log", "backup", store, out)
    assert found.code == 2
    assert found.err == f"lcb: {there} {said}, so {out} cannot be written; make the folder, or give another path\n"
    assert not (tmp_path / "nodir").exists()


def test_a_backup_is_a_store_with_the_same_fold(lcb, store, tmp_path):
    assert lcb("log", "backup", store, tmp_path / "copy.db").code == 0
    one, other = SQLite(store), SQLite(tmp_path / "copy.db")
    assert compare_worlds(fold_log(one), fold_log(other)) == []
    assert list(one.events(0)) == list(other.events(0))
    one.close()
    other.close()
    assert lcb("log", "verify", tmp_path / "copy.db").code == 0
    again = lcb("log", "backup", store, tmp_path / "copy.db")
    assert (again.code, "already exists" in again.err) == (2, True)


def test_one_row_per_slot_with_what_counts(lcb, store, tmp_path):
    found = lcb("log", "export", store, "all.parquet", "--missing", "none")
    assert found.code == 0, found
    assert "have no reward yet" in found.out
    assert "lower slots of lists" in found.out
    assert "have no propensity" in found.out
    rows = pq.read_table(tmp_path / "all.parquet").to_pylist()
    opened = open_store(str(store))
    wanted = {}
    for row in opened.events(0):
        if row.kind == "decision":
            body = events.decode("decision", row.body)
            for i, one in enumerate(body.taken if body.chosen is None else [body.chosen]):
                wanted[row.id, i] = [row, body, one, None]
        elif row.kind == "reward":
            id, _, slot = row.id[2:].partition("/")
            wanted[id, int(slot or 0)][3] = events.decode("reward", row.body).reward
    opened.close()
    assert len(rows) == len(wanted)
    for one in rows:
        row, body, taken, reward = wanted[one["decision_id"], one["slot"]]
        assert (one["user"], one["seq"], one["model"]) == (row.user, row.seq, row.model)
        assert (one["item"], one["arm"], one["n_arms"]) == (taken.id, taken.arm, body.n_arms)
        assert one["propensity"] == (taken.propensity if body.own else None)
        assert one["x"] == np.frombuffer(taken.x).tolist()
        assert one["reward"] == reward
        assert one["recommender"] == body.recommender
        assert one["would"] == (None if body.chosen is None else body.taken[0].id)
    assert {one["policy"] for one in rows} >= {"linucb", "exp4", "lints", "uniform"}


def test_what_no_reward_has_come_for_is_left_out_or_gets_the_one_given(lcb, news):
    lcb("log", "export", news, "some.parquet")
    assert pq.read_table("some.parquet").num_rows == 60 * 25 - 1
    lcb("log", "export", news, "every.parquet", "--missing", "0")
    assert pq.read_table("every.parquet").column("reward").null_count == 0
    assert pq.read_table("every.parquet").num_rows == 60 * 25
    found = lcb("log", "export", news, "every.parquet", "--missing", "much")
    assert (found.code, "--missing much" in found.err) == (2, True)


def test_from_serving_to_learning_to_evaluation(lcb, news):
    found = lcb("log", "export", news, "log")
    assert found.code == 0, found
    assert "only some" not in found.out
    assert json.loads(Path("log/categories.json").read_text()) == sorted(SOME)
    learned = lcb("learn", "log/events.parquet", "--classes", "2", "--out", "models")
    assert learned.code == 0, learned
    learned = lcb("learn", "log", "--features", "one-hot", "--classes", "2", "--out", "models")
    assert learned.code == 0, learned
    plan = ("--steps", "10", "--classes", "2", "--seeds", "1", "--workers", "1", "--algorithms", "lcb-mean,random")
    for method in ("queue", "replay", "ips", "snips", "dr"):
        outcome = lcb("evaluate", "log", "--method", method, *plan, "--json", "-")
        assert outcome.code == 0, outcome
        results = {row["algorithm"]: row for row in json.loads(outcome.out)["results"]}
        assert results["lcb-mean"]["relative_ctr"] > 1.1 * results["random"]["relative_ctr"], method


def test_one_file_works_as_well_as_a_folder(lcb, news):
    assert lcb("log", "export", news, "clicks.parquet").code == 0
    assert Path("clicks.items.parquet").exists()
    assert lcb("learn", "clicks.parquet", "--classes", "2", "--out", "models").code == 0
    plan = ("--steps", "5", "--seeds", "1", "--workers", "1", "--algorithms", "random", "--method", "ips")
    assert lcb("evaluate", "clicks.parquet", *plan).code == 0
    assert lcb("log", "export", news, "clicks.parquet").code == 0, "an export replaces the export before it"
    Path("mine.parquet").write_text("mine")
    found = lcb("log", "export", news, "mine.parquet")
    assert (found.code, Path("mine.parquet").read_text()) == (2, "mine")


def test_an_export_gives_the_same_models_as_a_folder_and_as_a_file(lcb, news):
    for out in ("log", "clicks.parquet"):
        assert lcb("log", "export", news, out).code == 0
    for path, out in (("log", "one"), ("log/events.parquet", "two"), ("clicks.parquet", "three")):
        learned = lcb("learn", path, "--classes", "2", "--learner", "em", "--out", out)
        assert "2 classes from 1,499 events of 60 users" in learned.out, learned
    one, two, three = (load_models(name) for name in ("one", "two", "three"))
    np.testing.assert_array_equal(one.beta, two.beta)
    np.testing.assert_array_equal(one.beta, three.beta)
    assert one.features == load_feature_map("one").names == tuple(sorted(SOME))
    expected = load_feature_map("one").of_names([SOME[0]]) @ one.beta.T
    assert sorted(expected.round()) == [0, 1], "the models can serve the categories again"


def test_an_export_has_the_distribution_of_every_decision_and_can_be_of_one_recommender_and_time(lcb, store):
    assert lcb("log", "export", store, "all.parquet", "--missing", "0").code == 0
    rows = pq.read_table("all.parquet").to_pylist()
    own = [row for row in rows if row["distribution"] is not None]
    assert len(own) > 20
    items = pq.read_table("all.items.parquet")["item"].to_pylist()
    for row in own:
        assert len(row["distribution"]) == row["n_arms"] - row["slot"], "lower slots do not offer what is above"
        offered = row["offered"] or items[: row["n_arms"]]
        assert dict(zip(offered, row["distribution"], strict=True))[row["item"]] == row["propensity"]
        assert sum(row["distribution"]) == pytest.approx(1)
    names = {row["recommender"] for row in rows}
    assert len(names) > 1
    for name in names:
        assert lcb("log", "export", store, "one.parquet", "--missing", "0", "--recommender", name).code == 0
        assert pq.read_table("one.parquet").to_pylist() == [row for row in rows if row["recommender"] == name]
    unknown = lcb("log", "export", store, "none.parquet", "--recommender", "nobody")
    assert (unknown.code, "has no recommender 'nobody'; it has" in unknown.err) == (2, True)
    times = sorted({row["time"] for row in rows})
    middle = times[len(times) // 2].replace(microsecond=0)
    later = lcb("log", "export", store, "late.parquet", "--missing", "0", "--since", f"{middle:%Y-%m-%dT%H:%M:%S}")
    assert later.code == 0, later
    assert pq.read_table("late.parquet").to_pylist() == [row for row in rows if row["time"] >= middle]


def test_nothing_to_export_is_said(lcb, tmp_path):
    with Inside(sqlite(tmp_path / "new.db"), Settings(pages=False)) as inside:
        inside.decide("ann", arms=[{"id": "a", "x": [1.0]}])
    found = lcb("log", "export", tmp_path / "new.db", "out.parquet")
    assert (found.code, "1 decision has no reward yet" in found.err) == (2, True)
    assert not list(tmp_path.glob("*.parquet*"))


def test_events_that_had_only_some_items_on_offer_are_pointed_out(lcb, store):
    told = lcb("log", "export", store, "log").out
    assert "only some of the" in told
    assert "with --method ips, snips or dr" in " ".join(told.split())
    assert lcb("log", "export", store, "log", "--only-known").code == 0
    refused = lcb("evaluate", "log", "--method", "replay", "--steps", "2", "--seeds", "1")
    assert refused.code == 2
    assert "but replay assumes that all were on offer; use method ips, snips or dr" in refused.err


def test_rows_of_an_export_are_held_by_their_bytes(lcb, news, monkeypatch):
    assert lcb("log", "export", news, "one.parquet").code == 0
    monkeypatch.setattr(export_module, "_GROUP_BYTES", 100_000)
    assert lcb("log", "export", news, "many.parquet").code == 0
    one, many = (pq.ParquetFile(name) for name in ("one.parquet", "many.parquet"))
    assert (one.num_row_groups, many.num_row_groups > 3) == (1, True)
    assert one.read().equals(many.read())
