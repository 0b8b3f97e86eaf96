"""What a verification of the log has found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

_SHOWN = 20


@dataclass(frozen=True)
class Difference:
    """`seq` is the event's, None where it is of none."""

    seq: int | None
    what: str
    stored: str
    recomputed: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f"event {self.seq}: "
        return f"{where}{self.what}: stored {self.stored}, recomputed {self.recomputed}"


@dataclass
class Report:
    """What was looked at, and the first of what differs."""

    upto: int = 0
    n_events: int = 0
    n_decisions: int = 0  # made again
    n_erased: int = 0  # decisions of people who were erased
    n_rewards: int = 0
    n_users: int = 0
    n_snapshots: int = 0
    n_models: int = 0
    n_differences: int = 0
    seconds: float = 0.0
    differences: list[Difference] = field(default_factory=list)

    def differs(self, seq: int | None, what: str, stored: object, recomputed: object) -> None:
        self.n_differences += 1
        if len(self.differences) < _SHOWN:
            self.differences.append(Difference(seq, what, short(stored), short(recomputed)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def short(value: object) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
