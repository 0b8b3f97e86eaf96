"""`lcb learn` learns item effects where items come again, says what they explain, and `lcb show --items` lists them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.evaluate.choice.candidates import Classes
from lcb.evaluate.choice.choose import Choice
from lcb.evaluate.offline.history import read_history
from lcb.evaluate.offline.learn_classes import LearningData, learn_classes
from lcb.event_log import EventLog
from lcb.storage.models.folder import load_models

N_ITEMS, N_USERS, N_LABELS = 60, 250, 20


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A log of two categories, and the appeal of its books."""
    return write_world(tmp_path_factory.mktemp("books"), spread=0.15)


def write_world(folder, *, spread):
    rng = np.random.default_rng(0)
    category, appeal = rng.integers(0, 2, N_ITEMS), spread * rng.normal(0.0, 1.0, N_ITEMS)
    likes = np.array([[0.6, 0.3], [0.3, 0.6]])
    user, item = np.repeat(np.arange(N_USERS), N_LABELS), rng.integers(0, N_ITEMS, N_USERS * N_LABELS)
    p = likes[rng.integers(0, 2, N_USERS)[user], category[item]] + appeal[item]
    stars = np.where(rng.random(len(user)) < p, 5, 2)
    order = np.tile(np.arange(N_LABELS), N_USERS)
    pq.write_table(pa.table({"user": user, "order": order, "item": item, "rating": stars}), folder / "events.parquet")
    items = {"item": np.arange(N_ITEMS), "categories": [[one] for one in category.tolist()]}
    pq.write_table(pa.table(items), folder / "items.parquet")
    (folder / "categories.json").write_text(json.dumps(["crime", "travel"]))
    return folder, category, appeal


LEARN = ["--like", 5, "--learner", "em", "--classes", 2, "--features", "one-hot"]


def test_effects_are_learned_said_and_kept(lcb, world):
    folder, category, appeal = world
    outcome = lcb("learn", folder, *LEARN, "--out", "models", "--json", "out.json")
    assert outcome.code == 0, outcome.err
    told = " ".join(outcome.out.split())
    assert "effects of 60 items, with a standard deviation of 0.1" in told
    assert "of the variance of the rewards beyond features and classes" in told
    effects = load_models("models").item_effects
    assert effects.ids == tuple(map(str, range(N_ITEMS)))
    events = pq.read_table(folder / "events.parquet").to_pandas()
    assert effects.count.sum() == len(events[["user", "item"]].drop_duplicates())  # a user counts once for an item
    for one in (0, 1):
        assert np.corrcoef(effects.effect[category == one], appeal[category == one])[0, 1] > 0.8
    with open("out.json") as file:
        assert json.load(file)["item_effects"]["items"] == N_ITEMS


def test_without_effects_the_models_are_those_of_before(lcb, world):
    folder, _, _ = world
    assert lcb("learn", folder, *LEARN, "--no-item-effects", "--out", "plain").code == 0
    models = load_models("plain")
    assert models.item_effects is None
    assert models.likelihood == "bernoulli"
    told = lcb("show", "plain", "--items")
    assert told.code != 0
    assert "plain has no item effects; learn them with lcb learn" in told.err


def test_the_best_the_worst_and_the_uncertain_are_listed_with_intervals(lcb, world):
    folder, _, _ = world
    lcb("learn", folder, *LEARN, "--out", "models")
    outcome = lcb("show", "models", "--items", "--json", "out.json", "--png", "items.svg")
    assert outcome.code == 0, outcome.err
    effects = load_models("models").item_effects
    with open("out.json") as file:
        listed = json.load(file)
    assert listed["best"][0]["item"] == effects.ids[effects.effect.argmax()]
    assert listed["worst"][0]["item"] == effects.ids[effects.effect.argmin()]
    assert listed["uncertain"][0]["item"] == effects.ids[effects.variance.argmax()]
    assert {one["item"] for one in listed["all"]} == {effects.ids[i] for i in np.flatnonzero(effects.count)}
    first = listed["best"][0]
    assert first["high"] - first["low"] == pytest.approx(2 * 1.96 * np.sqrt(effects.variance[effects.effect.argmax()]))
    assert "best" in outcome.out
    assert "worst" in outcome.out
    with open("items.svg") as file:
        assert "<svg" in file.read()


