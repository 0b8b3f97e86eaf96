"""Stand-ins for worker processes, and work that tells in which process it ran."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from lcb.evaluate.compare_learners import Contender, LearnerScore


class InProcess:
    """In place of `multiprocessing.get_context`: a pool that works at once, in this process."""

    def __init__(self, method: str) -> None:
        assert method == "spawn"

    @contextmanager
    def Pool(self, processes: int) -> Iterator[InProcess]:
        yield self

    def apply_async(self, work: Callable[..., Any], given: tuple[Any, ...]) -> AtOnce:
        return AtOnce(work(*given))


class AtOnce(NamedTuple):
    """The result of work that is done."""

    result: Any

    def get(self, timeout: float | None = None) -> Any:
        return self.result


def report_process(contender: Contender, *_: Any) -> LearnerScore:
    """In place of `run_contender`: the number of the process in the note."""
    return LearnerScore(contender.name, note=str(os.getpid()))
