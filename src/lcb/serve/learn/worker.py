"""Learning from the log in a process of its own: `python -m lcb.serve.learn.worker`, a job comes in, frames go out.

    job       one line of JSON on standard input, which stays open: when it ends, so does this process
    frame     kind (4 bytes), length of the payload (8), SHA-256 of the payload (32), payload
    kinds     step   phase, done, total
              done   the models, how users who were held out score under them, whether they are to be served
              wait   there is too little to learn from yet, in words
              fail   what went wrong, in words

Rewards of all recommenders count; of a reward that was changed the last value.  A user is held out by a hash of the
name and the log's seed, so the same users judge every version and none was ever learned from here.  The models that
were scored are the models that are served: they are not learned again with the held-out users.

    score      = sum_u log p(rewards of u | models) / sum_u count_u                      u: held out, class unknown
    difference = score - baseline                                             baseline: the version now served
    error      = sqrt( U / (U - 1) sum_u (d_u - difference count_u)^2 ) / sum_u count_u   d_u: u's own difference

A version whose difference is below 0 is kept aside.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
from msgspec import Struct

from lcb.clicks import EventLog, LogBuilder
from lcb.errors import ConvergenceWarning, InputError, LCBError, ModelError, TooFewRows
from lcb.events import Floats
from lcb.features import FeatureMap
from lcb.learners.registry import get_learner
from lcb.models import LatentModels, Likelihood, weight_covariance
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.decide.drawing import number
from lcb.serve.event_ids import changes_reward, model_id, slot_of_reward
from lcb.storage.models.folder import pack_models, unpack_models
from lcb.storage.store.base import Row, Store, open_store

STEP, DONE, WAIT, FAIL = b"step", b"done", b"wait", b"fail"
_BLOCK = 5_000  # rewards added to the statistics at a time
_EVERY = 0.2  # seconds between two frames of the same phase
_SMALL = 125_000  # numbers: a covariance of so many is kept whether or not a bandit asks for it
_NICE = 10


class Job(Struct):
    """What to learn from, how, and what to compare with."""

    store: str
    seq: int  # the log up to here
    active: int  # the version now served; 0: none
    learner: str = "em"
    n_classes: int | None = None
    held_out: float = 0.2
    covariance: bool = False  # wanted, however large
    max_memory: int | None = None  # bytes


class Step(Struct):
    phase: str
    done: int
    total: int | None


class Learned(Struct):
    """A version to be; `better` than the one it was compared with, or without any to compare with."""

    manifest: bytes
    tensors: bytes
    n_users: int
    better: bool
    reason: str
    score: float | None
    baseline: float | None


# Frames


def frame(kind: bytes, payload: bytes) -> bytes:
    """
    >>> frame(WAIT, b"ab")[:12]
    b'wait\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02'
    """
    return kind + len(payload).to_bytes(8, "big") + hashlib.sha256(payload).digest() + payload


HEADER = 44


def opened(header: bytes) -> tuple[bytes, int, bytes]:
    """Kind, length and SHA-256 of the payload to come.

    >>> opened(frame(WAIT, b"ab")[:HEADER])[:2]
    (b'wait', 2)
    """
    kind, length = header[:4], int.from_bytes(header[4:12], "big")
    if kind not in (STEP, DONE, WAIT, FAIL):
        raise ValueError(f"what came back is no frame: {header[:12]!r}")
    return kind, length, header[12:]


# The process


def main() -> None:
    """Read a job, learn, answer; whatever is printed on the way goes to standard error."""
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = sys.stdin.buffer
    job = msgspec.json.decode(jobs.readline(), type=Job)
    threading.Thread(target=_end_with, args=(jobs,), daemon=True).start()
    if job.max_memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (job.max_memory, job.max_memory))
    kind, payload = _outcome(job, _told(answers))
    _send(answers, kind, payload)
    answers.flush()
    os._exit(0)  # nothing is left to tidy up; a thread waits for the parent still


def _outcome(job: Job, progress: Progress) -> tuple[bytes, bytes]:
    try:
        store = open_store(job.store, create=False)
        try:
            return DONE, msgspec.msgpack.encode(learn(job, store, progress))
        finally:
            store.close()
    except TooFewRows as error:
        return WAIT, str(error).encode()
    except MemoryError:
        return FAIL, b"there was not enough memory; raise max_memory, or ask for fewer classes"
    except LCBError as error:
        return FAIL, str(error).encode()
    except Exception as error:  # noqa: BLE001 (told to the parent; the trace goes to standard error)
        import traceback

        traceback.print_exc()
        return FAIL, f"{type(error).__name__}: {error}".encode()


def _end_with(jobs: BinaryIO) -> None:
    """End when the parent has ended, however it did."""
    jobs.read()
    os._exit(1)


def _send(answers: BinaryIO, kind: bytes, payload: bytes) -> None:
    answers.write(frame(kind, payload))
    answers.flush()


def _told(answers: BinaryIO) -> Progress:
    last, phase = 0.0, ""

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal last, phase
        if what != phase or time.monotonic() - last > _EVERY:
            last, phase = time.monotonic(), what
            _send(answers, STEP, msgspec.json.encode(Step(what, done, total)))

    return progress


# Learning


def learn(job: Job, store: Store, progress: Progress = silent) -> Learned:
    """A version from the log; TooFewRows where that cannot be yet."""
    service, known = _of_service(store, job)
    kept = service.feature_map
    feature_map = None if kept is None else FeatureMap.from_json(msgspec.json.decode(kept))
    active = None if known is None else _readable(known)
    names = tuple(feature_map.names if feature_map else service.features or (active.features if active else ()))
    keep_rows = get_learner(job.learner).needs_rows
    log = history(store, job.seq, service.rewards, names, keep_rows=keep_rows, progress=progress)
    held = np.array([is_held_out(service.seed, str(user), job.held_out) for user in log.stats.users], bool)
    learning, judges = log.take(~held), log.take(held)
    if learning.n_users < 2 or (job.held_out > 0 and active is not None and judges.n_users < 2):
        raise TooFewRows(
            f"{learning.n_users} users to learn from and {judges.n_users} to judge by; wait for more rewards"
        )
    models = _fitted(job, learning, active, service, progress)
    progress("scoring held-out users", 0, None)
    version = 0 if known is None else known.version
    provenance: dict[str, Any] = {
        **models.provenance, "seq": job.seq, "held_out": job.held_out, "n_held_out": judges.n_users,
        "compared_with": version,
    }  # fmt: skip
    better, reason, score, baseline = judged(models, active, version, judges)
    models = models.with_provenance(provenance)
    if job.covariance or models.beta.size * models.n_features <= _SMALL:
        models = models.with_covariance(weight_covariance(models, learning))
    manifest, tensors = pack_models(models, feature_map)
    return Learned(manifest, tensors, learning.n_users, better, reason, score, baseline)


def is_held_out(seed: bytes, user: str, share: float) -> bool:
    """Whether a user judges and is not learned from; the same for every version of a log."""
    return number(seed, f"held-out/{user}") < share


def history(
    store: Store, seq: int, rule: str, features: tuple[str, ...], *, keep_rows: bool = False,
    progress: Progress = silent,
) -> EventLog:  # fmt: skip
    """The rewards of all users up to `seq`, of each slot what counts; erased ones are nobody's and stay out."""
    counts = _changed(store, seq) if rule in ("sum", "last") else {}
    builder: LogBuilder | None = None
    for rows in _blocks(store, seq, progress):
        bodies: list[events.RewardBody] = [events.decode(row.kind, row.body) for row in rows]
        x = np.frombuffer(b"".join(body.x for body in bodies)).reshape(len(rows), -1)
        reward = np.array(
            [counts.get(slot_of_reward(row.id), body.reward) for row, body in zip(rows, bodies, strict=True)]
        )
        if builder is None:
            builder = LogBuilder(x.shape[1], features, keep_rows=keep_rows)
        builder.add([cast(str, row.user) for row in rows], x, reward)
    if builder is None:
        raise TooFewRows("no user has given a reward yet; wait for some")
    return builder.log()