@pytest.mark.parametrize(("spread", "has_effects"), [(0.15, True), (0.0, False)])
@pytest.mark.parametrize("learner", [["--learner", "em"], []])
def test_two_classes_stay_two_and_effects_that_explain_nothing_are_left_out(
    lcb, tmp_path, spread, has_effects, learner
):
    """Rewards less effects are no clicks: counted as they are, the classes of clicks would be split."""
    write_world(tmp_path, spread=spread)
    outcome = lcb("learn", tmp_path, "--like", 5, "--features", "one-hot", "--learner", "em", "--out", "models")
    assert outcome.code == 0, outcome.err
    models = load_models("models")
    assert (models.n_classes, models.personal) == (2, False)
    assert (models.item_effects is not None) == has_effects
    assert ("items have no effects of their own" in outcome.out) != has_effects
    told = lcb("show", "models", "--items")
    assert (told.code == 0) == has_effects
    assert ("they were left out, since they explain under" in told.err) != has_effects
    assert "the rewards are not of two values" not in outcome.out
    assert ("modelled as clicks (Bernoulli)" in outcome.out) != has_effects
    assert (
        "rewards less the effects of items are not of two values: modelled as Gaussian" in outcome.out
    ) == has_effects


def test_classes_chosen_as_clicks_and_learned_beside_effects_say_both(world):
    history = read_history(world[0], "one-hot", like=5)
    choice = Choice(Classes(False, 2, "bernoulli"), 1.0, ("chosen: 2 point classes (Bernoulli)",))
    data = LearningData("log", history.log, history.read, history.feature_map, history=history, choice=choice)
    found = learn_classes(data, seed=0)
    assert found.models.likelihood == "gaussian"
    assert "rewards less the effects of items are not of two values: learned as Gaussian" in found.why


def test_statistics_do_not_say_that_rewards_are_no_clicks(world):
    history = read_history(world[0], "one-hot", like=5)
    found = learn_classes(LearningData("stats", EventLog(history.log.stats)), seed=0, n_classes=2)
    assert "statistics do not show whether rewards are clicks: modelled as Gaussian, learned by em" in found.why


def test_options_of_another_kind_of_input_are_named(lcb, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"u{i % 20},{rng.random():.3f},{rng.random():.3f},{i % 2}\n" for i in range(80)]
    (tmp_path / "t.csv").write_text("user,a,b,reward\n" + "".join(rows))
    told = lcb("learn", tmp_path / "t.csv", "--columns", "a,b", "--features", "pca:2", "--out", "models")
    assert told.code != 0
    assert "--features pca:2 is for an imported log" in " ".join(told.err.split())
    told = lcb("learn", tmp_path / "t.csv", "--columns", "a,b", "--no-item-effects", "--out", "models")
    assert told.code != 0
    assert "--no-item-effects is for an imported log" in " ".join(told.err.split())


def test_events_and_labels_are_counted_apart(lcb, world, tmp_path):
    folder, _, _ = world
    plan = ["--like", 5, "--learner", "em", "--classes", 2, "--out", "models", "--json", "out.json"]
    outcome = lcb("learn", folder, "--features", "factors:2", *plan)
    assert outcome.code == 0, outcome.err
    events = pq.read_table(folder / "events.parquet", columns=["user", "item"]).to_pylist()
    pairs = len({(one["user"], one["item"]) for one in events})
    assert f"from {len(events):,} events ({pairs:,} labels) of 250 users" in " ".join(outcome.out.split())
    with open("out.json") as file:
        summary = json.load(file)
    assert (summary["events"], summary["labels"]) == (len(events), pairs)
    outcome = lcb("learn", folder, "--reading", "choices", "--classes", 2, "--learner", "em", "--out", "models")
    assert f"from {len(events):,} events ({2 * len(events):,} labels) of" in " ".join(outcome.out.split())
    outcome = lcb("learn", folder, "--features", "one-hot", *plan)
    assert f"from {len(events):,} events of 250 users" in " ".join(outcome.out.split())
