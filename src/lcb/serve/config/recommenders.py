"""The recommenders of a service: a name, a bandit of the library, its settings, whose state it keeps.

    over classes    a bandit over the policies of the learned classes, one state per user; before there are classes,
                    one LinUCB for everybody (phase 1 of Algorithm 1)
    linear          LinUCB, LinTS: one state per user, or one for everyone ("Population LinUCB")
    uniform         every arm alike

A name stands for the same settings for as long as the log lives; the log keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import msgspec
import numpy as np

from lcb.bandits.bandit import Bandit
from lcb.bandits.fixed_arms.multiple_k_ucb import MultipleKUCB
from lcb.bandits.fixed_arms.ucb1 import UCB1
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.bandits.linear.coarse_fine import CoarseFineUCB
from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.mmts import MMTS
from lcb.bandits.over_classes.mucb import MUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4 import EXP4
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.bandits.uniform import Uniform
from lcb.errors import InputError
from lcb.events import Decision, Floats
from lcb.models import LatentModels
from lcb.policies import ClassPolicies

Range = tuple[float, float]
_N_STEPS = 1000  # of a user, for the rules that must know


def _coarse_fine(models: LatentModels, *, n_coarse: int | None = None, **settings: Any) -> Bandit:
    """The subspace is that of the classes' weights."""
    directions = np.linalg.svd(models.beta, full_matrices=False)[2]
    return CoarseFineUCB(directions[: n_coarse or len(directions)].T.copy(), **settings)


OVER_CLASSES: dict[str, Callable[..., Bandit]] = {
    "thompson": GeneralizedThompson,
    "posterior-mean": PosteriorMean,
    "exp3": lambda models, **s: EXP3(ClassPolicies(models), **s),
    "exp4": lambda models, **s: EXP4(ClassPolicies(models), **s),
    "exp4p": lambda models, **s: EXP4P(ClassPolicies(models), **s),
    "epoch-greedy": lambda models, **s: EpochGreedy(ClassPolicies(models), **s),
    "iltcb": lambda models, **s: ILTCB(ClassPolicies(models), **s),
    "mucb": lambda models, **s: MUCB(models, **{"n_steps": _N_STEPS, **s}),
    "mmts": MMTS,
    "coarse-fine": _coarse_fine,
    "umucb": lambda models, **s: UMUCB(models, **{"n_steps": _N_STEPS, **s}),
    "multiple-k-ucb": MultipleKUCB,
}
LINEAR: dict[str, Callable[..., Bandit]] = {
    "linucb": LinUCB,
    "lints": LinTS,
    "ucb1": UCB1,
    "uniform": lambda n_features, **s: Uniform(**s),
}
BANDITS = (*OVER_CLASSES, *LINEAR)
NEEDS_RANGE = frozenset({"exp3", "exp4", "exp4p", "epoch-greedy", "iltcb"})
WEIGHS = frozenset({"exp3", "exp4", "iltcb"})  # a reward by how probable its arm was
WEIGHS_ALL = frozenset({"exp4p"})  # by how probable every arm was, which a caller who tells one does not say
REVISABLE = frozenset({"linucb", "lints", "uniform"})  # whose shared state a changed reward can still mend

_TRIAL = LatentModels(np.full(2, 0.5), np.eye(2), np.ones(2)).with_covariance(np.tile(np.eye(2), (2, 1, 1)))


@dataclass(frozen=True)
class RecommenderSpec:
    """One recommender of a service.

    >>> RecommenderSpec("population", "linucb", scope="everyone", settings={"width": 0.25}).to_json()
    b'{"bandit":"linucb","name":"population","scope":"everyone","settings":{"width":0.25},"warmup":{}}'
    >>> RecommenderSpec("lcb", "thomson")
    Traceback (most recent call last):
    lcb.errors.InputError: recommender lcb: bandit 'thomson'; there are: thompson, posterior-mean, exp3, ...
    """

    name: str
    bandit: str = "thompson"
    scope: Literal["user", "everyone"] = "user"
    settings: dict[str, Any] = field(default_factory=dict)
    warmup: dict[str, Any] = field(default_factory=dict)  # settings of phase 1's LinUCB

    def __post_init__(self) -> None:
        if self.bandit not in BANDITS:
            raise InputError(f"recommender {self.name}: bandit {self.bandit!r}; there are: {', '.join(BANDITS)}")
        if self.scope not in ("user", "everyone"):
            raise InputError(f"recommender {self.name}: scope {self.scope!r}; it is 'user' or 'everyone'")
        if self.scope == "everyone" and self.over_classes:
            raise InputError(
                f"recommender {self.name}: {self.bandit} has one state per user; scope 'everyone' is of linear bandits"
            )
        self.check_settings()

    @property
    def over_classes(self) -> bool:
        return self.bandit in OVER_CLASSES

    def takes(self) -> list[str]:
        """The names of the bandit's settings."""
        trial = RecommenderSpec(self.name, self.bandit, self.scope) if self.settings else self
        made = trial.make(_TRIAL, 2, (0.0, 1.0))
        given = {"models", "policies", "n_features", "n_arms", "subspace"}
        return [one.name for one in fields(made) if one.name not in given]  # type: ignore[arg-type]

    def check_settings(self) -> None:
        """Refuse settings the bandit does not have, or values it does not take."""
        try:
            self.make(_TRIAL, 2, (0.0, 1.0))
            self.make_warmup(2)
        except TypeError as error:
            known = ", ".join(self.takes())
            raise InputError(
                f"recommender {self.name}: {self.bandit} does not take {self.settings} ({error}); it has: {known}"
            ) from None
        except InputError as error:
            raise InputError(f"recommender {self.name}: {error}") from None

    def make(self, models: LatentModels | None, n_features: int, reward_range: Range | None) -> Bandit:
        """The bandit, over the classes of `models` if it needs them."""
        settings = dict(self.settings)
        if self.over_classes:
            if self.bandit in NEEDS_RANGE and reward_range is not None:
                settings.setdefault("reward_range", reward_range)
            return OVER_CLASSES[self.bandit](models, **settings)
        return LINEAR[self.bandit](n_features, **settings)

    def make_warmup(self, n_features: int) -> Bandit:
        return LinUCB(n_features, **self.warmup)

    def to_json(self) -> bytes:
        kept = {"name": self.name, "bandit": self.bandit, "scope": self.scope, "settings": self.settings}
        return msgspec.json.encode(kept | {"warmup": self.warmup}, order="sorted")

    @classmethod
    def from_json(cls, kept: bytes) -> RecommenderSpec:
        return cls(**msgspec.json.decode(kept))


def revised(bandit: Bandit, state: Floats, decision: Decision, before: float, after: float) -> Floats:
    """The state as if the reward had been `after` and not `before`; for states shared by all users."""
    if isinstance(bandit, LinUCB):
        matrix = state.reshape(bandit.n_features, -1).copy()
        matrix[:, -1] += (after - before) * (matrix[:, :-1] @ decision.x)
        return matrix.ravel()
    if isinstance(bandit, LinTS):
        matrix = state.reshape(bandit.n_features, -1).copy()
        matrix[:, -1] += (after - before) * decision.x
        return matrix.ravel()
    return state
