"""What the paper says of a figure, and what came out here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper beside our number."""

    what: str
    paper: str
    ours: str
    holds: bool
    why: str = ""  # it does not

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": bool(self.holds)}

    def line(self) -> str:
        return f"{self.what}: {self.ours} (the paper: {self.paper}){'' if self.holds else ' - does not hold'}"
