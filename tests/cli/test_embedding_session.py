"""From a CSV with embeddings and sections to decisions over HTTP, in a world whose truth is known.

Articles have 24 numbers, of 3 hidden directions, and a section.  Two kinds of readers like opposite ends of the first
direction, and everybody likes sport a little.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import httpx
import numpy as np
import pytest

from lcb.storage.models.folder import load_feature_map, load_models

N_ITEMS, M, N_USERS, N_SEEN = 150, 24, 120, 24
SECTIONS = ("arts", "science", "sport")
MAIN = "from lcb.cli.main import main; main()"


@pytest.fixture
def truth(tmp_path):
    """Write articles.csv and visits.csv; return the chance of a click, (kinds, items), the vectors and the sections."""
    rng = np.random.default_rng(0)
    hidden, section = rng.normal(size=(N_ITEMS, 3)), rng.integers(0, 3, N_ITEMS)
    vectors = hidden @ np.linalg.qr(rng.normal(size=(M, 3)))[0].T + 0.02 * rng.normal(size=(N_ITEMS, M))
    taste = 0.35 * np.clip(hidden[:, 0], -1, 1)
    chance = 0.45 + np.array([taste, -taste]) + 0.15 * (section == 2)
    with open(tmp_path / "articles.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["article", "title", "section", *(f"e{j}" for j in range(M))])
        for i in range(N_ITEMS):
            rows.writerow([f"a{i}", f"Article {i}", SECTIONS[section[i]], *vectors[i].tolist()])
    with open(tmp_path / "visits.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["visitor", "article", "clicked"])
        for u in range(N_USERS):
            for i in rng.permutation(N_ITEMS)[:N_SEEN].tolist():
                rows.writerow([f"v{u}", f"a{i}", int(rng.random() < chance[u % 2, i])])
    return chance, vectors, section


def test_a_csv_with_embeddings_leads_to_decisions_that_readers_like(lcb, truth, tmp_path):
    chance, vectors, section = truth
    named = ("--user", "visitor", "--item", "article", "--reward", "clicked")
    about = ("--items", "articles.csv", "--item-categories", "section", "--item-features", "e*")
    outcome = lcb("import", "visits.csv", *named, *about, "--out", "log")
    assert outcome.code == 0, outcome.err
    assert "every item has 24 numbers of its own" in outcome.out

    outcome = lcb("learn", "log", "--features", "pca+1", "--learner", "em", "--classes", 2, "--out", "models")
    assert outcome.code == 0, outcome.err
    features, models = load_feature_map(tmp_path / "models"), load_models(tmp_path / "models")
    assert features.spec in ("pca:2+1", "pca:4+1")  # the fewest that hold the direction that matters
    assert models.features[:4] == ("arts", "science", "sport", "pca1")
    x = features(np.column_stack([np.eye(3)[section], vectors]))
    found = models.beta @ x.T + (
        models.item_effects.of([f"a{i}" for i in range(N_ITEMS)]).effect if models.item_effects else 0
    )
    right = [[np.corrcoef(found[h], chance[kind])[0, 1] for kind in (0, 1)] for h in (0, 1)]
    assert max(right[0][0] + right[1][1], right[0][1] + right[1][0]) > 1.6

    words = (
        "--arms",
        "items",
        "--steps",
        8,
        "--seeds",
        1,
        "--workers",
        1,
        "--algorithms",
        "lcb-auto,popularity",
        "--classes",
        2,
    )
    outcome = lcb("evaluate", "log", *words, "--json", "out.json")
    assert outcome.code == 0, outcome.err
    results = {
        row["algorithm"]: row["relative_ctr"] for row in json.loads((tmp_path / "out.json").read_text())["results"]
    }
    assert results["lcb-auto"] > 1.15 * results["popularity"]

    line = [sys.executable, "-c", MAIN, "serve", "--port", "0", "--models", "models", "--items", "log"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LCB_LIMITS__DRAIN": "0"}
    process = subprocess.Popen(
        line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        address = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=address, trust_env=False, timeout=30) as client:
            for kind in (0, 1):
                read = list(read_along(client, f"new-{kind}", chance[kind], 25))
                liked = [chance[kind, article] for article, propensity in read[10:] if propensity > 0.5]
                assert len(liked) > 10  # the others are of the uniform share
                assert np.mean(liked) > np.quantile(chance[kind], 0.75)
            new = {"id": "later", "title": "Later", "x": vectors[7].tolist(), "categories": [SECTIONS[section[7]]]}
            assert client.put("/v1/items", json={"items": [new]}).json()["n_items"] == N_ITEMS + 1
            kept = {item["id"]: item for item in client.get("/v1/items").json()["items"]}
            assert kept["a7"]["title"] == "Article 7"
            np.testing.assert_allclose(kept["later"]["x"], kept["a7"]["x"], atol=1e-6)
            refused = client.put("/v1/items", json={"items": [{"id": "short", "x": [1.0, 2.0]}]})
            assert "or the 24 numbers of the item's own" in refused.json()["detail"]
            refused = client.put("/v1/items", json={"items": [{**new, "categories": ["spor"]}]})
            assert (refused.status_code, refused.json()["field"]) == (422, "items[0].categories[0]")
    finally:
        process.kill()
        process.communicate()


def read_along(client, user, chance, n):
    """Yield the articles of n decisions and their propensities; the reader answers each with its chance of a click."""
    for _ in range(n):
        decision = client.post("/v1/decisions", json={"user": user}).json()
        article = int(decision["arm"][1:])
        client.post("/v1/rewards", json={"decision_id": decision["decision_id"], "reward": chance[article]})
        yield article, decision["propensity"]
