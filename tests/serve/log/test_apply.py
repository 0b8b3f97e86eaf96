"""Changed rewards of a user with a long history are folded once in a commit, and the state is that of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lcb.serve.audit.check_snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.state.per_user import load_users
from lcb.serve.state.per_user.user_fold import UserFold
from support.inside import fold_log
from support.old_log import OldLog

N = 12


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each fold of a history had."""
    found, fold = list[int](), UserFold.fold

    def count(self: UserFold, rows: Any) -> Any:
        found.append(len(rows := list(rows)))
        return fold(self, rows)

    monkeypatch.setattr(UserFold, "fold", count)
    return found


def compare(log: OldLog) -> None:
    """Compare the state of the service with the log, replayed event by event."""
    world = log.service.world
    assert compare_worlds(world, fold_log(log.store)) == []
    live = {name: user.pack() for name in world.cache if (user := world.cache.peek(name)) is not None}
    assert verify(log.store, live=live).differences == []


@pytest.mark.parametrize("large", [False, True])
def test_a_user_is_folded_once_for_all_rewards_that_a_commit_changes(
    large: bool, tmp_path: Path, folded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with OldLog(tmp_path / "log", 4, "last", n_users=6) as log:
        log.live(1)
        for i in range(N):
            for name in ("ann", "ben"):
                log.decide(name, decision_id=f"{name}{i}")
                log.reward(f"{name}{i}", 1.0)
        if large:  # a thread reads their events
            monkeypatch.setattr(load_users, "LARGE_HISTORY", 100)
        folded.clear()
        asked = [log.begin_reward(f"{name}{i}", 3.0) for i in range(N) for name in ("ann", "ben")]
        for one in asked:
            log.ended(one)
        assert folded == [3 * N, 3 * N], "each change folds the whole history"
        compare(log)


def test_events_among_changed_rewards_find_the_state_of_the_log(tmp_path: Path, folded: list[int]) -> None:
    """Decisions, first rewards and changes of the service between changes of one user, in one commit."""
    with OldLog(tmp_path / "log", 4, "sum", n_users=6) as log:
        log.live(1)
        for i in range(6):
            log.decide("ann", decision_id=f"a{i}")
        for i in range(4):
            log.reward(f"a{i}", 1.0, reward_id="first")
        asked = [
            log.begin_reward("a0", 1.0, reward_id="x"),
            log.begin_reward("a1", 1.0, reward_id="x"),
            log.begin_decide("ann", decision_id="b"),
            log.begin_reward("a2", 1.0, reward_id="x"),
            log.begin_reward("a4", 1.0, reward_id="x"),
            log.begin_reward("a3", 1.0, reward_id="x"),
            log.begin_decide("newcomer", decision_id="c"),
            log.begin_reward("a0", 2.0, reward_id="y"),
        ]
        for one in asked:
            log.ended(one)
        log.decide("ann", decision_id="d")
        compare(log)
        log.crash()
        log.decide("ann", decision_id="e")
        compare(log)
