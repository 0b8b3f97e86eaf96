"""The candidates of a choice: kinds of classes, their number and the bonus, ordered from simple to complex."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.errors import ConvergenceWarning
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.shared.users import Users
from lcb.models import Fit, LatentModels, Likelihood
from lcb.progress import Progress, silent

BONUSES = (0.0, 0.5, 1.0)
PERSONAL = (1, 5, 10, 30)  # numbers of personal classes
_TRIAL_STARTS = 4  # of point classes, however many
DEFAULT_BONUS = 0.5  # where no user can be served
MOST_USERS = 5_000  # that are tried on, and that a mixture is learned from


@dataclass(frozen=True)
class Classes:
    """A kind of classes and their number."""

    personal: bool
    n_classes: int
    likelihood: Likelihood = "gaussian"

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """Point classes come before personal ones, then fewer classes, then the likelihood of two-valued rewards."""
        return self.personal, self.n_classes, self.likelihood == "gaussian"

    @property
    def cost(self) -> float:
        """About how long learning and serving take, in units of personal classes; for the time left."""
        return 2.0 + self.n_classes if self.personal else 1.0 + self.n_classes / 20

    @property
    def learner(self) -> str:
        return "personal" if self.personal else "em"

    def learn(
        self,
        log: EventLog | Users,
        rng: np.random.Generator,
        progress: Progress = silent,
        n_threads: int | None = 1,
        most: int | None = None,
        **settings: Any,
    ) -> Fit:
        """Learn these classes, at most `most`; `settings` are those of the learner."""
        return fit(
            log,
            self.n_classes if most is None else min(self.n_classes, most),
            rng=rng,
            learner=self.learner,
            likelihood=self.likelihood,
            n_threads=n_threads,
            progress=progress,
            **settings,
        )

    def learn_trial(self, log: EventLog, rng: np.random.Generator) -> LatentModels:
        """Learn these classes for a comparison, whether or not the learner converged."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            settings: dict[str, Any] = {} if self.personal else {"n_starts": _TRIAL_STARTS}
            return self.learn(log, rng, most=log.n_users, **settings).models

    def __str__(self) -> str:
        if self.personal:
            return "one personal class" if self.n_classes == 1 else f"{self.n_classes} personal classes"
        return f"{self.n_classes} point class{'es' * (self.n_classes > 1)} ({self.likelihood.capitalize()})"


def build_bandit(models: LatentModels, bonus: float) -> Bandit:
    """Return the bandit for classes of either kind."""
    return PersonalClasses(models, bonus) if models.personal else PosteriorMean(models, bonus=bonus)


def list_personal(n_classes: int | None, n_users: int) -> Sequence[Classes]:
    """Return the personal classes to try: `n_classes` if it is given."""
    numbers = PERSONAL if n_classes is None else (n_classes,)
    return [Classes(True, n) for n in numbers if n == 1 or 4 * n <= n_users]
