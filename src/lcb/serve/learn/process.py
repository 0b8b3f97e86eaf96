"""Runs a job in a learning process (`lcb.serve.learn.worker`) and reads what it sends back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from lcb.errors import LCBError
from lcb.serve.learn.job import DONE, FAIL, HEADER, STEP, WAIT, Job, JobResult, JobStep, read_header

_MOST = 1 << 30  # bytes of one frame
_TAIL = 2000  # characters of the child's standard error that are kept


class NotYet(LCBError):
    """There is not enough data to learn from."""


class Failed(LCBError):
    """Learning ended without models that can be served."""


def worker_command() -> list[str]:
    return [sys.executable, "-P", "-m", "lcb.serve.learn.worker"]


async def run_job(
    job: Job,
    command: Sequence[str],
    on_start: Callable[[asyncio.subprocess.Process], None],
    on_step: Callable[[JobStep], None],
) -> JobResult:
    """Run a job in a child process, which has ended when this returns or raises."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=_build_environment(), start_new_session=True
    )
    on_start(process)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(_read_tail(process.stderr))
    try:
        with suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            await process.stdin.drain()
        return await _read_frames(process.stdout, on_step)
    except asyncio.IncompleteReadError:
        await _raise_exit(process, await errors)
    except ValueError as error:  # msgspec's errors are ValueErrors too
        raise Failed(f"{error}; the version served before stays") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        await process.wait()
        errors.cancel()


async def _read_frames(answers: asyncio.StreamReader, on_step: Callable[[JobStep], None]) -> JobResult:
    while True:
        kind, length = read_header(await answers.readexactly(HEADER))
        if length > _MOST:
            raise ValueError(f"the learning process announced a frame of {length:,} bytes; at most {_MOST:,} are read")
        payload = await answers.readexactly(length)
        if kind == STEP:
            on_step(msgspec.json.decode(payload, type=JobStep))
        elif kind == WAIT:
            raise NotYet(payload.decode())
        elif kind == FAIL:
            raise Failed(payload.decode())
        else:
            assert kind == DONE
            return msgspec.msgpack.decode(payload, type=JobResult)


def _build_environment() -> dict[str, str]:
    """Return an environment with one thread for linear algebra and the same lcb package as this process."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, **threads, "PYTHONPATH": path}


async def _read_tail(errors: asyncio.StreamReader) -> str:
    text = ""
    while part := await errors.read(65_536):
        text = (text + part.decode(errors="replace"))[-_TAIL:]
    return text


async def _raise_exit(process: asyncio.subprocess.Process, errors: str) -> NoReturn:
    code = await process.wait()
    last = errors.strip().splitlines()[-1:] or ["nothing on standard error"]
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; perhaps it ran out of memory" if -code == signal.SIGKILL else ""
        raise Failed(f"the learning process was ended by {name}{hint} ({last[0]})")
    raise Failed(f"the learning process ended with exit code {code} and no models ({last[0]})")
