"""The learning process with a fault that happens when a phase begins: `python faulty_learning.py FAULT PHASE`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from typing import Any, BinaryIO

import msgspec
import numpy as np
from safetensors.numpy import save

from lcb.models import LatentModels
from lcb.progress import Progress
from lcb.serve.learn import worker
from lcb.serve.learn.job import DONE, FAIL, STEP, JobResult, pack_frame
from lcb.storage.models import folder as storage

PHASES = ("reading", "compiling", "scoring")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise RuntimeError("a fault")


def exhaust() -> None:
    np.empty(1 << 60, np.uint8)


def hang() -> None:
    time.sleep(600)


def leave() -> None:
    os._exit(0)


OF_PHASES = {"kill": kill, "raise": fail, "memory": exhaust, "hang": hang, "leave": leave}


# Wrong results


def nan(models: LatentModels) -> tuple[bytes, bytes]:
    """Weights that are not numbers, with a valid checksum."""
    tensors = save({"pi": models.pi, "beta": np.full_like(models.beta, np.nan), "sigma2": models.sigma2})
    return storage._build_manifest(models.with_covariance(None), tensors, None), tensors


def flipped(models: LatentModels) -> tuple[bytes, bytes]:
    manifest, tensors = storage.pack_models(models)
    return manifest, tensors[:-9] + bytes([tensors[-9] ^ 1]) + tensors[-8:]


def wider(models: LatentModels) -> tuple[bytes, bytes]:
    beta = np.hstack([models.beta, models.beta])
    return storage.pack_models(LatentModels(models.pi, beta, models.sigma2))


def pickled(models: LatentModels) -> tuple[bytes, bytes]:
    tensors = pickle.dumps({"beta": models.beta})
    return storage._build_manifest(models, tensors, None), tensors


OF_MODELS = {"nan": nan, "flipped": flipped, "wider": wider, "pickled": pickled}
OF_FRAMES = {
    "garbage": lambda payload: os.urandom(500),
    "truncated": lambda payload: pack_frame(DONE, payload)[:-10],
    "endless": lambda payload: DONE + (1 << 60).to_bytes(8, "big") + payload,
    "other": lambda payload: pack_frame(DONE, b'{"models": "none"}'),
    "no text": lambda payload: pack_frame(FAIL, b"\xff\xfe"),
    "no step": lambda payload: pack_frame(STEP, b"[]"),
    "infinite": lambda payload: pack_frame(DONE, _with_score(payload)),
}


def _with_score(payload: bytes) -> bytes:
    found = msgspec.msgpack.decode(payload, type=JobResult)
    found.score = float("inf")
    return msgspec.msgpack.encode(found)


def send_wrong_result(answers: BinaryIO, fault: str) -> None:
    """Send a wrong result without learning."""
    models = LatentModels([0.5, 0.5], np.eye(2, 6), [0.1, 0.1])
    manifest, tensors = OF_MODELS.get(fault, storage.pack_models)(models)
    payload = msgspec.msgpack.encode(JobResult(manifest, tensors, 9, True, "a fault", -1.0, -2.0))
    answers.write(OF_FRAMES.get(fault, lambda payload: pack_frame(DONE, payload))(payload))
    answers.flush()
    os._exit(0)


def main() -> None:
    fault, phase = sys.argv[1], sys.argv[2]
    report_steps = worker._report_steps

    def faulty(answers: BinaryIO) -> Progress:
        progress = report_steps(answers)

        def watch(what: str, done: int, total: int | None) -> None:
            progress(what, done, total)
            if what.startswith(phase):
                OF_PHASES[fault]() if fault in OF_PHASES else send_wrong_result(answers, fault)

        return watch

    worker._NICE = 0  # a drill does not wait for a busy machine
    worker._report_steps = faulty
    if fault == "orphan":  # without what ends it when its parent has ended
        worker._exit_with_parent = lambda jobs: None  # type: ignore[assignment]
        OF_PHASES["orphan"] = hang
    elif fault == "chatter":
        worker._report_steps = report_steps
        print_to_stdout()
    worker.main()


def print_to_stdout() -> None:
    """Not a fault: print to standard output, as a library might."""
    fitted: Any = worker._fit_models

    def chatter(*given: Any) -> Any:
        os.write(1, b"words on standard output\n" * 5000)
        return fitted(*given)

    worker._fit_models = chatter


if __name__ == "__main__":
    main()
