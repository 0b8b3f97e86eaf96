"""What a user was shown and took."""

from __future__ import annotations

from typing import Any

from lcb.serve import events
from lcb.serve.events import ChosenArm, DecisionBody, RewardBody
from lcb.serve.state.seen_items import Seen, SeenItems
from lcb.storage.store.base import Row


def decide(seq: int, user: str, *items: str) -> tuple[Row, Any]:
    taken = [ChosenArm(i, item, 1.0, b"", None, False, None) for i, item in enumerate(items)]
    body = DecisionBody(0.0, seq - 1, "lcb", 9, None, None, None, taken, None, listed=len(items) > 1)
    return Row(seq, f"d{seq}", "decision", user, 0, events.encode(body)), body


def reward(seq: int, user: str, slot: str, value: float, item: str | None, before: float | None = None) -> Any:
    body = RewardBody(0.0, 1, "lcb", value, 1.0, b"", False, None, before, item=item)
    return Row(seq, f"r/{slot}", "reward", user, 0, events.encode(body)), body


class Log:
    """A store that has the events of users, and counts how often it is read."""

    def __init__(self, *rows: Row) -> None:
        self.rows, self.n_reads = list(rows), 0

    def stream_of(self, user: str, after: int, upto: int) -> list[Row]:
        self.n_reads += 1
        return [row for row in self.rows if row.user == user and after < row.seq <= upto]


def test_a_reward_that_falls_to_nothing_takes_nothing() -> None:
    seen = Seen({})
    for row, body in (decide(1, "ann", "a", "b"), reward(2, "ann", "d1/0", 1.0, "a"), decide(3, "ann", "a")):
        seen.apply(row, body)
    assert (set(seen.find("exclude")), set(seen.find("exclude-taken"))) == ({"a", "b"}, {"a"})
    seen.apply(*reward(4, "ann", "d1/0", 0.0, "a", before=1.0))
    assert set(seen.find("exclude-taken")) == set()


def test_a_reward_of_an_earlier_version_is_found_by_its_slot() -> None:
    log = Log(decide(1, "ann", "a", "b")[0], reward(2, "ann", "d1/1", 1.0, None)[0])
    items = SeenItems(log)  # type: ignore[arg-type]
    assert items.get("ann", 2).find("exclude-taken") == {"b"}
    items.apply(*reward(3, "ann", "d1/0", 1.0, None))
    assert "ann" not in items  # read again when next asked for


def test_memory_is_bounded_and_who_was_dropped_is_read_again() -> None:
    log = Log(*(decide(i, f"u{i}", *(f"i{j}" for j in range(20)))[0] for i in range(1, 11)))
    items = SeenItems(log, most_bytes=10_000)  # type: ignore[arg-type]
    for i in range(1, 11):
        assert len(items.get(f"u{i}", 10).items) == 20
        assert items.n_bytes <= 10_000
    assert len(items.get("u1", 10).items) == 20
    assert log.n_reads == 11
    for j in range(1000):
        items.apply(*decide(11 + j, "u1", f"j{j}"))
    assert items.n_bytes > 100_000
    items.get("u2", 2000)
    assert "u1" not in items
    items.forget({2})
    assert (items.n_bytes, bool(items)) == (0, False)


def test_events_and_erasures_while_a_user_is_read_are_not_lost() -> None:
    log = Log(decide(1, "ann", "a")[0])
    items = SeenItems(log)  # type: ignore[arg-type]
    items.begin_reading("ann")
    found = items.read("ann", 1)
    items.apply(*decide(2, "ann", "b"))
    items.admit("ann", found)
    assert set(items.get("ann", 2).items) == {"a", "b"}
    items.begin_reading("bob")
    items.forget({2})
    items.admit("bob", found)
    assert "ann" not in items
    assert "bob" not in items
