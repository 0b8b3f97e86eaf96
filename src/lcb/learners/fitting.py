"""`fit`: learn latent classes from a log with any learner.

The learner, the likelihood and the number of classes may be given; what is not given is chosen, and `Fit.why` says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lcb.clicks import EventLog
from lcb.errors import ConvergenceWarning, InputError
from lcb.learners.em import bernoulli
from lcb.learners.em import gaussian as em
from lcb.learners.gibbs import blocked
from lcb.learners.gibbs import collapsed as gibbs
from lcb.learners.shared.n_classes import choose_n_classes
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral.moments import Form, Moments
from lcb.models import Fit, LatentModels, Likelihood
from lcb.progress import Progress, silent
from lcb.stats import UserStats

Learner = Literal["em", "gibbs", "blocked", "spectral"]
LEARNERS = ("em", "gibbs", "blocked", "spectral")
_FINDS_THE_NUMBER = ("gibbs", "blocked")
_TRIAL_STEPS = 200


def fit(
    data: UserStats | EventLog,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    learner: Learner = "em",
    likelihood: Likelihood | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> Fit:
    """Learn the classes; without `n_classes`, as many as predict held-out users best, or as the sampler finds.

    `likelihood` is chosen when not given: Bernoulli where the log holds counts of two-valued rewards and the learner
    is EM, else Gaussian.  `settings` go to the learner (see `em.fit`, `bernoulli.fit`, `gibbs.fit`, `blocked.fit`,
    `spectral.fit`; for spectral also `form`).  `Fit.why` says in words what was chosen.

    >>> stats = UserStats.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[0.9, 0.9, 0.1, 0.1])
    >>> fit(stats, 2, rng=np.random.default_rng(0)).models.n_classes
    2
    """
    if learner not in LEARNERS:
        raise InputError(f"learner={learner!r}; there are: {', '.join(LEARNERS)}")
    if likelihood not in (None, "gaussian", "bernoulli"):
        raise InputError(f"likelihood={likelihood!r}; it is 'gaussian' or 'bernoulli', or left to be chosen")
    log = data if isinstance(data, EventLog) else EventLog(data)
    likelihood, why = _likelihood(log, learner, likelihood, settings)
    if log is not data and likelihood == "gaussian":
        why = f"statistics do not tell clicks from other rewards: modelled as Gaussian, learned by {learner}"
    learn = _learn(learner, likelihood, log, settings)
    held_out: dict[int, tuple[float, float]] = {}
    chosen = n_classes is None
    if n_classes is None and learner not in _FINDS_THE_NUMBER:

        def trial(part: EventLog, n: int) -> LatentModels:
            steps = {} if learner == "spectral" else {"max_steps": min(_TRIAL_STEPS, settings.get("max_steps", 10**9))}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a trial need not settle to be compared
                return learn(part, n, rng=rng, progress=silent, **steps).models

        most = log.stats.n_features if learner == "spectral" else None
        n_classes, held_out = choose_n_classes(log, trial, rng=rng, most=most, progress=progress)
    result = learn(log, n_classes, rng=rng, progress=progress)
    by = ("held-out users" if held_out else "the sampler") if chosen else None
    provenance = {
        "learner": learner,
        "likelihood": likelihood,
        "n_users": log.n_users,
        "n_events": log.stats.n_events,
        "n_steps": result.n_steps,
        "converged": result.converged,
        **({"n_classes_chosen_by": by} if by else {}),
        **{
            name: value
            for name, value in settings.items()
            if isinstance(value, str | int | float) and name != "n_threads"  # threads change nothing
        },
    }
    models = result.models.with_provenance(provenance)
    reasons = (why, *_why_so_many(models.n_classes, by, held_out))
    return replace(result, models=models, held_out=held_out, why=reasons)


def _likelihood(
    log: EventLog, learner: str, wanted: Likelihood | None, settings: dict[str, Any]
) -> tuple[Likelihood, str]:
    """Which likelihood, and why."""
    counted = log.clicks is not None
    if wanted == "bernoulli" and learner != "em":
        raise InputError(f"learner {learner} models Gaussian rewards only; for a Bernoulli likelihood use em")
    if wanted is not None:
        return wanted, f"{wanted} rewards, learned by {learner}, as asked"
    if "variance" in settings:
        return "gaussian", f"a variance was asked for: Gaussian rewards, learned by {learner}"
    if counted and learner == "em":
        return "bernoulli", "the rewards take two values: modelled as clicks (Bernoulli), learned by em"
    if learner == "spectral":
        return "gaussian", "learned by spectral from moments of the rewards; served as Gaussian"
    if log.two_valued:
        reason = f"{learner} models Gaussian rewards" if counted else "(user, arm) pairs are too many to count"
        return "gaussian", f"the rewards take two values, but {reason}: Gaussian, learned by {learner}"
    return "gaussian", f"the rewards are not of two values: modelled as Gaussian, learned by {learner}"


def _learn(learner: str, likelihood: str, log: EventLog, settings: dict[str, Any]) -> Callable[..., Fit]:
    """The learner as a function of (log, n_classes); on two-valued rewards one shared variance is the default."""
    settings = dict(settings)
    if learner == "spectral":
        form: Form = settings.pop("form", "grouped")
        return lambda part, n, **more: spectral.fit(_moments(part, form), n, **{**settings, **more})
    if likelihood == "bernoulli":
        return lambda part, n, **more: bernoulli.fit(part, n, **{**settings, **more})
    if log.two_valued:
        settings.setdefault("variance", "shared")
    runs: dict[str, Callable[..., Fit]] = {"em": em.fit, "gibbs": gibbs.fit, "blocked": blocked.fit}
    run = runs[learner]
    return lambda part, n, **more: run(part.stats, n, **{**settings, **more})


def _moments(log: EventLog, form: Form) -> Moments:
    if log.rows is None:
        raise InputError("Spectral Experts learns from rows; give EventLog.from_rows, or read_log with keep_rows=True")
    owner, x, reward = log.rows
    moments = Moments.from_rows(owner, x, reward, form=form)
    return replace(moments, stats=replace(moments.stats, features=log.stats.features))


def _why_so_many(n_classes: int, by: str | None, held_out: dict[int, tuple[float, float]]) -> tuple[str, ...]:
    if by is None:
        return ()
    if not held_out:
        return (f"{n_classes} classes, as the sampler found",)
    mean, error = held_out[n_classes]
    return (
        f"{n_classes} classes: the fewest within one standard error of the best held-out log likelihood per user "
        f"({mean:.3f} ± {error:.3f}; tried {', '.join(map(str, held_out))})",
    )
