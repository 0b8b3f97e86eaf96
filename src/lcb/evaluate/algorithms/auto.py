"""`lcb-auto`: kind and number of classes and the bonus are chosen on the data (`lcb.evaluate.choice`)."""

from __future__ import annotations

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.evaluate.algorithms.algorithm import Algorithm, Task
from lcb.evaluate.algorithms.latent import OURS, build_relearning
from lcb.evaluate.algorithms.learning import learn_from_last
from lcb.evaluate.choice.candidates import DEFAULT_BONUS, Classes, build_bandit
from lcb.evaluate.choice.choose import Choice, choose, draw_positions, learn_chosen
from lcb.evaluate.choice.own_choices import is_own_choice, learn_own_choices
from lcb.evaluate.choice.serving import can_serve
from lcb.event_log import EventLog
from lcb.models import LatentModels
from lcb.recommenders.latent import FromRows, Latent
from lcb.recommenders.recommender import Recommender

_WARMUP_WIDTH = 0.5  # a service's; a narrower LinUCB shows fewer arms, and nothing is learned of the others


class _Relearn:
    """Learns as users come; the choice, if there is one to make, is made again when the users have doubled."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.choice: Choice | None = None
        self.n_users = 0  # at the last choice

    def __call__(self, log: EventLog, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        if is_own_choice(log):
            return learn_own_choices(log, rng).models
        if self.choice is None or log.n_users >= 2 * self.n_users:
            self.choice, self.n_users = choose(log, rng=rng, n_steps=self.task.n_steps), log.n_users
            return learn_chosen(log, self.choice, rng=rng, n_threads=1).models
        classes = self.choice.classes
        assert isinstance(classes, Classes)  # a mixture is chosen only from what `is_own_choice` takes
        models = learn_from_last(log, rng, last, classes.n_classes, classes.learner, {})
        return models.with_provenance({**models.provenance, "bonus": self.choice.bonus})


def _bandit(models: LatentModels) -> Bandit:
    return build_bandit(models, models.provenance.get("bonus", DEFAULT_BONUS))


def _build(task: Task, rng: np.random.Generator) -> Recommender:
    if task.history is None:
        return build_relearning(task, _bandit, FromRows(_Relearn(task)), rng, _WARMUP_WIDTH)
    n_classes = task.n_classes if task.fixes_classes else None
    tried, able = task.history, task.able
    if task.read_rows is not None and not can_serve(tried):  # rewards of many values: statistics cannot be served
        drawn = draw_positions(tried.n_users, able, rng)
        tried, able = task.read_rows(drawn), None if able is None else able[drawn]
    choice = choose(tried, rng=rng, n_classes=n_classes, n_steps=task.n_steps, able=able)
    models = learn_chosen(task.history, choice, rng=rng, n_threads=1).models
    recommender = Latent(task.n_features, _bandit, rng=rng, models=models, retrain_every=None)
    recommender.why = choice.why
    return recommender


ALGORITHMS = (
    Algorithm(
        "lcb-auto", "kind and number of classes and the bonus chosen by serving held-out training users", OURS,
        build=_build, cost="N (d^3 + K d^2) at most",
    ),
)  # fmt: skip
