"""Faults on a Ray cluster of three nodes; `tests/drills/test_46_cluster.py` runs this file in a network of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

import lcb
from lcb.cluster.items import ItemShards
from lcb.cluster.shards import Shards
from lcb.learners.effects.learn import learn_with_effects
from lcb.learners.effects.rows import ItemRows
from support.dying_work import DyingWork
from support.harness import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::lcb.ConvergenceWarning", "ignore::DeprecationWarning")
NAMES = [f"x{j}" for j in range(6)]
STORE = 80 << 20  # bytes of the object store of a node, about the least that Ray allows


@pytest.fixture(scope="session")
def machines():
    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE})
    for _ in range(3):
        made.add_node(num_cpus=1, object_store_memory=STORE)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.fixture(scope="session")
def cluster(machines):
    with lcb.connect(machines.address, step_seconds=200) as found:
        yield found


def write(folder: Path, n_rows: int, n_users: int, n_files: int = 6) -> Path:
    rng, folder = np.random.default_rng(0), folder / "events"
    folder.mkdir()
    beta, label = rng.normal(size=(4, 6)), rng.integers(4, size=n_users)
    for i in range(n_files):
        user, x = rng.integers(n_users, size=n_rows // n_files), rng.normal(size=(n_rows // n_files, 6))
        reward = (x * beta[label[user]]).sum(axis=1) + rng.normal(size=len(user))
        columns = {"user": user, "reward": reward, **dict(zip(NAMES, x.T, strict=True))}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    return folder


def learn(users):
    return lcb.fit(users, 4, rng=0, tol=1e-14, max_steps=300).models


def test_a_worker_and_a_node_that_are_lost_in_a_step_change_no_bit(cluster, tmp_path, monkeypatch):
    folder, plain, calls = write(tmp_path, 60_000, 25_000), Shards.sums, []
    with cluster.read_log(folder, columns=NAMES) as users:
        assert (cluster.n_nodes, len(users.actors)) == (3, 3)
        before = learn(users)
        mine = ray.get_runtime_context().get_node_id()  # a node that this process needs itself
        died = {3: {}, 6: {"node": True, "spare": mine}}  # a worker in the third sum, a whole node in the sixth

        def sum_dying(self, work):
            calls.append(work)
            how = died.get(len(calls))
            return plain(self, work if how is None else DyingWork(work, str(tmp_path / f"mark {len(calls)}"), **how))

        monkeypatch.setattr(Shards, "sums", sum_dying)
        after = learn(users)
        assert len(list(tmp_path.glob("mark*"))) == 2
        assert 2 <= cluster.n_restarts <= 3
    monkeypatch.undo()
    wait_until(lambda: len(cluster.list_nodes()) == 2, "Ray did not notice that a node is gone", seconds=120)
    with cluster.read_log(folder, columns=NAMES) as users:  # two nodes are left
        assert len(users.actors) == 2
        anew = learn(users)
    for found in (after, anew):
        np.testing.assert_array_equal(found.beta, before.beta)
        np.testing.assert_array_equal(found.pi, before.pi)
    here = learn(lcb.read_log(folder, columns=NAMES))
    np.testing.assert_allclose(before.beta, here.beta, atol=1e-6)


def draw_items() -> ItemRows:
    """Rewards of 40 items from 3,000 users of two classes."""
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(3000), 8), rng.integers(40, size=24_000)
    x, appeal = rng.normal(size=(40, 2)), rng.normal(size=40)
    reward = appeal[item] + (x[item] * 1.5 * np.eye(2)[user % 2]).sum(axis=1) + 0.5 * rng.normal(size=len(user))
    return ItemRows(tuple(map(str, range(40))), x, user, item, reward, ("sport", "arts"))


def test_a_worker_and_a_node_that_are_lost_while_item_effects_are_summed_change_no_bit(
    machines, cluster, tmp_path, monkeypatch
):
    cluster.n_restarts = 0
    machines.add_node(num_cpus=1, object_store_memory=STORE)
    wait_until(lambda: len(cluster.list_nodes(probe=True)) == 3, "the node did not come", seconds=100)
    plain, calls, mine = ItemShards.sum_items, [], ray.get_runtime_context().get_node_id()

    def fit(users, start):
        given = {} if start is None else {"start": start, "n_starts": 0}
        return lcb.fit(users, 2, rng=0, learner="em", max_steps=10, **given)

    with cluster.hold_items(draw_items()) as items:
        assert len(items.users.actors) == 3
        before = learn_with_effects(items, fit).models
        died = {2: {}, 5: {"node": True, "spare": mine}}  # a worker in the second sum, a whole node in the fifth

        def sum_dying(self, work):
            calls.append(work)
            how = died.get(len(calls))
            return plain(self, work if how is None else DyingWork(work, str(tmp_path / f"mark {len(calls)}"), **how))

        monkeypatch.setattr(ItemShards, "sum_items", sum_dying)
        after = learn_with_effects(items, fit).models
    assert len(list(tmp_path.glob("mark*"))) == 2
    assert 2 <= cluster.n_restarts <= 3
    np.testing.assert_array_equal(after.item_effects.effect, before.item_effects.effect)
    np.testing.assert_array_equal(after.item_effects.variance, before.item_effects.variance)
    np.testing.assert_array_equal(after.beta, before.beta)


def test_more_events_than_the_object_stores_hold_are_spilled(cluster, tmp_path):
    cluster.n_restarts = 0
    n_rows = 4_800_000  # 307 MB of rows, in stores of 240 MB
    folder = write(tmp_path, n_rows, 50_000, n_files=12)
    with cluster.read_log(folder, columns=NAMES) as users:
        assert users.n_events == n_rows
        assert users.n_users == 50_000
    logs = Path(os.environ["RAY_TMPDIR"], "ray", "session_latest", "logs")
    assert list(logs.glob("*spill_worker*"))
    assert list(logs.glob("*restore_worker*"))


SCRIPT = """
import sys
import ray
{before}
import lcb
try:
    with lcb.connect(sys.argv[1]) as cluster:
        {during}
except lcb.ClusterError as error:
    print(error)
"""


def run_script(address, before="", during="print('connected')"):
    script = SCRIPT.format(before=before, during=during)
    command = [sys.executable, "-c", script, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_another_version_of_ray_is_refused(machines):
    found = run_script(machines.address, before="ray.__version__ = '9.9.9'")
    assert f"runs Ray {ray.__version__} with Python" in found.stdout
    assert "this is Ray 9.9.9 with Python" in found.stdout
    assert "ray job submit" in found.stdout


def test_a_wrong_token_is_explained(machines):
    before = "import os; os.environ['RAY_AUTH_TOKEN'] = 'another' * 8"
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in run_script(machines.address, before=before).stdout


def test_a_cluster_that_goes_away_is_said(machines, tmp_path):
    """The last of these tests: it ends the head."""
    during = f"""
        import numpy as np
        from support.dying_work import DyingWork
        from lcb.learners.shared.users import CountNotFinite
        log = lcb.EventLog.from_rows(np.arange(300), np.ones((300, 1)), np.arange(300.0))
        with cluster.hold(log) as users:
            users.sums(DyingWork(CountNotFinite(), {str(tmp_path / "mark")!r}, head={os.getpid()}))
"""
    found = run_script(machines.address, during=during.strip())
    assert "has gone while a step was computed; start it again" in found.stdout, found.stdout + found.stderr
