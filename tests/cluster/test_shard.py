"""What one process of a cluster holds and sums, here without Ray."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from itertools import chain, pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lcb
from lcb.cluster.calls import Lost, Node, _shorten
from lcb.cluster.heads import explain, find_head
from lcb.cluster.items import FromItems, ItemShards
from lcb.cluster.shard import FileSummary, Shard, join_logs, number_arms, read_file
from lcb.cluster.shards import Shards
from lcb.cluster.sources import FromLog, check_same, need_moved_room, need_room
from lcb.cluster.trees import N_PARTS, add_all, add_within
from lcb.errors import ClusterError, InputError
from lcb.event_log import EventLog
from lcb.learners.effects.learn import improve_effects, start_effects
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import SumItems
from lcb.learners.em.bernoulli import ExpectClicks
from lcb.learners.em.gaussian import Expect
from lcb.learners.shared.users import Local, map_here
from lcb.models import LatentModels
from lcb.progress import silent
from lcb.storage.tables.event_rows import EventColumns

NAMES = ("sport", "arts")


def write_events(folder, *, clicks=False, n_users=700, text=True):
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(9, 2)).round(3)
    for i in range(3):
        user, x = rng.integers(n_users, size=1500), arms[rng.integers(9, size=1500)]
        reward = rng.integers(2, size=1500) if clicks else rng.normal(size=1500)
        ids = [f"user {j}" for j in user] if text else user
        columns = {"user": ids, "reward": reward.astype(float), **dict(zip(NAMES, x.T, strict=True))}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    return folder


def fill(folder, n_shards) -> list[Shard]:
    """Give the rows of the files to several shards, as a cluster does."""
    ends = [round(i * N_PARTS / n_shards) for i in range(n_shards + 1)]
    files = sorted(map(str, folder.glob("*.parquet")))
    read = [read_file(file, EventColumns(NAMES), None, ends, range(n_shards)) for file in files]
    shards = [Shard((ends[i], ends[i + 1]), 1) for i in range(n_shards)]
    for i, shard in enumerate(shards):
        for summary, *rows in read:
            shard.add_rows(rows[i], summary.features)
    rewards = tuple(sorted({value for shard in shards for value in shard.count_rewards()})[:3])
    first, found = 0, [shard.finish(rewards, "float64") for shard in shards]
    arms = [shard.get_arms() for shard in shards]
    union = None if arms[0] is None else np.unique(np.concatenate(arms), axis=0)
    for shard, holding in zip(shards, found, strict=True):
        shard.place_users(first, union)
        first += sum(holding.part_sizes)
    return shards


def sum_all(shards, work):
    return add_all(dict(chain.from_iterable(shard.sums(work).items() for shard in shards)))


@pytest.mark.parametrize("text", [True, False])
def test_the_number_of_shards_changes_no_bit(tmp_path, text):
    folder = write_events(tmp_path, text=text)
    models = LatentModels([0.4, 0.6], [[0.1, 0.2], [-0.3, 0.4]], [0.5, 0.7], NAMES)
    work = Expect(np.ascontiguousarray(models.packed().T), models.log_pi)
    one, three = (sum_all(fill(folder, n), work) for n in (1, 3))
    np.testing.assert_array_equal(one.statistics, three.statistics)
    assert one.log_evidence == three.log_evidence
    here = lcb.read_log(folder, columns=NAMES)
    assert one.log_evidence == pytest.approx(models.user_scores(here).sum(), rel=1e-12)
    np.testing.assert_allclose(one.statistics.sum(axis=1), here.stats.total.packed[:, 0], rtol=1e-12)


class OnShards(Local):
    """Users on some shards."""

    def __init__(self, shards, log):
        super().__init__(log, map_here)
        self.shards = shards

    def take(self, index):
        return join_logs([shard.take(np.arange(shard.log.n_users)) for shard in self.shards]).take(index)

    def sums(self, work):
        return sum_all(self.shards, work)


def test_learners_draw_the_same_users_here_and_from_shards(tmp_path):
    """So the number of classes, the prior, the starts and the number of steps are the same, and weights to rounding."""
    folder = write_events(tmp_path)
    past = lcb.read_log(folder, columns=NAMES)
    users = OnShards(fill(folder, 3), past)
    assert not np.array_equal(past.order, np.arange(past.n_users))
    np.testing.assert_array_equal(users.take([7, 3]).stats.packed, past.take(past.order[[7, 3]]).stats.packed)
    here, there = (lcb.fit(data, rng=0) for data in (past, users))
    assert (there.n_steps, there.held_out) == (here.n_steps, here.held_out)
    np.testing.assert_allclose(there.models.beta, here.models.beta, rtol=1e-9, atol=1e-12)


def test_neighbours_are_added_as_in_one_tree():
    """Floats whose sums round: the tree over all parts is the same wherever it is cut, and some parts are empty."""
    values = np.random.default_rng(0).lognormal(0, 8, N_PARTS).tolist()
    parts = {(0, i): value for i, value in enumerate(values) if i % 5}
    for n_shards in (1, 2, 3, 7, 256):
        ends = [round(i * N_PARTS / n_shards) for i in range(n_shards + 1)]
        sent = [
            add_within({place: value for place, value in parts.items() if begin <= place[1] < end}, begin, end)
            for begin, end in pairwise(ends)
        ]
        assert max(map(len, sent)) <= 16
        assert add_all(dict(chain.from_iterable(one.items() for one in sent))) == add_all(parts)
    assert add_all(parts) == pytest.approx(sum(parts.values()), rel=1e-12)


class NoRay:
    """Calls shards in this process as a cluster does."""

    def wait(self, calls, what, done=None, *, deadline=True):
        return list(calls)


class Here:
    """A shard whose methods have `remote`, as those of an actor do."""

    def __init__(self, shard):
        self.shard = shard

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.shard, name))


@pytest.mark.parametrize("personal", [False, True])
def test_item_effects_are_sums_over_shards(personal):
    """Of 1 and 3 shards to the bit, and of one machine to rounding; one user has several rewards for an item."""
    rng = np.random.default_rng(0)
    user, item, x = np.sort(rng.integers(400, size=5000)), rng.integers(40, size=5000), rng.normal(size=(40, 2))
    user = np.unique(user, return_inverse=True)[1]
    appeal, beta = rng.normal(size=40), np.array([[1.5, 0.0], [0.0, 1.5]])
    reward = appeal[item] + (x[item] * beta[user % 2]).sum(axis=1) + 0.5 * rng.normal(size=5000)
    rows = ItemRows(tuple(map(str, range(40))), x, user, item, reward, ("sport", "arts"))
    covariance = np.array([0.2 * np.eye(2)] * 2) if personal else None
    models = LatentModels([0.5, 0.5], beta, [0.25, 0.25], rows.features, covariance=covariance, personal=personal)
    effects = start_effects(rows)
    work = SumItems(models, effects.effect, with_size=True, level=0.1)
    found = []
    for n_shards in (1, 3):
        ends = [round(i * N_PARTS / n_shards) for i in range(n_shards + 1)]
        shards = {i: Here(Shard((ends[i], ends[i + 1]), 1)) for i in range(n_shards)}
        source = FromItems(rows=rows)
        held = source.fill(NoRay(), shards, ends, silent)
        assert sum(sum(one.part_sizes) for one in held.values()) == rows.n_users
        users = Shards(NoRay(), source)
        users.actors = shards
        items = ItemShards(users, source)
        improved = improve_effects(effects, items, models)
        assert items.history(effects.effect) is users
        logs = [shard.shard.log.stats.packed for shard in shards.values()]
        found.append((items.sum_items(work), improved, np.concatenate(logs, axis=1), start_effects(items)))
    one, three = found
    here = work.run(rows)
    for name in ("rest", "squares", "size", "left"):
        np.testing.assert_array_equal(getattr(one[0], name), getattr(three[0], name))
        np.testing.assert_allclose(getattr(one[0], name), getattr(here, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one[2], rows.history(effects.effect).stats.packed)
    np.testing.assert_array_equal(one[2], three[2])
    for i, wanted in ((1, improve_effects(effects, rows, models)), (3, effects)):
        np.testing.assert_array_equal(one[i].effect, three[i].effect)
        np.testing.assert_allclose(one[i].effect, wanted.effect, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(one[i].variance, wanted.variance, rtol=1e-12)


def test_clicks_are_counted_by_the_arms_of_all_shards(tmp_path):
    folder = write_events(tmp_path, clicks=True)
    work = ExpectClicks(np.array([[0.1, 0.2], [-0.3, 0.4]]), np.log([0.4, 0.6]))
    one, two = (sum_all(fill(folder, n), work) for n in (1, 2))
    np.testing.assert_array_equal(one.clicked, two.clicked)
    here = lcb.read_log(folder, columns=NAMES).clicks
    order = np.lexsort(here.arms.T[::-1])
    np.testing.assert_allclose(one.clicked.sum(axis=1), here.clicked.sum(axis=0)[order])
    np.testing.assert_allclose(one.passed.sum(axis=1), here.passed.sum(axis=0)[order])


def test_a_shard_without_users_counts_clicks_with_the_others(tmp_path):
    pq.write_table(
        pa.table({"user": ["ann", "ann", "bob"], "reward": [1.0, 0.0, 1.0], "sport": [1.0] * 3, "arts": [0.0] * 3}),
        tmp_path / "few.parquet",
    )
    ends, file = [0, 128, 256], str(tmp_path / "few.parquet")
    summary = read_file(file, EventColumns(NAMES), None, ends, [0, 1])[0]
    assert summary.n_rows == 3
    assert len(summary.hashes) == 2
    shard = Shard((0, 256), 1)
    shard.add_rows(None, summary.features)
    holding = shard.finish((0.0, 1.0), "float64")
    assert holding.n_events == sum(holding.part_sizes) == 0
    assert list(shard.sums(Expect(np.ones((1, 7)), np.zeros(1))).items()) == []


def test_users_are_taken_from_a_shard_by_position(tmp_path):
    (shard,) = fill(write_events(tmp_path), 1)
    some = shard.take(np.array([5, 2]))
    np.testing.assert_array_equal(some.stats.packed, shard.log.stats.packed[:, [5, 2]])


def test_logs_are_joined_and_arms_renumbered():
    log = EventLog.from_rows(user=[0, 0, 1], x=[[2.0], [1.0], [1.0]], reward=[1, 0, 1])
    arms = np.array([[0.0], [1.0], [2.0]])
    own = number_arms(log.clicks, arms)
    assert own.clicked.toarray().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert own.passed.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    both = join_logs([log, log])
    assert both.n_users == 4
    assert both.clicks.clicked.shape == (4, 2)


def test_files_that_differ_are_refused():
    none = np.zeros(0, np.uint64)
    first = FileSummary("a.parquet", ("x",), True, 5, none)
    with pytest.raises(InputError, match=r"b\.parquet has the features y, a\.parquet x; give parts of one table"):
        check_same([first, FileSummary("b.parquet", ("y",), True, 5, none)])
    with pytest.raises(InputError, match=r"b\.parquet column user holds text, a\.parquet integers"):
        check_same([first, FileSummary("b.parquet", ("x",), False, 5, none)])
    with pytest.raises(InputError, match="has no rows"):
        check_same([FileSummary("c/a.parquet", (), True, 0, none)])


def test_a_file_that_a_node_does_not_find_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.parquet is not on the node .*; put the events where every node finds"):
        read_file(str(tmp_path / "gone.parquet"), EventColumns(NAMES), None, [0, 256], [0])


def test_statistics_that_do_not_fit_are_refused_first():
    need_room(1_000_000, 6, 8, [1e9])  # 464 MB
    words = (
        r"about 100,000,000 users with 21 features need about 406 GB of memory on 2 nodes, .*--float32, --users or more"
    )
    with pytest.raises(ClusterError, match=words):
        need_room(100_000_000, 21, 8, [16e9, 64e9])
    with pytest.raises(ClusterError, match="more nodes"):
        FromLog(EventLog.from_rows(user=[0, 1], x=[[1.0], [2.0]], reward=[1, 2])).check_memory([10.0])


VERSIONS = """Version mismatch: The cluster was started with:
    Ray: 2.61.0
    Python: 3.11.9
