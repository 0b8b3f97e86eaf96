"""Learning in tests: in this process, or in a new one that does not give way to the other tests."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from lcb.serve.learn.job import Job, JobResult
from lcb.storage.store.open_store import open_store


def build_command() -> list[str]:
    """In place of `worker_command`: the same process with the priority of the others, however busy the machine is."""
    code = "import os, runpy; os.nice = lambda by: 0; runpy.run_module('lcb.serve.learn.worker', run_name='__main__')"
    return [sys.executable, "-P", "-c", code]


async def learn_here(job: Job, *_: Any) -> JobResult:
    """In place of `run_job`: learn in this process, without the seconds of CPU that a new one needs to start."""

    from lcb.serve.learn import worker

    def run() -> JobResult:
        store = open_store(job.store, create=False)
        try:
            return worker.learn(job, store)
        finally:
            store.close()

    return await asyncio.to_thread(run)
