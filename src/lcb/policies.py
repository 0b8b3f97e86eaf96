"""Policies: each maps a class's expected rewards to a distribution over arms.

    Greedy      the arm with the highest beta_h . x; tied arms share equally
    Softmax     p_a proportional to exp(beta_h . x_a / temperature)

The paper's temperature is 1, which is nearly uniform if ||beta|| is about 1.  Scores and distributions are (..., K).

The bandits over policies take any set of policies: a callable from a context (K, d) to probabilities (N, K).
`ClassPolicies(models)` has one policy per class, as in the paper; `EnumeratedPolicies(contexts)` has every possible
policy, if all contexts can be listed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lcb.arrays import Floats
from lcb.decision import check_context
from lcb.errors import InputError
from lcb.models import LatentModels


@dataclass(frozen=True)
class Greedy:
    """Probability 1 for the best arm; tied arms share it.

    >>> Greedy()(np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]]))
    array([[0. , 1. , 0. ],
           [0.5, 0.5, 0. ]])
    """

    def __call__(self, scores: Floats) -> Floats:
        top = np.maximum.reduce(scores, -1, keepdims=True)
        is_best = np.equal(scores, top)
        best = is_best.astype(np.float64)
        if np.count_nonzero(is_best) == top.size and np.vdot(top, top) >= 0:  # no ties, and no NaN
            return best
        ties = np.add.reduce(best, -1, keepdims=True)
        if np.minimum.reduce(ties, None, initial=1) < 1:
            raise InputError("a score is NaN; give finite features")
        best /= ties
        return best


@dataclass(frozen=True)
class Softmax:
    """Higher probability for better arms.

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
    """A set of policies; a call returns the probability of every arm of a context under each policy."""

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
        check_context(context, self.models.n_features)
        return self.policy(self.models.beta @ context.T)


@dataclass(frozen=True, eq=False)
class EnumeratedPolicies:
    """Every map from the C possible contexts to their arms: K^C policies; the first context's arm changes slowest.

    This is the set of the paper's "EXP4.P enum-policies".  A context is recognised if its numbers are exactly equal.
    More than `limit` policies are refused.  A call costs O(K^C K).

    >>> first, second = np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]])
    >>> policies = EnumeratedPolicies([first, second])
    >>> policies.n_policies
    4
    >>> policies(second)
    array([[1., 0.],
           [0., 1.],
           [1., 0.],
           [0., 1.]])
    """

    contexts: Sequence[Floats] = field(repr=False)
    limit: int = 4096

    def __post_init__(self) -> None:
        if not len(self.contexts):
            raise InputError("there are no contexts; list all possible ones, each an array (arms, features)")
        for i, context in enumerate(self.contexts):
            if np.ndim(context) != 2 or len(context) == 0 or not np.isfinite(context).all():
                raise InputError(f"context {i} must be a finite array (arms, features) with at least one arm")
        if len(self._places) < len(self.contexts):
            raise InputError("a context is listed more than once; list each once")
        if math.fsum(map(math.log, self._n_arms)) > math.log(self.limit) + 1e-9:
            raise InputError(
                f"{len(self.contexts)} contexts have {format_n_policies(self._n_arms)} policies, but the limit is "
                f"{self.limit}; list fewer contexts, or learn classes instead"
            )

    @property
    def n_policies(self) -> int:
        return math.prod(self._n_arms)

    def __call__(self, context: Floats) -> Floats:
        place = self._places.get(_build_key(context))
        if place is None:
            raise InputError(
                f"this context is not one of the {len(self.contexts)} that were listed (NaN equals nothing); "
                "list every possible context"
            )
        return np.eye(self._n_arms[place])[self._arms[place]]

    @cached_property
    def _n_arms(self) -> tuple[int, ...]:
        return tuple(len(context) for context in self.contexts)

    @cached_property
    def _arms(self) -> tuple[NDArray[np.intp], ...]:
        """For each context, the arm that each policy takes, (N,)."""
        return np.unravel_index(np.arange(self.n_policies), self._n_arms)

    @cached_property
    def _places(self) -> dict[tuple[int, bytes], int]:
        return {_build_key(context): i for i, context in enumerate(self.contexts)}


def format_n_policies(n_arms: Sequence[int]) -> str:
    """Format the number of maps from contexts with these numbers of arms to their arms.

    >>> format_n_policies([20] * 20), format_n_policies([2, 3, 2])
    ('20^20 (about 1e+26)', '2^2 * 3 (12)')
    """
    product = " * ".join(f"{k}^{times}" if times > 1 else f"{k}" for k, times in sorted(Counter(n_arms).items()))
    digits = math.fsum(map(math.log10, n_arms))
    return f"{product} ({math.prod(n_arms)})" if digits < 12 else f"{product} (about 1e+{round(digits)})"


def _build_key(context: Floats) -> tuple[int, bytes]:
    """Return a dictionary key for a context, its shape and its numbers; 0 and -0 are the same number."""
    numbers = np.asarray(context, np.float64) + 0.0
    return len(numbers), numbers.tobytes()
