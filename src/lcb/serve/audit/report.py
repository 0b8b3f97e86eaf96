"""The report of a verification of the log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

_KEPT = 20


@dataclass(frozen=True)
class Mismatch:
    """A stored value that differs from the recomputed one; `seq` is None if it belongs to no event.

    Without the two values, `what` says what is wrong.
    """

    seq: int | None
    what: str
    stored: str
    recomputed: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f"event {self.seq}: "
        if not self.stored and not self.recomputed:
            return f"{where}{self.what}"
        return f"{where}{self.what}: stored {self.stored}, recomputed {self.recomputed}"


@dataclass
class Report:
    """How much was checked, and the first mismatches."""

    upto: int = 0
    after: int = 0  # the events from the next one on were checked; above 0, decisions were not recomputed
    unchecked_from: int | None = None  # seq of the first event before them that the store has and that was not checked
    base: int = 0  # the log was compacted up to this event, and was checked from the base on; 0: from its first event
    n_older_heads: int = 0  # given heads from before the compaction: they do not vouch for its base
    n_unfinished: int = 0  # events that an ended compaction has not removed yet
    unchecked_heads: list[str] = field(default_factory=list)  # given heads that could not be compared, and why
    n_across: int = 0  # decisions that were made from a state before the base: only the archive tells if they are right
    n_late: int = 0  # rewards of archived decisions, which only the archive has
    n_events: int = 0
    n_decisions: int = 0  # recomputed
    n_erased: int = 0  # decisions of erased users
    n_rewards: int = 0
    n_users: int = 0
    n_snapshots: int = 0
    n_damaged: int = 0  # snapshots with a wrong checksum; they are not used
    n_models: int = 0
    n_keys: int | None = None  # valid keys that table and log both have; None: the log was written before key events
    chain_start: int | None = None  # seq of the first event with a link; None: no event has one
    head: str = ""  # seq and link of the last event
    n_differences: int = 0
    first: int | None = None  # seq of the first event with a mismatch
    seconds: float = 0.0
    differences: list[Mismatch] = field(default_factory=list)

    def add(self, seq: int | None, what: str, stored: object, recomputed: object) -> None:
        """Count a mismatch, and keep it if it is one of the first."""
        self.n_differences += 1
        if seq is not None and (self.first is None or seq < self.first):
            self.first = seq
        if len(self.differences) < _KEPT:
            self.differences.append(Mismatch(seq, what, shorten(stored), shorten(recomputed)))

    def add_words(self, seq: int | None, words: str) -> None:
        """Count something wrong that is no pair of values."""
        self.add(seq, words, "", "")

    @property
    def is_clean(self) -> bool:
        """Whether everything that was to be checked was checked, and is right."""
        return not self.n_differences and not self.unchecked_heads

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shorten(value: object) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