This process on node 10.0.0.7 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


@pytest.mark.parametrize(
    "came, said",
    [
        (
            VERSIONS,
            r"runs Ray 2\.61\.0 with Python 3\.11\.9, this is Ray 2\.60\.0 with Python 3\.11\.7; .*ray job submit",
        ),
        ("Failed to connect to GCS within 5 seconds", r"RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"),
        ("InvalidAuthToken: Authentication token is missing or incorrect", "does not accept this process"),
        ("no disk\nno luck", "Ray does not start at head:6379: no disk; see docs/cluster.md"),
    ],
)
def test_what_ray_says_is_explained(came, said):
    with pytest.raises(ClusterError, match=said):
        raise explain(came, ("head", 6379))


def test_a_cluster_that_does_not_answer_is_named(monkeypatch, tmp_path):
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127\.0\.0\.1:1; start one"):
        lcb.connect("127.0.0.1:1")
    for wrong in ("somewhere", "host:port"):
        with pytest.raises(InputError, match="it is ray, local, or HOST:PORT"):
            lcb.connect(wrong)
    with pytest.raises(InputError, match="address of the Ray client"):
        find_head("ray://10.0.0.1:10001")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ClusterError, match="this machine belongs to no Ray cluster"):
        find_head("ray")
    with pytest.raises(InputError, match="step_seconds=0"):
        lcb.connect("local", step_seconds=0)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_of_something_else_is_told_soon(monkeypatch, answer):
    """Ray itself tries for up to 14 minutes; an empty answer stands for a program that says nothing."""
    monkeypatch.setattr("lcb.cluster.heads._PROBE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as held:

        def accept():
            for _ in range(2):
                one = held.enter_context(listening.accept()[0])
                if answer:
                    one.sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"what listens at {place} is no Ray cluster; give the port of the head"):
            find_head(place)
        thread.join()


