"""One policy per class: from the class's expected rewards to a distribution over arms.

    Greedy      the arm with the highest beta_h . x; tied arms share equally
    Softmax     p_a proportional to exp(beta_h . x_a / temperature)

The paper's temperature is 1, nearly uniform when ||beta|| is about 1; it is a setting.
Scores are (..., K) with arms last; so are the distributions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcb.errors import InputError
from lcb.events import Floats


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
