"""What the learning process reads of a log, and which users it holds out."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.errors import TooFewRows
from lcb.evaluate.worlds.paper import paper_classes
from lcb.serve import events
from lcb.serve.learn import training_data
from lcb.serve.learn.training_data import is_held_out, read_training_data
from lcb.storage.store.base import NewRow, Store
from support.reward_log import SEED, add, reward, rewards_of, service


def test_of_a_reward_that_was_changed_the_last_value_counts_once(store: Store) -> None:
    service(store, "sum")
    add(store, [reward("ann", "a", [1.0], 1.0), reward("bob", "b", [1.0], 1.0), reward("ann", "a", [1.0], 3.0, 1.0, 2)])
    add(store, [reward("ann", "a", [1.0], 6.0, 3.0, 3)])
    stats = read_training_data(store, store.head(), "sum", ()).stats
    assert stats.users == ("ann", "bob")
    assert stats.count.tolist() == [1, 1]
    assert stats.moment[:, 0].tolist() == [6.0, 1.0]


def test_the_log_is_read_as_far_as_the_job_says(store: Store) -> None:
    service(store, "last")
    add(store, [reward("ann", "a", [1.0], 1.0), reward("ann", "b", [1.0], 1.0), reward("ann", "a", [1.0], 9.0, 1.0, 2)])
    assert read_training_data(store, 3, "last", ()).stats.moment[0, 0] == 2.0
    assert read_training_data(store, 4, "last", ()).stats.moment[0, 0] == 10.0


def test_what_was_a_persons_is_not_learned_from_after_the_erasure(store: Store) -> None:
    service(store)
    left = events.ErasedReward("population", True, 1.0, 1.0, np.ones(1).tobytes(), False, None, None)
    add(store, [reward("ann", "a", [1.0], 0.5), NewRow("erased/3", "erased reward", None, None, events.encode(left))])
    assert read_training_data(store, store.head(), "once", ()).stats.count.tolist() == [1]


def test_long_logs_are_read_in_blocks_to_the_same_statistics(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 7, 5))
    whole = read_training_data(store, store.head(), "once", ()).stats
    monkeypatch.setattr(training_data, "_BLOCK", 4)
    np.testing.assert_allclose(
        read_training_data(store, store.head(), "once", ()).stats.packed, whole.packed, rtol=1e-12
    )


def test_a_log_without_rewards_is_too_little(store: Store) -> None:
    service(store)
    with pytest.raises(TooFewRows, match="no user has given a reward"):
        read_training_data(store, store.head(), "once", ())


def test_the_same_users_judge_every_version_and_they_are_the_share_that_was_asked_for() -> None:
    names = [f"user {i}" for i in range(4000)]
    held = [is_held_out(SEED, name, 0.2) for name in names]
    assert held == [is_held_out(SEED, name, 0.2) for name in names]
    assert abs(np.mean(held) - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / len(names))
    assert held != [is_held_out(b"another log's se", name, 0.2) for name in names]
    assert not any(is_held_out(SEED, name, 0.0) for name in names)