class LosingCluster:
    """Loses the first processes before their first answer, as Ray does while it does not know that a node has gone."""

    def __init__(self, n_lost, left=()):
        self.n_lost, self.left, self.started = n_lost, left, []

    def list_nodes(self, *, probe):
        assert probe
        return self.left

    def start_shard(self, parts, node):
        self.started.append((parts, node.address))
        return len(self.started)

    def check_versions(self, actors, nodes):
        return [Lost("its node has died") if actor <= self.n_lost else 1e9 * actor for actor in actors]


def test_a_process_that_is_lost_before_its_first_answer_is_started_again(monkeypatch):
    """On its machine, or on another if that has gone."""
    monkeypatch.setattr("lcb.cluster.shards._NOTICE_SECONDS", 0.0)
    nodes = {i: Node(f"id {i}", f"10.0.0.{i}", 1, 2) for i in range(2)}
    users = Shards(LosingCluster(1, list(nodes.values())), FromLog(EventLog.from_rows([0], [[1.0]], [1.0])))
    users.ends = [0, 128, 256]
    assert users._start(nodes) == {0: 3e9, 1: 2e9}
    assert users.actors == {0: 3, 1: 2}
    assert users.cluster.started == [((0, 128), "10.0.0.0"), ((128, 256), "10.0.0.1"), ((0, 128), "10.0.0.0")]
    users.cluster = LosingCluster(1, [nodes[1]])
    users._start(nodes)
    assert users.cluster.started[-1] == ((0, 128), "10.0.0.1")
    assert users.places == {0: nodes[1], 1: nodes[1]}
    users.cluster = LosingCluster(1000, list(nodes.values()))
    with pytest.raises(ClusterError, match=r"lcb does not start on the node 10\.0\.0\.0; .*: its node has died"):
        users._start(nodes)
    assert len(users.cluster.started) == 6