def _changed(store: Store, seq: int) -> dict[str, float]:
    """Return what counts now for the slots whose reward was changed."""
    changed = {}
    for row in store.events(0, seq):
        if row.kind == "reward" and changes_reward(row.id):
            changed[slot_of_reward(row.id)] = events.decode(row.kind, row.body).reward
    return changed


def _blocks(store: Store, seq: int, progress: Progress) -> Iterator[list[Row]]:
    """First rewards, some at a time."""
    block: list[Row] = []
    for row in store.events(0, seq):
        if row.kind == "reward" and not changes_reward(row.id):
            block.append(row)
            if len(block) == _BLOCK:
                progress("reading the log", row.seq, seq)
                yield block
                block = []
    progress("reading the log", seq, seq)
    if block:
        yield block


def _of_service(store: Store, job: Job) -> tuple[events.ServiceBody, events.ModelBody | None]:
    """What the log is about, and the version to compare with."""
    service, known = None, None
    for row in store.events_of_service(job.seq):
        if row.kind == "service":
            service = events.decode(row.kind, row.body)
        elif row.kind == "model" and row.id == model_id(job.active):
            known = events.decode(row.kind, row.body)
    if service is None:
        raise InputError(f"{store.url} is the store of no service; give one that lcb serve has made")
    return service, known


