"""Users who are erased while a log is compacted: it begins again, or says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import StoreUnavailable
from lcb.serve.audit.verify import verify
from lcb.serve.retain import compact as compaction
from lcb.serve.retain.whole_log import open_restored
from support.old_log import DAY, OldLog

NAMES = [f"user{i}" for i in range(6)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OldLog]:
    """A compacted log: decisions of six users are archived, and the log has their rewards, some of which changed."""
    with OldLog(tmp_path / "log", 4, "last") as one:
        for name in NAMES:
            one.decide(name, decision_id=name)
        one.pass_time(3 * DAY)
        for name in NAMES:
            one.reward(name, 1.0)
            one.decide(name, decision_id=f"{name}-2")
            one.reward(f"{name}-2", 1.0)
            one.reward(f"{name}-2", 2.0)
        one.compact(DAY)
        assert one.store.newest_of_service(("compact",))
        one.pass_time(3 * DAY)
        yield one


def erase_before(monkeypatch: pytest.MonkeyPatch, where: Any, method: str, log: OldLog, names: list[str]) -> None:
    """Erase one of the users in each try of a compaction, before it calls a method for the first time."""
    whole: Callable[..., Any] = getattr(where, method)
    seen: list[Any] = []

    def erase(self: Any, *given: Any) -> Any:
        if names and self not in seen:
            seen.append(self)
            log.erase_now(names.pop())
        return whole(self, *given)

    monkeypatch.setattr(where, method, erase)


PLACES = [  # rows are read but not applied, applied but not folded, folded
    (compaction.Writer, "add"),
    (compaction._Plan, "_fold_users"),
    (compaction._Plan, "_complete"),
]


@pytest.mark.parametrize(("where", "method"), PLACES)
def test_a_compaction_begins_again(log: OldLog, monkeypatch: pytest.MonkeyPatch, where: Any, method: str) -> None:
    left = NAMES[:2]
    erase_before(monkeypatch, where, method, log, left)
    assert log.compact(DAY).n_archived > 0
    assert not left
    assert verify(log.store).differences == []
    with open_restored(log.store, log.archive) as whole:
        assert verify(whole, whole=True).differences == []


@pytest.mark.parametrize(("where", "method"), PLACES)
def test_it_says_so_if_users_are_erased_each_time(
    log: OldLog, monkeypatch: pytest.MonkeyPatch, where: Any, method: str
) -> None:
    left = NAMES[:]
    erase_before(monkeypatch, where, method, log, left)
    with pytest.raises(StoreUnavailable, match="were erased 5 times meanwhile; compact at a quieter time"):
        log.compact(DAY)
    assert len(left) == 1
    assert verify(log.store).differences == []