def test_what_ray_says_of_a_lost_process_is_cut_to_its_reason():
    said = (
        "The actor died unexpectedly.\n\tclass_name: Shard\n\tactor_id: 0b15\nThe actor died because its node has died."
    )
    assert _shorten(RuntimeError(said)) == "The actor died unexpectedly. The actor died because its node has died."


def test_users_of_a_lost_node_need_room_on_another():
    need_moved_room(1000, 1e9, "10.0.0.7", 2e9)
    with pytest.raises(
        ClusterError, match=r"its 1,000 users: they need about 1 GB, and the node 10\.0\.0\.7 has 0\.5 GB"
    ):
        need_moved_room(1000, 1e9, "10.0.0.7", 0.5e9)


def test_without_ray_the_line_that_installs_it_is_given(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(lcb.MissingExtra, match=r"ray is not installed; .*pip install '\.\[ray\]'"):
        lcb.connect("local")


def test_learners_of_one_machine_are_refused_with_the_reason():
    log = EventLog.from_rows(user=[0, 1], x=[[1.0], [2.0]], reward=[1, 2])
    with pytest.raises(InputError, match="learner mixture runs on one machine: every user takes a seat in turn"):
        lcb.fit(log, rng=0, learner="mixture", on=object())
    with pytest.raises(InputError, match=r"on='ray' is an address; give the cluster there: on=lcb\.connect\('ray'\)"):
        lcb.fit(log, rng=0, on="ray")
