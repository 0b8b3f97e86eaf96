"""One policy per class: from the class's expected rewards to a distribution over arms.

    Greedy      the arm with the highest beta_h . x; tied arms share equally
    Softmax     p_a proportional to exp(beta_h . x_a / temperature)

The paper's temperature is 1, nearly uniform when ||beta|| is about 1; it is a setting.
Scores are (..., K) with arms last; so are the distributions.

A bandit that knows nothing of classes takes any set of policies: a call from a context (K, d) to (N, K).
`ClassPolicies(models)` is the set the paper means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lcb.errors import InputError
from lcb.events import Floats
from lcb.models import LatentModels


@dataclass(frozen=True)
class Greedy:
    """All on the best arm.

    >>> Greedy()(np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]]))
    array([[0. , 1. , 0. ],
           [0.5, 0.5, 0. ]])
    """

    def __call__(self, scores: Floats) -> Floats:
        best = np.equal(scores, np.maximum.reduce(scores, -1, keepdims=True)).astype(np.float64)
        ties = np.add.reduce(best, -1, keepdims=True)
        if not ties.all():
            raise InputError("a score is NaN: no arm is best; give finite features")
        best /= ties
        return best


@dataclass(frozen=True)
class Softmax:
    """More on better arms.

    >>> Softmax(temperature=0.5)(np.array([[0.0, 0.5 * np.log(3)]]))
    array([[0.25, 0.75]])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature={self.temperature}; it must be a positive number")

    def __call__(self, scores: Floats) -> Floats:
        p = np.exp((scores - scores.max(-1, keepdims=True)) / self.temperature)
        p /= p.sum(-1, keepdims=True)
        return np.asarray(p)


Policy = Greedy | Softmax


class Policies(Protocol):
    """A set of policies: each says, for every arm of a context, how likely it would take it."""

    @property
    def n_policies(self) -> int: ...

    def __call__(self, context: Floats) -> Floats: ...


@dataclass(frozen=True)
class ClassPolicies:
    """One policy per class.

    >>> models = LatentModels(pi=[0.5, 0.5], beta=[[1.0, 0.0], [0.0, 1.0]], sigma2=[0.01, 0.01])
    >>> ClassPolicies(models)(np.array([[0.3, 0.9], [0.8, 0.1]]))
    array([[0., 1.],
           [1., 0.]])
    """

    models: LatentModels = field(repr=False)
    policy: Policy = Greedy()

    @property
    def n_policies(self) -> int:
        return self.models.n_classes

    def __call__(self, context: Floats) -> Floats:
        return self.policy(self.models.beta @ context.T)
