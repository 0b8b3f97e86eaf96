"""The learning process with a fault: `python faulty_learning.py FAULT PHASE`.

Each happens when the phase begins.
"""

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
from lcb.serve.learn import worker as learning
from lcb.serve.learn.worker import DONE, FAIL, STEP, Learned, frame
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


# What is sent


def nan(models: LatentModels) -> tuple[bytes, bytes]:
    """Sealed as if it were right, and not a number."""
    tensors = save({"pi": models.pi, "beta": np.full_like(models.beta, np.nan), "sigma2": models.sigma2})
    return storage._manifest(models.with_covariance(None), tensors, None), tensors


def flipped(models: LatentModels) -> tuple[bytes, bytes]:
    manifest, tensors = storage.pack_models(models)
    return manifest, tensors[:-9] + bytes([tensors[-9] ^ 1]) + tensors[-8:]


def wider(models: LatentModels) -> tuple[bytes, bytes]:
    beta = np.hstack([models.beta, models.beta])
    return storage.pack_models(LatentModels(models.pi, beta, models.sigma2))


def pickled(models: LatentModels) -> tuple[bytes, bytes]:
    tensors = pickle.dumps({"beta": models.beta})
    return storage._manifest(models, tensors, None), tensors


OF_MODELS = {"nan": nan, "flipped": flipped, "wider": wider, "pickled": pickled}
OF_FRAMES = {
    "garbage": lambda payload: os.urandom(500),
    "truncated": lambda payload: frame(DONE, payload)[:-10],
    "damaged": lambda payload: frame(DONE, payload)[:-1] + b"?",
    "endless": lambda payload: DONE + (1 << 60).to_bytes(8, "big") + bytes(32) + payload,
    "other": lambda payload: frame(DONE, b'{"models": "none"}'),
    "no text": lambda payload: frame(FAIL, b"\xff\xfe"),
    "no step": lambda payload: frame(STEP, b"[]"),
    "infinite": lambda payload: frame(DONE, _with_score(payload)),
}


def _with_score(payload: bytes) -> bytes:
    found = msgspec.msgpack.decode(payload, type=Learned)
    found.score = float("inf")
    return msgspec.msgpack.encode(found)


def sent(answers: BinaryIO, fault: str) -> None:
    """What a learning process might send that is no version, without the learning."""
    models = LatentModels([0.5, 0.5], np.eye(2, 6), [0.1, 0.1])
    manifest, tensors = OF_MODELS.get(fault, storage.pack_models)(models)
    payload = msgspec.msgpack.encode(Learned(manifest, tensors, 9, True, "a fault", -1.0, -2.0))
    answers.write(OF_FRAMES.get(fault, lambda payload: frame(DONE, payload))(payload))
    answers.flush()
    os._exit(0)


def main() -> None:
    fault, phase = sys.argv[1], sys.argv[2]
    told = learning._told

    def faulty(answers: BinaryIO) -> Progress:
        progress = told(answers)

        def watch(what: str, done: int, total: int | None) -> None:
            progress(what, done, total)
            if what.startswith(phase):
                OF_PHASES[fault]() if fault in OF_PHASES else sent(answers, fault)

        return watch

    learning._NICE = 0  # a drill does not wait for a busy machine
    learning._told = faulty
    if fault == "orphan":  # without what ends it when its parent has ended
        learning._end_with = lambda jobs: None  # type: ignore[assignment]
        OF_PHASES["orphan"] = hang
    elif fault == "chatter":
        learning._told = told
        talk()
    learning.main()


def talk() -> None:
    """Not a fault: libraries print what they like."""
    fitted: Any = learning._fitted

    def chatter(*given: Any) -> Any:
        os.write(1, b"words on standard output\n" * 5000)
        return fitted(*given)

    learning._fitted = chatter


if __name__ == "__main__":
    main()
