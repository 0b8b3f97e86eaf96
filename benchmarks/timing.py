"""CPU time of pieces of work, measured in turns so that a noisy machine hurts all alike."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_turns(pieces: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Least CPU seconds of each piece over `turns` rounds, each round running all of them; one round warms up."""
    best = dict.fromkeys(pieces, float("inf"))
    for turn in range(turns + 1):
        for name, work in pieces.items():
            before = time.process_time()
            work()
            if turn:
                best[name] = min(best[name], time.process_time() - before)
    return best


def save(name: str, rows: Any) -> None:
    """Keep a result beside the benchmarks, with the machine it was measured on."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "processor": platform.machine(), "system": platform.system()}
    (folder / f"{name}.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
