"""Items with numbers of their own: 32-dimensional embeddings of which 3 directions matter, and two kinds of readers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.storage.logs.log import open_log
from lcb.storage.models.folder import load_feature_map, load_models

N_USERS, N_ITEMS, M = 120, 400, 32


@pytest.fixture
def world(tmp_path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(N_ITEMS, 3))
    vectors = (hidden @ np.linalg.qr(rng.normal(size=(M, 3)))[0].T + 0.05 * rng.normal(size=(N_ITEMS, M))).astype("f4")
    likes = np.array([[0.9, 0, 0], [-0.9, 0.3, 0]])
    user, item = np.repeat(np.arange(N_USERS), 25), rng.integers(0, N_ITEMS, N_USERS * 25)
    reward = (likes[user % 2] * hidden[item]).sum(axis=1) + 0.3 * rng.normal(size=len(user))
    ids = [f"i{j}" for j in range(N_ITEMS)]
    rows = zip(user.tolist(), item.tolist(), reward.tolist(), strict=True)
    lines = ["visitor,article,score", *(f"u{u},i{i},{r:.4f}" for u, i, r in rows)]
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    titles = [f"Article {j}" for j in range(N_ITEMS)]
    table = pa.table({"article": ids, "title": titles, "embedding": list(vectors)})
    pq.write_table(table, tmp_path / "articles.parquet")
    return tmp_path, ids, vectors


WORDS = ("visits.csv", "--user", "visitor", "--item", "article", "--reward", "score")


def test_embeddings_lead_from_a_csv_to_the_items_of_a_service(lcb, world):
    folder, ids, vectors = world
    words = (*WORDS, "--items", "articles.parquet", "--item-features", "embedding", "--out", "log")
    outcome = lcb("import", *words)
    assert outcome.code == 0, outcome.err
    assert "every item has 32 numbers of its own" in outcome.out
    log = open_log(folder / "log")
    assert log.items.to_pylist() == ids
    np.testing.assert_array_equal(log.item_features, vectors)

    outcome = lcb("learn", "log", "--classes", 2, "--learner", "em", "--out", "models")
    assert outcome.code == 0, outcome.err
    assert "pca:4+1 features" in outcome.out
    assert f"from {N_USERS * 25:,} events of {N_USERS} users" in outcome.out
    models, features = load_models(folder / "models"), load_feature_map(folder / "models")
    assert models.features == ("pca1", "pca2", "pca3", "pca4", "constant")
    assert abs(models.pi - 0.5).max() < 0.02
    assert np.sqrt(models.sigma2).max() < 0.33  # of the noise 0.3: the directions hold nearly all that matters
    assert "pca1" in lcb("show", "models").out

    from lcb.cli.catalogue import read_catalogue

    items = json.loads(read_catalogue("log", "models")[0])["items"]
    assert len(items) == N_ITEMS
    first = next(item for item in items if item["id"] == "i7")
    assert first["title"] == "Article 7"
    np.testing.assert_allclose(first["x"], features.of_vector(vectors[7]))


def test_vectors_come_from_npy_a_table_or_columns_of_the_log(lcb, world):
    folder, ids, vectors = world
    np.save(folder / "v.npy", vectors[::-1])
    (folder / "v.ids.txt").write_text("\n".join(ids[::-1]))
    assert lcb("import", *WORDS, "--item-features", "v.npy", "--out", "a").code == 0
    columns = {"item": ids, **{f"e{j}": vectors[:, j] for j in range(3)}}
    pq.write_table(pa.table(columns), folder / "small.parquet")
    assert lcb("import", *WORDS, "--item-features", "small.parquet", "--out", "b").code == 0
    one, two = open_log(folder / "a"), open_log(folder / "b")
    expected = vectors[[int(name[1:]) for name in one.items.to_pylist()]]
    np.testing.assert_array_equal(one.item_features, expected)
    assert two.inputs == ("e0", "e1", "e2")
    np.testing.assert_array_equal(two.item_features, expected[:, :3])


def test_bad_vectors_are_refused_and_nothing_is_written(lcb, world):
    folder, ids, vectors = world
    np.save(folder / "v.npy", vectors[:5])
    (folder / "v.ids.txt").write_text("\n".join(ids[:5]))
    for given, said in (
        ("v.npy", "395 items have no numbers in v.npy"),
        ("embeding", "no column embeding"),
        ("no.parquet", "no such file"),
        ("title", "is no number"),
    ):
        outcome = lcb("import", *WORDS, "--items", "articles.parquet", "--item-features", given, "--out", "log")
        assert outcome.code == 2
        assert said in outcome.err
        assert not (folder / "log").exists()


def test_what_does_not_fit_into_memory_is_refused_before_the_work_starts_with_the_remedy(lcb, world, monkeypatch):
    folder, ids, vectors = world
    words = (*WORDS, "--items", "articles.parquet", "--out", "log", "--item-features")
    assert lcb("import", *words, "embedding").code == 0
    monkeypatch.setattr("lcb.runtime.memory._SMALL", 0)

    def refuse(free, *words):
        monkeypatch.setattr("lcb.runtime.memory.read_free_memory", lambda: free)
        outcome = lcb(*words)
        assert outcome.code == 2
        return " ".join(outcome.err.split())

    said = refuse(2e5, "learn", "log", "--out", "models")
    assert "the events and items of log need about" in said
    said = refuse(1e6, "learn", "log", "--features", "raw", "--out", "models")
    assert "statistics of 120 users over 32 features need about" in said
    assert "--features pca:8" in said
    said = refuse(1e6, "evaluate", "log", "--arms", "items", "--features", "raw", "--workers", 2)
    assert "over 33 features, 2 at a time, need about 0.0 GB" in said
    assert "--workers 1" in said
    assert not (folder / "models").exists()
    for given in ("embedding", "v.npy", "small.csv"):
        np.save(folder / "v.npy", vectors)
        (folder / "v.ids.txt").write_text("\n".join(ids))
        rows = [",".join([id, *map(str, own)]) for id, own in zip(ids, vectors.tolist(), strict=True)]
        header = ",".join(["item", *(f"e{j}" for j in range(M))])
        (folder / "small.csv").write_text("\n".join([header, *rows]))
        said = refuse(1.2e5, "import", *words[:-3], "--out", "other", "--item-features", given)
        assert f"32 numbers for each of 400 items of {given if '.' in given else 'articles.parquet'} need about" in said
        assert not (folder / "other").exists()


def test_an_evaluation_that_cannot_use_the_numbers_is_refused(lcb, world):
    words = (*WORDS, "--items", "articles.parquet", "--item-features", "embedding", "--out", "log")
    assert lcb("import", *words).code == 0
    outcome = lcb("evaluate", "log", "--seeds", 1)
    assert outcome.code == 2
    assert "with the 100 most frequent of 400 items as arms" in outcome.err
    assert "--arms items" in outcome.err


def test_an_evaluation_over_categories_says_that_it_does_not_use_the_numbers(lcb, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"u{u},i{i},{int(rng.random() < 0.5)},{'ab'[i % 2]},{i}" for u in range(30) for i in range(12)]
    (tmp_path / "visits.csv").write_text("\n".join(["user,item,reward,section,price", *rows]))
    words = ("--item-categories", "section", "--item-features", "price", "--out", "log")
    assert lcb("import", "visits.csv", *words).code == 0
    outcome = lcb("evaluate", "log", "--seeds", 1, "--steps", 3, "--algorithms", "random", "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert "the items' 1 number of their own are not used: arms are categories; --arms items uses them" in outcome.out


def test_an_evaluation_over_items_uses_the_numbers(lcb, world):
    folder, *_ = world
    text = (folder / "visits.csv").read_text().splitlines()
    clicks = [f"{line.rsplit(',', 1)[0]},{int(float(line.rsplit(',', 1)[1]) > 0.3)}" for line in text[1:]]
    (folder / "visits.csv").write_text("\n".join([text[0], *clicks]))
    words = (*WORDS, "--items", "articles.parquet", "--item-features", "embedding", "--out", "log")
    assert lcb("import", *words).code == 0
    told = (
        "--seeds",
        1,
        "--workers",
        1,
        "--steps",
        6,
        "--classes",
        2,
        "--algorithms",
        "lcb-auto,popularity",
    )
    outcome = lcb("evaluate", "log", "--arms", "items", *told, "--json", "out.json")
    assert outcome.code == 0, outcome.err
    found = json.loads((folder / "out.json").read_text())
    assert found["settings"]["features"] == "pca:4+1"  # 3 directions matter
    assert "pca:4+1 features: the reward per step of 60 held-out users" in found["settings"]["why_features"]
    rows = {row["algorithm"]: row for row in found["results"]}
    assert rows["lcb-auto"]["relative_ctr"] > 1.2 * rows["popularity"]["relative_ctr"]


def test_embeddings_of_a_csv_are_many_columns_or_text(lcb, world):
    folder, ids, vectors = world
    columns = [f"e{j}" for j in range(M)]
    many = [",".join([id, f"About {id}", *map(str, own)]) for id, own in zip(ids, vectors.tolist(), strict=True)]
    (folder / "many.csv").write_text("\n".join([",".join(["article", "title", *columns]), *many]))
    text = [f'{id},"{own}"' for id, own in zip(ids, vectors.tolist(), strict=True)]
    (folder / "text.csv").write_text("\n".join(["article,embedding", *text]))
    for words in (
        ("--items", "many.csv", "--item-features", "e*"),
        ("--items", "text.csv", "--item-features", "embedding"),
        ("--item-features", "text.csv"),
    ):
        outcome = lcb("import", *WORDS, *words, "--out", "log")
        assert outcome.code == 0, outcome.err
        log = open_log(folder / "log")
        place = [int(name[1:]) for name in log.items.to_pylist()]
        np.testing.assert_array_equal(log.item_features, vectors[place])
        assert log.inputs == tuple(columns) if "many.csv" in words else log.inputs[1] == "embedding1"
    outcome = lcb("import", *WORDS, "--items", "many.csv", "--item-features", "v*", "--out", "other")
    assert "no column of many.csv matches v*" in outcome.err


def test_a_file_of_vectors_with_two_rows_of_an_item_is_refused(lcb, world):
    folder, ids, vectors = world
    twice = pa.table({"item": [*ids, ids[7]], "embedding": [*vectors, vectors[0]]})
    pq.write_table(twice, folder / "vectors.parquet")
    outcome = lcb("import", *WORDS, "--item-features", "vectors.parquet", "--out", "log")
    assert outcome.code != 0
    assert "item i7 has a second row" in " ".join(outcome.err.split())
    assert not (folder / "log").exists()
    pq.write_table(twice[:-1], folder / "vectors.parquet")
    assert lcb("import", *WORDS, "--item-features", "vectors.parquet", "--out", "log").code == 0
