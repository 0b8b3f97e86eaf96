"""What a learner returns, and how certain the learned weights are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lcb.arrays import Floats
from lcb.displays import Displayed, DisplayTable
from lcb.event_log import EventLog
from lcb.models.latent_models import LatentModels
from lcb.stats import UserStats

if TYPE_CHECKING:
    from lcb.models.prior import Prior


@dataclass(frozen=True, eq=False)
class Fit(Displayed):
    """The result of a learner."""

    models: LatentModels
    trace: Floats  # log posterior after each step
    converged: bool
    held_out: Mapping[int, tuple[float, float]] = field(default_factory=dict)  # n_classes -> mean, error of its gap
    why: tuple[str, ...] = ()  # explanations of the choices that were made

    @property
    def n_steps(self) -> int:
        return len(self.trace)

    def chart(self, title: str | None = None) -> Any:
        """Draw the classes as a heat map (extra `plots`)."""
        return self.models.chart(title)

    def _table(self) -> DisplayTable:
        table = self.models._table()
        return replace(table, caption=". ".join([table.caption, *self.why]))


def weight_covariance(models: LatentModels, data: UserStats | EventLog, prior: Prior | None = None) -> Floats:
    """Return the uncertainty of each class's weights, (N, d, d), after learning from `data`.

        covariance_h = sigma2_h (precision + sum_u resp_uh X_u'X_u)^-1         resp_uh: the posterior of u's class

    This is the covariance of the Normal posterior of beta_h, each user weighted by the probability of class h;
    `precision` is the prior's, scaled from the data if not given.

    >>> from lcb.models.prior import Prior
    >>> stats = UserStats.from_rows(user=[0, 0, 1], x=[[1.0], [1.0], [1.0]], reward=[0.5, 0.5, 0.5])
    >>> weight_covariance(LatentModels(pi=[1.0], beta=[[0.5]], sigma2=[0.04]), stats, Prior(precision=1.0))
    array([[[0.01]]])
    """
    from lcb.models.prior import Prior  # brings SciPy, which serving does without

    stats = data.stats if isinstance(data, EventLog) else data
    resp = models.posterior(data)
    gram = UserStats(stats.packed.astype(np.float64, copy=False) @ resp, stats.n_features).gram
    _, precision = (prior or Prior.scaled(stats)).arrays(stats.n_features)
    covariance = models.sigma2[:, None, None] * np.linalg.inv(precision + gram)
    return np.asarray((covariance + covariance.swapaxes(1, 2)) / 2)
