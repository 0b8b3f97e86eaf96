"""DataFrames of every library become the same log."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lcb

N = 400
RNG = np.random.default_rng(0)
COLUMNS = {
    "visitor": [f"v{i}" for i in RNG.integers(0, 40, N)],
    "article": RNG.integers(0, 6, N).tolist(),
    "clicked": (RNG.random(N) < 0.4).tolist(),
    "sport": RNG.random(N).tolist(),
    "age": RNG.integers(18, 80, N).tolist(),
}
NAMED = {"user": "visitor", "reward": "clicked"}
LIKES = np.array([[0.9, 0.1, 0.1], [0.1, 0.9, 0.1]])

KINDS = {
    "dict": dict,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 7), pa.table(columns).slice(7)]),
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
    "categorical": lambda columns: pd.DataFrame(columns).astype({"visitor": "category"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_library_gives_the_same_log(kind):
    log = lcb.EventLog.from_table(KINDS[kind](COLUMNS), **NAMED, features=["sport", "age"])
    x = np.column_stack([COLUMNS["sport"], COLUMNS["age"]])
    rows = lcb.EventLog.from_rows(COLUMNS["visitor"], x, np.array(COLUMNS["clicked"], float), features=["sport", "age"])
    assert log.stats.n_events == N
    assert log.stats.users == rows.stats.users
    assert log.stats.features == ("sport", "age")
    np.testing.assert_allclose(log.stats.packed, rows.stats.packed, rtol=1e-12)
    np.testing.assert_array_equal(log.clicks.clicked.toarray(), rows.clicks.clicked.toarray())


def test_items_are_features_where_none_are_named():
    log = lcb.EventLog.from_table(COLUMNS, **NAMED, item="article")
    assert sorted(log.stats.features) == list("012345")
    assert log.stats.n_events == N
    assert log.clicks.arms.shape == (6, 6)


def test_lists_of_numbers_are_features():
    vectors = [[1.0, float(i % 3)] for i in range(N)]
    for frame in (pd.DataFrame({**COLUMNS, "v": vectors}), pl.DataFrame({**COLUMNS, "v": vectors})):
        log = lcb.EventLog.from_table(frame, **NAMED, features=["v", "sport"])
        assert log.stats.features == ("v0", "v1", "sport")
        np.testing.assert_array_equal(log.rows[1][:, 1], [i % 3 for i in range(N)])


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"visitor": [None, *COLUMNS["visitor"][1:]]}, {}, "row 1: visitor is missing"),
        ({"visitor": [1.0, np.nan, *range(2, N)]}, {}, "row 2: visitor is missing"),
        ({"visitor": np.arange(N) * 1.0}, {}, "one missing id turns integers into floats"),
        ({"visitor": ["", *COLUMNS["visitor"][1:]]}, {}, "row 1: visitor is empty"),
        ({"clicked": [*[1.0] * (N - 1), np.nan]}, {}, f"row {N}: reward .column clicked. is missing"),
        ({"sport": [np.inf, *COLUMNS["sport"][1:]]}, {}, "row 1: feature sport is inf"),
        ({"sport": ["a"] * N}, {}, "feature sport holds"),
        ({}, {"user": "vistor"}, "no column vistor; did you mean visitor"),
        ({}, {"features": ()}, "neither features nor an item is named"),
        ({}, {"features": ["sport", "sport"]}, "twice"),
        ({"article": np.arange(N)}, {"features": (), "item": "article"}, "400 items, one feature each"),
    ],
)
def test_a_bad_frame_is_refused_with_its_row_or_column(change, options, said):
    frame = pd.DataFrame({**COLUMNS, **change})
    with pytest.raises(lcb.InputError, match=said):
        lcb.EventLog.from_table(frame, **{**NAMED, "features": ["sport"], **options})


def test_what_is_no_table_is_refused():
    for data, said in ((pd.DataFrame(COLUMNS)[:0], "no rows"), (42, "int is no table"), ("events.csv", "is a path")):
        with pytest.raises(lcb.InputError, match=said):
            lcb.fit(data, 1, rng=0, **NAMED, features=["sport"])
    log = lcb.EventLog.from_table(COLUMNS, **NAMED, features=["sport"])
    with pytest.raises(lcb.InputError, match="columns are named"):
        lcb.fit(log, 1, rng=0, **NAMED)


@pytest.fixture(scope="module")
def visits():
    rng = np.random.default_rng(1)
    user, article = np.repeat(np.arange(160), 14), rng.integers(0, 3, 160 * 14)
    clicked = rng.random(len(user)) < LIKES[user % 2, article]
    return pd.DataFrame({"visitor": user, "article": [f"a{i}" for i in article], "clicked": clicked})


def test_fit_and_learn_take_a_frame(visits):
    fit = lcb.fit(visits, 2, rng=0, **NAMED, item="article")
    order = np.argsort([int(name[1:]) for name in fit.models.features])
    found = fit.models.beta[:, order]
    np.testing.assert_allclose(found[np.argsort(-found[:, 0])], LIKES, atol=0.1)
    assert lcb.learn(visits, rng=0, **NAMED, item="article").models.n_classes == 2


def test_an_evaluation_takes_a_frame_or_a_path(visits, tmp_path):
    options = {"item": "article", "n_steps": 6, "n_seeds": 1, "n_workers": 1, "n_classes": 2, **NAMED}
    found = lcb.evaluate_log(visits, ["lcb-mean"], **options)
    assert found.answer.low > 0
    visits.to_parquet(tmp_path / "visits.parquet")
    again = lcb.evaluate_log(tmp_path / "visits.parquet", ["lcb-mean"], **options)
    assert again.answer == found.answer
    for result in (found, lcb.fit(visits, 2, rng=0, **NAMED, item="article")):
        assert "<table>" in result._repr_html_()
        assert result.chart().to_dict()["layer"]
        assert len(result.to_frame()) == 2
    assert list(found.to_frame().index) == ["lcb-mean", "linucb-population"]
    models = lcb.LatentModels(pi=[1.0], beta=[[0.5]], sigma2=[1.0], features=["<b>"])
    assert models.to_frame().loc[1, "<b>"] == 0.5
    assert "&lt;b&gt;" in models._repr_html_()


def test_a_frame_with_embeddings_is_evaluated_over_items():
    rng = np.random.default_rng(0)
    vectors, user = rng.normal(size=(40, 4)), np.repeat(np.arange(80), 15)
    item = np.concatenate([rng.permutation(40)[:15] for _ in range(80)])
    clicked = rng.random(1200) < 0.5 + 0.4 * np.sign(vectors[item, 0]) * np.where(user % 2, 1, -1)
    visits = {"visitor": user, "article": item, "clicked": clicked, "embedding": list(vectors[item])}
    columns = {"user": "visitor", "item": "article", "reward": "clicked", "item_features": "embedding"}
    how = {"arms": "items", "features": "raw+1", "n_steps": 5, "n_seeds": 1, "n_workers": 1, "n_classes": 2}
    found = lcb.evaluate_log(visits, ["lcb-auto", "random"], **columns, **how)
    assert found.settings["features"] == "raw+1"
    assert found.answer.algorithm == "lcb-auto"
    assert found.answer.low > 0
