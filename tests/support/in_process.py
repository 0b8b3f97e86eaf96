"""Stand-ins for worker processes, and work that tells in which process it ran."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from lcb.evaluate.compare_learners import Contender, LearnerScore


class InProcess(Executor):
    """An executor that works at once, in this process: no second of imports for each worker."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*given, **more))
        return future


def report_process(contender: Contender, *_: Any) -> LearnerScore:
    """In place of `run_contender`: the number of the process in the note."""
    return LearnerScore(contender.name, note=str(os.getpid()))
