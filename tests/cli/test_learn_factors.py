"""`lcb learn --features factors:K`: features of items that nothing describes, learned from a planted world."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.models.item_effects import ArmEffects
from lcb.storage.models.folder import load_feature_map, load_models

N_ITEMS, N_USERS, N_LABELS, N_FACTORS = 110, 200, 24, 2
NOISE = 0.5


def draw(rng, n_users, q, appeal):
    """Users with tastes of their own: their rewards for all items, (users, items), without noise."""
    return appeal + rng.normal(size=(n_users, N_FACTORS)) @ q.T


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A log of items without categories, and the truth: factors and appeal of the items."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("songs")
    q, appeal = 0.5 * rng.normal(size=(N_ITEMS, N_FACTORS)), 0.3 * rng.normal(size=N_ITEMS)
    means = draw(rng, N_USERS, q, appeal)
    user = np.repeat(np.arange(N_USERS), N_LABELS)
    item = np.concatenate([rng.permutation(N_ITEMS)[:N_LABELS] for _ in range(N_USERS)])
    reward = means[user, item] + NOISE * rng.normal(size=len(user))
    columns = {"user": user, "item": [f"song{i}" for i in item], "reward": reward, "order": np.arange(len(user))}
    pq.write_table(pa.table(columns), folder / "events.parquet")
    return folder, q, appeal


@pytest.fixture(scope="module")
def learned(world, tmp_path_factory):
    """What was learned of the log by itself: the number of factors is chosen on held-out users."""
    from typer.testing import CliRunner

    from lcb.cli.app import app

    out = tmp_path_factory.mktemp("learned") / "models"
    args = ["learn", str(world[0]), "--classes", "1", "--out", str(out), "--json", f"{out}.json"]
    outcome = CliRunner().invoke(app, args)
    assert outcome.exit_code == 0, outcome.output
    return out, json.loads(out.with_suffix(".json").read_text())


def test_the_planted_factors_and_appeal_are_found(world, learned):
    _, q, appeal = world
    out, summary = learned
    features, models = load_feature_map(out), load_models(out)
    assert (features.spec, features.names) == ("factors:2", ("factor1", "factor2", "constant"))
    assert any("factors:2" in one for one in summary["why"])
    order = [features.categories.index(f"song{i}") for i in range(N_ITEMS)]
    found = features.arms[order][:, :2]
    fitted = found @ np.linalg.lstsq(found, q, rcond=None)[0]  # the same up to a linear map
    assert 1 - ((fitted - q) ** 2).sum() / ((q - q.mean(axis=0)) ** 2).sum() > 0.9
    x = np.column_stack([found, np.full(N_ITEMS, np.sqrt(0.5))])
    effects = models.item_effects.of([f"song{i}" for i in range(N_ITEMS)]).effect
    assert np.corrcoef(effects + x @ (models.pi @ models.beta), appeal)[0, 1] > 0.9


def test_new_people_are_served_better_than_by_popularity(world, learned):
    _, q, appeal = world
    features, models = load_feature_map(learned[0]), load_models(learned[0])
    bandit, rng = LearnedClasses(models), np.random.default_rng(1)
    ids = [f"song{i}" for i in range(N_ITEMS)]
    x, effect = np.array([features.of_item(id) for id in ids]), models.item_effects.of(ids).effect
    means = draw(rng, 60, q, appeal)
    ours = 0.0
    for own in means:
        state, left = bandit.start(), np.arange(N_ITEMS)
        for _ in range(10):
            decision = bandit.choose(state, x[left], rng, ArmEffects(effect[left], np.zeros(len(left))))
            ours += own[left[decision.arm]] / means.shape[0] / 10
            state = bandit.update(state, decision, own[left[decision.arm]] + NOISE * rng.normal())
            left = np.delete(left, decision.arm)
    popular = means[:, np.argsort(-appeal)[:10]].mean()  # by the true appeal
    best = np.sort(means, axis=1)[:, -10:].mean()
    assert popular + 0.4 * (best - popular) < ours < best


def test_a_catalogue_of_the_log_needs_the_ids_alone(world, learned):
    from lcb.cli.catalogue import read_catalogue

    body, categories = read_catalogue(str(world[0]), str(learned[0]))
    items = json.loads(body)["items"]
    assert {one["id"] for one in items} == set(categories) == {f"song{i}" for i in range(N_ITEMS)}
    assert all(one.keys() == {"id"} for one in items)


def test_show_names_the_factors(lcb, learned):
    outcome = lcb("show", learned[0])
    assert outcome.code == 0, outcome.err
    assert "factor1" in outcome.out
    assert "song" in lcb("show", learned[0], "--items").out


def test_a_given_number_of_factors_with_a_learner(lcb, world):
    outcome = lcb("learn", world[0], "--features", "factors:1", "--learner", "personal", "--classes", 1, "--out", "one")
    assert outcome.code == 0, outcome.err
    assert load_feature_map("one").names == ("factor1", "constant")
    assert "factors:1 features, learned from the rewards of 110 items" in outcome.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--features", "factors:0"], "can have factors:1 to factors:54"),
        (["--features", "factors:two"], "give factors:K, as factors:5"),
        (["--features", "factors:2", "--no-item-effects"], "are learned beside item effects"),
        (["--features", "factors:2", "--learner", "gibbs"], "are learned beside item effects"),
    ],
)
def test_mistakes_are_one_line(lcb, world, more, words):
    outcome = lcb("learn", world[0], *more, "--out", "never")
    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())
