"""Learning on a real Ray cluster of one node; `test_ray.py` runs this file in a network of its own.

A process there takes 2 s of CPU to start, so cases share one where they can.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lcb
from lcb.cluster.shards import Shards
from lcb.errors import ClusterError, EventError
from lcb.evaluate import SimulatedWorld, paper_classes
from lcb.evaluate.choice.candidates import Classes
from lcb.evaluate.choice.choose import Choice
from lcb.evaluate.offline.history import read_history
from lcb.evaluate.offline.learn_classes import LearningData, learn_classes
from lcb.event_log import EventLog
from lcb.learners.shared.users import CountNotFinite
from lcb.progress import silent
from lcb.runtime import parallel
from support.dying_work import DyingWork

pytestmark = pytest.mark.filterwarnings(
    "ignore::lcb.ConvergenceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
NAMES = ["sport", "arts", "science"]


@pytest.fixture(scope="session")
def cluster():
    with lcb.connect("local", step_seconds=120) as found:
        yield found


@pytest.fixture(autouse=True)
def count_restarts_anew(cluster):
    cluster.n_restarts = 0


def draw(n_users=600, *, clicks=False, noise=2.0):
    rng = np.random.default_rng(0)
    label, user = rng.integers(3, size=n_users), np.repeat(np.arange(n_users), 10)
    arms, beta = rng.normal(size=(12, 3)).round(3), np.array([[1.5, 0, 0], [0, -1.5, 0], [0, 0, 2.0]])
    x = arms[rng.integers(12, size=len(user))]
    mean = (x * beta[label[user]]).sum(axis=1)
    reward = rng.random(len(user)) < 0.5 + 0.4 * np.tanh(mean) if clicks else mean + noise * rng.normal(size=len(user))
    order = rng.permutation(len(user))
    return user[order], x[order], reward[order].astype(float)


def write(folder, user, x, reward, n_files=3):
    for i in range(n_files):
        own = slice(i, None, n_files)
        columns = {"user": [f"u{j}" for j in user[own]], "reward": reward[own]}
        pq.write_table(pa.table({**columns, **dict(zip(NAMES, x[own].T, strict=True))}), folder / f"part-{i}.parquet")
    return folder


def test_statistics_give_the_same_classes_there_as_here(cluster, tmp_path, monkeypatch):
    log = EventLog.from_rows(*draw(clicks=True))
    gaussian = {"likelihood": "gaussian", "tol": 1e-12, "max_steps": 40}
    with cluster.hold(log) as users:
        for settings in (gaussian, {}, {"learner": "personal"}):
            here, there = (lcb.fit(data, 3, rng=0, **settings).models for data in (log, users))
            np.testing.assert_allclose(there.beta, here.beta, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(there.pi, here.pi, rtol=1e-12, atol=1e-12)

        monkeypatch.setattr("lcb.cluster.calls.__version__", "9.9.9")
        with pytest.raises(ClusterError, match=r"has lcb .*, this is 9\.9\.9; install the same on every node"):
            cluster.check_versions(list(users.actors.values()), list(users.places.values()))

        monkeypatch.setattr(cluster, "step_seconds", 0.5)  # a step without an answer is given up
        with pytest.raises(ClusterError, match=r"a step has not come for 0 s: 1 of 1 answers are missing"):
            users.sums(DyingWork(CountNotFinite(), str(tmp_path / "mark"), wait=True))


def test_event_files_give_the_same_weights_and_a_lost_process_changes_no_bit(cluster, tmp_path, monkeypatch):
    """And the same kind and number of classes is chosen, and a bad row is named."""
    user, x, reward = draw(120, noise=0.3)
    folder, mark = write(tmp_path, user, x, reward), tmp_path / "mark"
    asked = {"rng": 0, "tol": 1e-13, "max_steps": 60}
    here = lcb.fit(lcb.read_log(folder, columns=NAMES), 3, **asked).models
    with cluster.read_log(folder, columns=NAMES) as users:
        assert (users.n_users, users.n_events, users.features) == (120, 1200, tuple(NAMES))
        there = lcb.fit(users, 3, **asked).models
        np.testing.assert_allclose(there.beta, here.beta, atol=1e-6)
        compare_choice(folder, users)
        before = lcb.fit(users, 3, rng=0, learner="personal").models
        plain, calls = Shards.sums, []

        def sum_dying(self, work):
            calls.append(work)
            return plain(self, DyingWork(work, str(mark)) if len(calls) == 5 else work)

        monkeypatch.setattr(Shards, "sums", sum_dying)
        after = lcb.fit(users, 3, rng=0, learner="personal").models
        assert mark.exists()
        assert cluster.n_restarts == 1
        np.testing.assert_array_equal(after.beta, before.beta)
        np.testing.assert_array_equal(after.covariance, before.covariance)

        cluster.n_restarts = 3
        with pytest.raises(ClusterError, match=r"ended 4 times, 3 are allowed; the last: .*died"):
            users.sums(DyingWork(CountNotFinite(), str(mark), always=True))

        reward[4] = np.nan
        write(tmp_path, user, x, reward)
        with pytest.raises(EventError, match=r"part-1\.parquet row 2: reward is nan"):
            users.source.fill(cluster, users.actors, users.ends, silent)


def test_the_same_kind_and_number_of_classes_is_chosen_for_clicks(cluster, tmp_path):
    folder = write(tmp_path, *draw(40, clicks=True))
    with cluster.read_log(folder, columns=NAMES) as users:
        compare_choice(folder, users)


def compare_choice(folder, users):
    """With the default tolerance and prior: users are drawn by hash, so both look at the same ones."""
    past, read = lcb.read_log(folder, columns=NAMES), partial(lcb.read_log, folder, columns=NAMES)
    here = learn_classes(LearningData("events", past, read), seed=0)
    there = learn_classes(LearningData("events", users, users.read_few), seed=0)
    assert here.models.n_classes > 1
    assert there.why == here.why
    assert there.models.personal == here.models.personal
    np.testing.assert_allclose(there.models.beta, here.models.beta, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(there.models.pi, here.models.pi, rtol=1e-6, atol=1e-9)


def test_item_effects_and_classes_of_an_imported_log_are_those_of_one_machine(cluster, tmp_path):
    rng = np.random.default_rng(0)
    category, appeal = np.arange(30) % 2, rng.normal(size=30)
    user, item = np.repeat(np.arange(100), 10), rng.integers(30, size=1000)
    reward = np.array([[2.0, 0.0], [0.0, 2.0]])[user % 2, category[item]] + appeal[item] + 0.3 * rng.normal(size=1000)
    order = np.tile(np.arange(10), 100)
    pq.write_table(
        pa.table({"user": user, "order": order, "item": item, "reward": reward}), tmp_path / "events.parquet"
    )
    items = {"item": np.arange(30), "categories": [[one] for one in category.tolist()]}
    pq.write_table(pa.table(items), tmp_path / "items.parquet")
    (tmp_path / "categories.json").write_text(json.dumps(["crime", "travel"]))
    history = read_history(tmp_path, "one-hot")
    choice = Choice(Classes(False, 2), 1.0)
    data = LearningData("log", history.log, history.read, history.feature_map, history=history, choice=choice)
    here, there = (learn_classes(data, seed=0, on=on).models for on in (None, cluster))
    assert np.corrcoef(there.item_effects.effect, appeal)[0, 1] > 0.9
    np.testing.assert_allclose(there.item_effects.effect, here.item_effects.effect, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(there.beta, here.beta, rtol=1e-12, atol=1e-12)


def test_lcb_learn_prints_nothing_but_its_json(cluster, tmp_path):
    import ray

    (tmp_path / "events").mkdir()
    write(tmp_path / "events", *draw(300, clicks=True), n_files=1)
    head = ray.get_runtime_context().gcs_address
    run = partial(subprocess.run, capture_output=True, text=True, timeout=200)
    command = [sys.executable, "-c", "from lcb.cli.main import main; main()", "learn", str(tmp_path / "events")]
    command += ["--columns", ",".join(NAMES), "--learner", "em", "--classes", "3", "--out", str(tmp_path / "models")]
    found = run([*command, "--on", head, "--json", "-"])
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout)
    assert (summary["users"], summary["nodes"], summary["likelihood"]) == (300, 1, "bernoulli")


def test_runs_of_a_simulation_are_spread_and_give_the_same_numbers(cluster):
    world = SimulatedWorld(paper_classes(), n_arms=5)
    asked = {"n_users": 20, "n_steps": 5, "n_runs": 2, "seed": 3}
    here = lcb.simulate(world, ["random"], n_workers=1, **asked)
    with parallel.spread(cluster.run):
        there = lcb.simulate(world, ["random"], **asked)
    np.testing.assert_array_equal(there.results[0].regret, here.results[0].regret)
