"""What is said where a cluster cannot be used; drill 46 runs this file in a network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import lcb
from lcb.cluster.calls import Calls, Lost
from lcb.errors import ClusterError
from lcb.event_log import EventLog
from lcb.learners.shared.users import CountNotFinite
from lcb.version import __version__
from support.dying_work import DyingWork
from support.harness import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray leaves sockets open
MAIN = "from lcb.cli.main import main; main()"
STORE = 80 << 20


@pytest.fixture(scope="module")
def machines():
    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE})
    made.add_node(num_cpus=1, object_store_memory=STORE)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def cluster(machines):
    with lcb.connect(machines.address, step_seconds=100) as found:
        yield found


@contextmanager
def added(machines, cluster, **given):
    """One node more for the time of the block."""
    node = machines.add_node(num_cpus=1, object_store_memory=STORE, **given)
    try:
        wait_until(lambda: len(cluster.list_nodes(probe=True)) == 2, "the node did not come", seconds=100)
        wait_until(lambda: all(map(_is_used, cluster.list_nodes())), "Ray does not use the node", seconds=100)
        yield node
    finally:
        machines.remove_node(node)
        wait_until(lambda: len(cluster.list_nodes()) == 1, "Ray did not notice that the node has gone", seconds=100)


def _is_used(node) -> bool:
    """Whether a process for this node is started there: just after it came, the head still starts it beside itself."""
    at = NodeAffinitySchedulingStrategy(node.id, soft=True)
    find = ray.remote(num_cpus=0, scheduling_strategy=at)(lambda: ray.get_runtime_context().get_node_id())
    return ray.get(find.remote(), timeout=100) == node.id


def draw_log(n_users=300):
    return EventLog.from_rows(np.arange(n_users), np.ones((n_users, 1)), np.arange(float(n_users)))


def learn(folder, on, env=None, before=""):
    """Run `lcb learn` on a table; return its exit code, standard output, standard error and seconds."""
    table = folder / "events.parquet"
    rng = np.random.default_rng(0)
    columns = {"user": np.repeat(np.arange(40), 5), "reward": rng.normal(size=200), "sport": rng.normal(size=200)}
    pq.write_table(pa.table(columns), table)
    words = ["learn", str(table), "--columns", "sport", "--learner", "em", "--classes", "2", "--on", on]
    began = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", before + MAIN, *words, "--out", str(folder / "models"), "--json", "-"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ if env is None else env,
    )
    return found.returncode, found.stdout, found.stderr, time.monotonic() - began


def test_a_port_where_nothing_listens_is_told_at_once(tmp_path):
    code, out, err, seconds = learn(tmp_path, "127.0.0.1:9")
    assert (code, out) == (2, "")
    assert "no Ray cluster answers at 127.0.0.1:9; start one (docs/cluster.md), or leave out --on" in err
    assert seconds < 60


@pytest.mark.parametrize("token", [None, "another" * 8])
def test_a_token_that_is_missing_or_wrong_is_explained(machines, tmp_path, token):
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    if token:
        env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    code, out, err, seconds = learn(tmp_path, machines.address, env)
    assert (code, out) == (2, "")
    assert "does not accept this process" in err
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in err
    assert seconds < 100


@pytest.mark.parametrize(
    "before, said",
    [
        ("import ray; ray.__version__ = '9.9.9'\n", "this is Ray 9.9.9 with Python"),
        (
            "import sys, ray._private.utils as own\n"
            "own.compute_version_info = lambda: (own.ray.__version__, '3.11.99')\n",
            "with Python 3.11.99; use the same versions",
        ),
    ],
)
def test_other_versions_of_ray_and_python_are_printed(machines, tmp_path, before, said):
    code, out, err, _ = learn(tmp_path, machines.address, before=before)
    assert (code, out) == (2, "")
    here = ".".join(map(str, sys.version_info[:3]))
    assert f"with Python {here}, this is Ray" in err
    assert said in err
    assert "ray job submit -- lcb learn ... --on ray" in err


def copy_package(folder: Path, version: str) -> Path:
    """Copy lcb under another version."""
    source = Path(lcb.__file__).parent
    shutil.copytree(source, folder / "lcb", ignore=shutil.ignore_patterns("__pycache__"))
    place = folder / "lcb" / "version.py"
    place.write_text(place.read_text().replace(__version__, version))
    assert version in place.read_text()
    return folder


def test_a_node_with_another_lcb_is_refused_for_learning_and_for_runs(machines, cluster, tmp_path):
    other = copy_package(tmp_path, "9.9.9")
    path = f"{other}:{os.environ['PYTHONPATH']}"
    with added(machines, cluster, env_vars={"PYTHONPATH": path}):
        for use in (lambda: lcb.fit(draw_log(), 2, rng=0, on=cluster), lambda: cluster.run(abs, [-1] * 8)):
            with pytest.raises(ClusterError, match=rf"has lcb 9\.9\.9, this is {__version__}; install the same"):
                use()


def test_a_node_that_is_gone_leaves_no_room(machines, cluster, tmp_path, monkeypatch):
    """Memory on the node that is left is as measured, divided by a billion."""
    plain, (home,) = Calls.check_versions, cluster.list_nodes(probe=True)
    with added(machines, cluster), cluster.hold(draw_log()) as users:
        monkeypatch.setattr(Calls, "check_versions", lambda *given: [_divide(one) for one in plain(*given)])
        with pytest.raises(ClusterError, match=r"no other has room for its \d+ users: they need .* add a node"):
            users.sums(DyingWork(CountNotFinite(), str(tmp_path / "mark"), node=True, spare=home.id))


def _divide(free: float | Lost) -> float | Lost:
    return free if isinstance(free, Lost) else free / 1e9


def test_memory_is_estimated_before_anything_is_sent(cluster, monkeypatch):
    monkeypatch.setattr("lcb.cluster.sources.SHARE", 1e-12)
    with pytest.raises(ClusterError, match=r"about 300 users with 1 features? need about .* more nodes"):
        lcb.fit(draw_log(), 2, rng=0, on=cluster)


def test_a_process_that_ray_ends_for_memory_is_not_started_for_ever(machines, tmp_path):
    """The only node is one that takes 2 % of the memory for too much."""
    env = {"RAY_memory_usage_threshold": "0.02", "RAY_memory_monitor_refresh_ms": "100"}
    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 1, "env_vars": env, "gcs_server_port": 6399})
    try:
        code, out, err, _ = learn(tmp_path, made.address)
    finally:
        made.shutdown()
    assert (code, out) == (2, ""), err
    assert "memory" in err


def test_the_last_node_with_a_cpu_goes_away_in_a_step(machines, cluster, tmp_path):
    """The last of these tests: it ends the node."""
    with (
        cluster.hold(draw_log()) as users,
        pytest.raises(ClusterError, match="no machine of the cluster has a CPU to work with; add a node"),
    ):
        users.sums(DyingWork(CountNotFinite(), str(tmp_path / "mark"), node=True))
    wait_until(lambda: not _has_nodes(cluster), "Ray did not notice", seconds=120)
    with pytest.raises(ClusterError, match="no machine of the cluster has a CPU"):
        cluster.run(abs, [-1])
    code, out, err, _ = learn(tmp_path, machines.address)
    assert (code, out) == (2, "")
    assert "no machine of the cluster has a CPU" in err


def _has_nodes(cluster) -> bool:
    try:
        return bool(cluster.list_nodes())
    except ClusterError:
        return False
