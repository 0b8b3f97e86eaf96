"""The learning process, `python -m lcb.serve.learn.worker`: reads a job, learns from the log, writes frames (`job`).

A share of the users, chosen by a hash of their names, is held out: all versions are scored on the same users, none of
whom was ever learned from.  The scored models are served as they are, not fitted again with the held-out users.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lcb.errors import ConvergenceWarning, InputError, LCBError, ModelError, TooFewRows
from lcb.evaluate.choice.own_choices import LEARNER, is_favoured, is_one_sided, is_own_choice, learn_own_choices
from lcb.evaluate.choice.serving import can_serve
from lcb.event_log import EventLog
from lcb.features import FeatureMap
from lcb.learners.likelihood import choose_for_range
from lcb.learners.registry import get_learner
from lcb.learners.shared.outliers import find_outliers
from lcb.models import LatentModels, weight_covariance
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.config.settings import AUTO
from lcb.serve.event_ids import event_id
from lcb.serve.learn.effects import drop_made_up, fit_with_effects, see_held_out
from lcb.serve.learn.job import DONE, FAIL, STEP, WAIT, Job, JobResult, JobStep, pack_frame
from lcb.serve.learn.judge import judge
from lcb.serve.learn.refit import refit
from lcb.serve.learn.training_data import is_held_out, read_item_rows, read_training_data
from lcb.serve.read_event import read_event
from lcb.serve.retain.whole_log import open_whole
from lcb.storage.models.folder import pack_models, unpack_models
from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store
from lcb.words import format_count

_EVERY = 0.2  # seconds between two step frames of the same phase
_SMALL = 125_000  # numbers: a covariance up to this size is kept even if no bandit needs it
_LIKE_OTHERS = 5.0  # users of average noise that a class has beside its own
_MOST_KEPT = 20_000_000  # numbers: features of the events of a log are kept up to this size, for the choice of classes
_NICE = 10


def main() -> None:
    """Read a job, learn, answer; anything else that is printed goes to standard error."""
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = sys.stdin.buffer
    job = msgspec.json.decode(jobs.readline(), type=Job)
    threading.Thread(target=_exit_with_parent, args=(jobs,), daemon=True).start()
    if job.max_memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (job.max_memory, job.max_memory))
    kind, payload = _run(job, _report_steps(answers))
    _send(answers, kind, payload)
    os._exit(0)  # a normal exit would wait for the thread that reads standard input


def _run(job: Job, progress: Progress) -> tuple[bytes, bytes]:
    """Learn, and return the kind and payload of the last frame."""
    try:
        store = open_store(job.store, create=False)
        try:
            if job.mixture is not None:
                return DONE, msgspec.msgpack.encode(refit(job, store, progress))
            return DONE, msgspec.msgpack.encode(learn(job, open_whole(store, job.archive), progress))
        finally:
            store.close()
    except TooFewRows as error:
        return WAIT, str(error).encode()
    except MemoryError:
        return FAIL, b"there was not enough memory; raise max_memory, or ask for fewer classes"
    except LCBError as error:
        return FAIL, str(error).encode()
    except Exception as error:  # noqa: BLE001 (reported to the parent; the traceback goes to standard error)
        import traceback

        traceback.print_exc()
        return FAIL, f"{type(error).__name__}: {error}".encode()


def _exit_with_parent(jobs: BinaryIO) -> None:
    """Exit when standard input is closed, which the kernel does when the parent ends for any reason."""
    jobs.read()
    os._exit(1)


def _send(answers: BinaryIO, kind: bytes, payload: bytes) -> None:
    answers.write(pack_frame(kind, payload))
    answers.flush()


def _report_steps(answers: BinaryIO) -> Progress:
    last, phase = 0.0, ""

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal last, phase
        if what != phase or time.monotonic() - last > _EVERY:
            last, phase = time.monotonic(), what
            _send(answers, STEP, msgspec.json.encode(JobStep(what, done, total)))

    return progress


# Learning


def learn(job: Job, store: Store, progress: Progress = silent) -> JobResult:
    """Fit models to the log and compare them with the served version; TooFewRows if there is not enough data yet."""
    service, served = _read_service(store, job)
    kept = service.feature_map
    feature_map = None if kept is None else FeatureMap.from_json(msgspec.json.decode(kept))
    active = None if served is None else _unpack_served(served)
    names = tuple(feature_map.names if feature_map else service.features or (active.features if active else ()))
    about = _Log(store, job, service, names, progress)
    found = _learn_with_effects(about, active) if job.item_effects else None
    learned = _learn_classes(about, active) if found is None else found
    version = 0 if served is None else served.version
    provenance: dict[str, Any] = {
        **learned.models.provenance,
        "seq": job.seq,
        "held_out": job.held_out,
        "n_held_out": learned.held_out.n_users,
        "n_left_out": learned.n_left_out,
        "compared_with": version,
    }
    better, reason, score, baseline = judge(
        learned.models, active, version, learned.held_out, learned.held_out_of_active
    )
    if learned.n_left_out:
        reason += (
            f"; {format_count(learned.n_left_out, 'user')} left out, with features far larger than those of all others"
        )
    models = learned.models.with_provenance(provenance)
    if models.covariance is None and (job.covariance or models.beta.size * models.n_features <= _SMALL):
        models = models.with_covariance(weight_covariance(models, learned.log))
    models = models if models.item_effects is None else drop_made_up(models)
    manifest, tensors = pack_models(models, feature_map)
    return JobResult(manifest, tensors, learned.log.n_users, better, reason, score, baseline)


class _Log(NamedTuple):
    """The log to learn from."""

    store: Store
    job: Job
    service: events.ServiceBody
    names: tuple[str, ...]  # of the features
    progress: Progress

    def read(self, reader: Callable[..., Any], **more: Any) -> Any:
        """Read the rewards of this job with a function of `training_data`."""
        job, rule = self.job, self.service.rewards
        return reader(self.store, job.seq, rule, self.names, closed=job.closed, progress=self.progress, **more)

    def hold_out(self, users: Sequence[Hashable], active: LatentModels | None) -> NDArray[np.bool_]:
        """Return which users are held out; TooFewRows if too few are left on either side."""
        share = self.job.held_out
        held = np.array([is_held_out(self.service.seed, str(user), share) for user in users], bool)
        n_held = int(held.sum())
        if len(held) - n_held < 2 or (share > 0 and active is not None and n_held < 2):
            words = f"{len(held) - n_held} users to learn from and {n_held} held out"
            raise TooFewRows(f"{words}, which is too few; wait for more rewards")
        return held


class _Learned(NamedTuple):
    """Models, the users they were learned from, and those they are judged by."""

    models: LatentModels
    log: EventLog
    held_out: EventLog
    held_out_of_active: EventLog | None = None  # the same users as the version served now sees them, if it differs
    n_left_out: int = 0  # users on neither side, because of their features


def _learn_classes(about: _Log, active: LatentModels | None) -> _Learned:
    learning, held_out, n_left_out = _read_users(about, active)
    models = _fit_models(about.job, learning, active, about.service, about.progress)
    models = share_noise(models, learning.n_users)
    about.progress("scoring held-out users", 0, None)
    return _Learned(models, learning, held_out, n_left_out=n_left_out)


def _read_users(about: _Log, active: LatentModels | None) -> tuple[EventLog, EventLog, int]:
    """Read the users to learn from, those held out, and how many are neither, because of their features."""
    job = about.job
    log = about.read(read_training_data, keep_rows=job.learner != AUTO and get_learner(job.learner).needs_rows)
    if job.learner == AUTO and not can_serve(log) and log.stats.n_events * log.stats.n_features <= _MOST_KEPT:
        log = about.read(read_training_data, keep_rows=True)  # to serve numbers, or to predict later rewards
    strange = find_outliers(log.stats)
    log = log.take(~strange) if strange.any() else log
    held = about.hold_out(log.stats.users, active)
    return log.take(~held), log.take(held), int(strange.sum())


def _learn_with_effects(about: _Log, active: LatentModels | None) -> _Learned | None:
    """Learn classes and item effects; None if items do not come again, so that they cannot have effects."""
    job = about.job
    rows, users = about.read(read_item_rows)
    if not rows.items_repeat:
        return None
    strange = find_outliers(rows.history().stats)
    if strange.any():
        rows, users = rows.take_users(np.flatnonzero(~strange)), tuple(compress(users, ~strange))
    held = about.hold_out(users, active)
    learning = rows.take_users(np.flatnonzero(~held))
    held_out = rows.take_users(np.flatnonzero(held))
    small = len(learning.user) * learning.x.shape[1] <= _MOST_KEPT
    keep_rows = small if job.learner == AUTO else get_learner(job.learner).needs_rows
    as_given, _, n_left_out = _read_users(about, active)
    if _learns_mixture(job, as_given):
        chosen, start = msgspec.structs.replace(job, learner=LEARNER), None
    else:  # kind and number of classes are chosen on the rewards as they are: Gaussian classes of clicks would be split
        start = _fit_models(job, as_given, active, about.service, about.progress)
        chosen = msgspec.structs.replace(job, n_classes=start.n_classes)
        start = replace(start, likelihood="gaussian", levels=None)
    fit = partial(_fit_models, chosen, service=about.service, progress=about.progress)
    models = fit_with_effects(learning, fit, start, keep_rows=keep_rows, progress=about.progress)
    models = share_noise(models, learning.n_users)
    about.progress("scoring held-out users", 0, None)
    assert models.item_effects is not None
    log = learning.history(models.item_effects.effect)
    if not held.any():
        return _Learned(models, log, log.take(np.empty(0, np.intp)), n_left_out=n_left_out)
    theirs = None if active is None else see_held_out(active, learning, held_out)
    return _Learned(models, log, see_held_out(models, learning, held_out), theirs, n_left_out)


def share_noise(models: LatentModels, n_users: int) -> LatentModels:
    """Return point classes with their noise drawn towards that of all, as if each had five users more of average noise.

    The noise of a class is known from its people, not from the number of their rewards.  One user who always gives the
    same would be a class without noise, to which every newcomer seems to belong who gives that a few times.

    >>> models = LatentModels([0.995, 0.005], np.zeros((2, 1)), [0.1, 1e-6])
    >>> share_noise(models, 200).sigma2.round(3)
    array([0.1  , 0.083])
    """
    if models.personal:
        return models
    n, mean = models.pi * n_users, float(models.pi @ models.sigma2)
    return replace(models, sigma2=(n * models.sigma2 + _LIKE_OTHERS * mean) / (n + _LIKE_OTHERS))


def _read_service(store: Store, job: Job) -> tuple[events.ServiceBody, events.ModelBody | None]:
    """Return the service event of the log, and the version to compare with."""
    service, served = None, None
    for row in store.events_of_service(job.seq):
        if row.kind == "service":
            service = read_event(row)
        elif row.kind == "model" and row.id == event_id("model", job.active):
            served = read_event(row)
    if service is None:
        raise InputError(f"{store.url} is not the store of a service; give one that lcb serve has created")
    return service, served


def _unpack_served(served: events.ModelBody) -> LatentModels | None:
    try:
        return unpack_models(served.manifest, served.tensors, f"model version {served.version}")[0]
    except ModelError:
        return None


def _fit_models(
    job: Job, log: EventLog, active: LatentModels | None, service: events.ServiceBody, progress: Progress
) -> LatentModels:
    from lcb.learners import fit

    seed = [*service.seed, job.seq]  # the same log gives the same models
    if job.learner == AUTO:
        return _fit_choice(job, log, active, np.random.default_rng(seed), progress)
    learner = get_learner(job.learner)
    likelihood = choose_for_range(log, learner, service.reward_range)
    n_classes = None if job.n_classes is None else min(job.n_classes, log.n_users)
    settings: dict[str, Any] = {"n_threads": 1} if "n_threads" in learner.settings else {}
    if likelihood == "gaussian" and learner.start == "models" and active is not None and active.n_classes == n_classes:
        settings["start"] = replace(active, likelihood="gaussian", levels=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the provenance of the models says whether they converged
        try:
            settings |= {"rng": np.random.default_rng(seed), "likelihood": likelihood, "progress": progress}
            return fit(log, n_classes, learner=job.learner, **settings).models
        except ModelError:
            raise
        except InputError as error:
            raise TooFewRows(str(error)) from None


def _learns_mixture(job: Job, log: EventLog) -> bool:
    """Whether nothing is chosen: the log is of the service's own choices, or those of others show too little."""
    if job.learner != AUTO or job.n_classes is not None:
        return False
    return is_one_sided(log) or is_favoured(log) if job.shadow else is_own_choice(log)


def _fit_choice(
    job: Job, log: EventLog, active: LatentModels | None, rng: np.random.Generator, progress: Progress
) -> LatentModels:
    """Learn the classes that the choice makes; it is made again when the users have doubled.

    From the service's own choices a mixture is learned instead, unless `n_classes` is given.
    """
    from lcb.evaluate.choice.candidates import Classes
    from lcb.evaluate.choice.choose import Choice, choose, learn_chosen

    if _learns_mixture(job, log):
        try:
            return learn_own_choices(log, rng, progress).models
        except InputError as error:
            raise TooFewRows(str(error)) from None
    known = {} if active is None else active.provenance
    if active is not None and log.n_users < 2 * known.get("chosen_from", 0):
        choice = Choice(Classes(active.personal, active.n_classes, active.likelihood), known["bonus"])
        n_users = known["chosen_from"]
    else:
        try:
            choice, n_users = choose(log, rng=rng, n_classes=job.n_classes, progress=progress), log.n_users
        except InputError as error:
            raise TooFewRows(str(error)) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the provenance of the models says whether they converged
        models = learn_chosen(log, choice, rng=rng, n_threads=1, progress=progress).models
    return models.with_provenance({**models.provenance, "chosen_from": n_users})


if __name__ == "__main__":
    main()
