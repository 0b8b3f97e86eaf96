"""Verification finds every change to the log, a snapshot or a live user, and finds nothing in an unchanged log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lcb.serve import events
from lcb.serve.audit.export import export
from lcb.serve.audit.report import Report
from lcb.serve.audit.verify import verify
from lcb.serve.chance import draw_number
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.web import keys
from lcb.storage.store.base import NewRow, Snapshot
from lcb.storage.store.open_store import open_store
from lcb.storage.store.snapshots import add_checksums
from support.inside import Inside, pack_cached_users
from support.sessions import run_session


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    made = run_session(tmp_path / "lcb.db")
    yield made
    made.close()


def changed(inside: Inside, seq: int, **fields: Any) -> None:
    """Write an event anew with other values in its body."""
    row = next(iter(inside.store.events(seq - 1, seq)))
    body = events.decode(row.kind, row.body)
    for name, value in fields.items():
        setattr(body, name, value)
    written(inside, "update event set body = ? where seq = ?", (events.encode(body), seq))


def written(inside: Inside, statement: str, values: tuple[Any, ...] = ()) -> None:
    with sqlite3.connect(inside.store.url) as connection:
        connection.execute(statement, values)
    connection.close()


def first(inside: Inside, kind: str, wanted: Any = lambda body: True) -> tuple[int, Any]:
    for row in inside.store.events(0):
        if row.kind == kind:
            body = events.decode(kind, row.body)
            if wanted(body):
                return row.seq, body
    raise AssertionError(f"no {kind} of that kind")


def says(report: Report, seq: int | None, words: str) -> None:
    assert any(one.seq == seq and words in str(one) for one in report.differences), report.differences


def test_a_session_with_everything_verifies(inside: Inside) -> None:
    report = verify(inside.store)
    assert report.differences == []
    rows = list(inside.store.events(0))
    kinds = [row.kind for row in rows]
    assert report.n_events == len(rows)
    assert (report.n_decisions, report.n_rewards) == (kinds.count("decision"), kinds.count("reward"))
    assert report.n_erased == kinds.count("erased decision") > 0
    assert report.n_models == 2
    assert report.n_users == len({row.user for row in rows} - {None})
    assert report.n_snapshots > 10
    bodies = [events.decode("decision", row.body) for row in rows if row.kind == "decision"]
    assert any(body.listed for body in bodies)
    assert any(body.chosen for body in bodies)
    assert any(body.arms is None for body in bodies)
    assert any(body.user_x for body in bodies)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(run_session(tmp_path / "lcb.db", **more))


@pytest.mark.parametrize("rule", ["first", "sum", "last"])
def test_logs_of_every_rule_verify(opened: Any, rule: str) -> None:
    shared = RecommenderSpec("all", "linucb", scope="everyone")
    recommenders = (RecommenderSpec("lcb"), RecommenderSpec("exp4", "exp4"), shared)
    inside = opened(n=40, rewards=rule, reward_range=(0.0, 9.0), recommenders=recommenders)
    ids = [row.id for row in inside.store.events(0) if row.kind == "reward"]
    for i, id in enumerate(ids):
        for _ in range(2):
            inside.reward(id[2:], float(2 + i % 3), **({"reward_id": f"p{i}"} if rule == "sum" else {}))
    assert (len([row for row in inside.store.events(0) if "#" in row.id]) > 0) == (rule != "first")
    report = verify(inside.store, live=pack_cached_users(inside.service.world))
    assert report.differences == []
    if rule == "sum":
        seq, body = first(inside, "reward", lambda body: body.before is not None)
        changed(inside, seq, reward=body.reward + 1)
        says(verify(inside.store), seq, "the sum")


def test_decisions_are_made_again_from_what_they_had_seen_not_from_their_place(opened: Any) -> None:
    inside = opened(n=20, recommenders=(RecommenderSpec("all", "linucb", scope="everyone"),))
    arms = [{"id": "a", "x": [1.0, 0.0, 0.5]}, {"id": "b", "x": [0.0, 1.0, 0.5]}]
    begun = [inside.begin_decide("u0", arms=arms, decision_id=f"x{i}") for i in range(3)]
    ids = [row.id for row in inside.store.events(0) if row.kind == "decision"]
    begun += [inside.begin_reward(id, 1.0) for id in ids]
    begun += [inside.begin_decide("new", arms=arms, decision_id="y")]
    inside.write()
    assert all(one.done() for one in begun)
    bodies = [events.decode("decision", row.body) for row in inside.store.events(0) if row.id in ("x1", "y")]
    assert bodies[0].seen == bodies[1].seen
    assert verify(inside.store).differences == []


def test_another_arm_propensity_distribution_or_advice_is_found(inside: Inside) -> None:
    for name, change in (
        ("propensity", lambda taken: taken.propensity * 0.5),
        ("arm", lambda taken: (taken.arm + 1) % 3),
        ("id", lambda taken: "another"),
        ("distribution", lambda taken: np.frombuffer(taken.distribution, float)[::-1].tobytes()),
        ("advice", lambda taken: (np.frombuffer(taken.advice, float) + 2**-50).tobytes()),
        ("x", lambda taken: (np.frombuffer(taken.x, float) + 2**-50).tobytes()),
        ("at_random", lambda taken: not taken.at_random),
    ):
        seq, body = first(
            inside, "decision",
            lambda body, name=name: getattr(body.taken[0], name) is not None
            and (name != "distribution" or len(set(np.frombuffer(body.taken[0].distribution, float))) > 1),
        )  # fmt: skip
        taken = list(body.taken)
        before = events.encode(taken[0])
        setattr(taken[0], name, change(taken[0]))
        changed(inside, seq, taken=taken)
        says(verify(inside.store), seq, "item" if name == "id" else name)
        changed(inside, seq, taken=[events.msgspec.msgpack.decode(before, type=events.ChosenArm), *taken[1:]])
    assert verify(inside.store).differences == []


def test_what_a_shadow_was_told_is_made_again(inside: Inside) -> None:
    seq, body = first(inside, "decision", lambda body: body.chosen is not None)
    body.chosen.x = (np.frombuffer(body.chosen.x, float) + 0.5).tobytes()
    changed(inside, seq, chosen=body.chosen)
    says(verify(inside.store), seq, "x: stored")


def test_a_reward_that_was_changed_is_found(inside: Inside) -> None:
    seq, body = first(inside, "reward")
    changed(inside, seq, propensity=body.propensity / 2)
    says(verify(inside.store), seq, "propensity, x, at_random and advice")


def test_a_reward_of_nothing_is_found(inside: Inside) -> None:
    seq, _ = first(inside, "reward")
    changed(inside, seq, decision=1)
    says(verify(inside.store), seq, "the decision of reward")


def test_a_reward_value_that_was_changed_shows_in_later_decisions_or_snapshots(inside: Inside) -> None:
    seq, body = first(inside, "reward")
    changed(inside, seq, reward=1.0 - body.reward)
    assert verify(inside.store).n_differences > 0


def test_a_gap_is_found(inside: Inside) -> None:
    written(inside, "delete from event where seq = 9")
    report = verify(inside.store)
    says(report, 9, "missing: event 8 is followed by event 10")
    assert (report.n_events, report.first) == (8, 9)


def test_a_log_without_its_beginning_is_found_and_the_words_say_how_to_check_a_part(inside: Inside) -> None:
    written(inside, "delete from event where seq < 9")
    says(verify(inside.store), 1, "missing: the log begins with event 9; to check a part of a log, give the head")


def test_a_user_that_was_changed_is_told_in_words(inside: Inside) -> None:
    seq, _ = first(inside, "reward")
    written(inside, "update event set user = 'somebody' where seq = ?", (seq,))
    report = verify(inside.store)
    assert report.first == seq
    says(report, seq, "this reward is not what was written at this place")
    says(report, seq, "its user 'somebody' has no decision; replay ends here")
    assert "AssertionError" not in "".join(map(str, report.differences))
    written(inside, "update event set user = null where seq = ?", (seq,))
    says(verify(inside.store), seq, "it has no user; replay ends here")


def test_a_log_that_lost_its_end_under_a_snapshot_is_found(inside: Inside) -> None:
    kept = inside.store.snapshot("world")
    assert kept is not None
    written(inside, "delete from event where seq > ?", (kept.seq - 3,))
    assert verify(inside.store).n_differences > 0


def test_a_model_with_one_flipped_bit_is_found(inside: Inside) -> None:
    seq, body = first(inside, "model")
    tensors = bytearray(body.tensors)
    tensors[-1] ^= 1
    changed(inside, seq, tensors=bytes(tensors))
    report = verify(inside.store)
    assert any("sha256" in str(one) or "damaged" in str(one) for one in report.differences)


def write_snapshot(inside: Inside, snapshot: Snapshot) -> None:
    """With a right checksum, as a bug in the service would."""
    written(inside, "insert or replace into snapshot values(?, ?, ?, ?)", *add_checksums([snapshot]))


def test_a_snapshot_of_a_user_that_is_not_the_fold_is_found(inside: Inside) -> None:
    one = next(inside.store.all_snapshots("user/"))
    body = bytearray(one.body)
    body[-1] ^= 1
    write_snapshot(inside, one._replace(body=bytes(body)))
    says(verify(inside.store), None, one.name)


def test_a_damaged_snapshot_is_counted_and_is_no_difference_because_nobody_uses_it(inside: Inside) -> None:
    n = verify(inside.store).n_snapshots
    one = next(inside.store.all_snapshots("user/"))
    written(inside, "update snapshot set body = ? where name in (?, 'world')", (one.body[:-1], one.name))
    report = verify(inside.store)
    assert (report.n_damaged, report.n_snapshots, report.differences) == (2, n - 2, [])


def test_a_snapshot_of_nobody_is_found(inside: Inside) -> None:
    write_snapshot(inside, next(inside.store.all_snapshots("user/"))._replace(name="user/ghost"))
    says(verify(inside.store), None, "ghost")


def test_a_snapshot_of_everything_that_is_not_the_fold_is_found(inside: Inside) -> None:
    world = inside.service.world
    world.tally("lcb").change_rewards(0.0, 1.0)
    write_snapshot(inside, world.snapshot())
    says(verify(inside.store), None, "the tally of lcb")


def test_a_live_user_that_is_not_the_fold_is_found(inside: Inside) -> None:
    name = inside.store.users()[0]
    user = inside.service.world.user(name)
    assert user is not None
    assert verify(inside.store, live={name: user.pack()}).differences == []
    user.n_rewards += 1
    says(verify(inside.store, live={name: user.pack()}), None, name)
    says(verify(inside.store, live={"ghost": user.pack()}), None, "ghost")


def test_an_erased_event_that_no_erasure_names_is_found(inside: Inside) -> None:
    seq, _ = first(inside, "erased decision")
    erase, body = first(inside, "erase")
    changed(inside, erase, history=[past for past in body.history if past[0] != seq])
    says(verify(inside.store), seq, "no erasure lists")


def test_another_seed_makes_other_decisions(inside: Inside) -> None:
    seq, _ = first(inside, "service")
    changed(inside, seq, seed=b"another")
    assert verify(inside.store).n_differences > 5
    assert draw_number(b"another", "d1") != draw_number(b"a seed of a drill", "d1")


@pytest.mark.parametrize("user", [None, "ann"])
def test_what_is_compared_with_the_log_is_so_for_one_user_too(inside: Inside, user: str | None) -> None:
    keys.create(inside.store, "shop", "writer", 1.0)
    inside.store.append([], inside.store.head(), inside.service.build_snapshots())
    assert verify(inside.store, user=user).differences == []
    written(inside, "update key set scope = 'admin'")
    written(inside, "drop index event_of_user")
    write_snapshot(inside, next(inside.store.all_snapshots("user/"))._replace(name="user/ghost"))
    report = verify(inside.store, user=user)
    for words in ("key 'shop' has scope admin in the table", "the schema is not as lcb made it", "ghost"):
        assert any(words in str(one) for one in report.differences), words


def test_one_user_can_be_verified_alone(inside: Inside) -> None:
    name = inside.store.users()[0]
    report = verify(inside.store, user=name)
    rows = inside.store.events_of(name)
    assert report.n_decisions == sum(row.kind == "decision" for row in rows)
    assert (report.n_users, report.differences) == (1, [])


def test_a_person_erased_during_the_verification_is_no_difference(inside: Inside) -> None:
    names = inside.store.users()
    n = inside.store.head()

    def progress(what: str, done: int, total: int | None) -> None:
        if what == "recomputing decisions" and names:
            inside.erase(names.pop())
            names.clear()

    report = verify(inside.store, progress)
    assert report.differences == []
    assert report.n_events == n + 1


def test_a_log_in_postgresql_verifies_and_exports_the_same(
    inside: Inside, postgres_database: str, tmp_path: Path
) -> None:
    far = open_store(postgres_database)
    rows = list(inside.store.events(0))
    far.append([NewRow(*row[1:]) for row in rows], 0, inside.service.build_snapshots())
    try:
        report, here = verify(far), verify(inside.store)
        assert report.differences == []
        assert (report.n_decisions, report.n_rewards, report.n_erased) == (
            here.n_decisions, here.n_rewards, here.n_erased,
        )  # fmt: skip
        export(far, tmp_path / "far.parquet", missing=None)
        export(inside.store, tmp_path / "near.parquet", missing=None)
    finally:
        far.close()
    tables = [pq.read_table(tmp_path / f"{name}.parquet").sort_by("seq").to_pylist() for name in ("far", "near")]
    assert sorted(map(repr, tables[0])) == sorted(map(repr, tables[1]))


def test_a_pointer_to_common_bytes_that_do_not_exist_is_found(inside: Inside) -> None:
    """The body of such an event is read as it is, so digest and link are right."""
    seq, _ = first(inside, "decision")
    written(inside, "update event set common = 1 where seq = ?", (seq,))
    report = verify(inside.store)
    says(report, seq, "which does not exist")
    assert report.first == seq