def _readable(known: events.ModelBody) -> LatentModels | None:
    try:
        return unpack_models(known.manifest, known.tensors, f"model version {known.version}")[0]
    except ModelError:
        return None


def _fitted(
    job: Job, log: EventLog, active: LatentModels | None, service: events.ServiceBody, progress: Progress
) -> LatentModels:
    from lcb.learners import fit

    likelihood = likelihood_of(log, job.learner, service.reward_range)
    n_classes = None if job.n_classes is None else min(job.n_classes, log.n_users)
    learner = get_learner(job.learner)
    settings: dict[str, Any] = {"n_threads": 1} if "n_threads" in learner.settings else {}
    if likelihood == "gaussian" and learner.start == "models" and active is not None and active.n_classes == n_classes:
        settings["start"] = replace(active, likelihood="gaussian", levels=None)
    seed = [*service.seed, job.seq]  # the same log gives the same models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the models say whether they settled
        try:
            rng = np.random.default_rng(seed)
            return fit(
                log, n_classes, rng=rng, learner=job.learner, likelihood=likelihood, progress=progress, **settings
            ).models
        except ModelError:
            raise
        except InputError as error:
            raise TooFewRows(str(error)) from None


def likelihood_of(log: EventLog, learner: str, declared: tuple[float, float] | None) -> Likelihood:
    """Clicks where the rewards are the two ends of the declared range, or 0 and 1 where none is; else Gaussian.

    A range that is wider than the rewards so far says that others will come.

    >>> log = EventLog.from_rows(user=[0, 1], x=[[1.0], [1.0]], reward=[0, 1])
    >>> [likelihood_of(log, "em", declared) for declared in ((0.0, 1.0), (0.0, 5.0), None)]
    ['bernoulli', 'gaussian', 'bernoulli']
    """
    clicks, levels = log.clicks, tuple(declared or (0.0, 1.0))
    if clicks is not None and (clicks.low, clicks.high) == levels and get_learner(learner).fit_clicks:
        return "bernoulli"
    return "gaussian"


# Judging


def judged(
    models: LatentModels, active: LatentModels | None, version: int, judges: EventLog
) -> tuple[bool, str, float | None, float | None]:
    """Whether to serve new models, why, their score and that of the active ones."""
    if judges.n_users == 0:
        return True, "no user was held out to judge by", None, None
    new, count = models.user_scores(judges), judges.stats.count.astype(np.float64)
    score = float(new.sum() / count.sum())
    by = f"{judges.n_users} held-out users score {score:.4f} per reward"
    if active is None:
        why = f"the version served before, {version}, cannot be read" if version else "the first version"
        return True, f"{why}: {by}", score, None
    old = alike(active, models).user_scores(judges)
    baseline = float(old.sum() / count.sum())
    difference, error = paired(new - old, count)
    words = f"{by}, under version {version} {baseline:.4f}"
    size = f"by {abs(difference):.4f} ± {error:.4f} (one standard error)"
    if difference < 0:
        return False, f"kept aside: {words}, worse {size}", score, baseline
    return True, f"{words}, better {size}", score, baseline


def alike(active: LatentModels, models: LatentModels) -> LatentModels:
    """The active classes under the new models' likelihood: a density and a probability do not compare."""
    return replace(
        active, likelihood=models.likelihood, levels=models.levels, features=models.features, covariance=None
    )


def paired(difference: Floats, count: Floats) -> tuple[float, float]:
    """The mean difference per reward and its standard error, users being what was drawn.

    >>> paired(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    (2.0, 1.0)
    """
    n, total = len(count), float(count.sum())
    mean = float(difference.sum()) / total
    rest = difference - mean * count
    return mean, math.sqrt(n / max(n - 1, 1) * float(rest @ rest)) / total


if __name__ == "__main__":
    main()
