"""Claims of the paper compared with the numbers measured here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, and our number for it."""

    what: str
    paper: str
    ours: str
    holds: bool
    why: str = ""  # explains why it does not hold

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": bool(self.holds)}

    def format_line(self) -> str:
        return f"{self.what}: {self.ours} (the paper: {self.paper}){'' if self.holds else ' - does not hold'}"
