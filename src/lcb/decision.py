"""`Decision`, and checks of the contexts and rewards that bandits receive.

A decision carries everything that the update with its reward needs (the features of the arm, its propensity, the advice
of the policies), so rewards may come late and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import LARGEST, Floats, Index, lay_out
from lcb.errors import InputError


@dataclass(slots=True, eq=False)
class Decision:
    """One arm chosen from a context; it is never changed (not frozen, because making one would take ten times as long).

    >>> context = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> decision = Decision.best(np.array([0.2, 0.7]), context, uniform=0.9)
    >>> decision.arm, float(decision.propensity), decision.x, decision.distribution
    (1, 1.0, array([0., 1.]), array([0., 1.]))
    """

    arm: int
    propensity: float  # probability of this arm, P(a | context)
    x: Floats  # (d,) features of the arm
    distribution: Floats | None = None  # (K,) probability of every arm
    at_random: bool = False  # an exploration step: drawn uniformly from all arms
    advice: Floats | None = None  # of the policies, flat, as the bandit's `update` needs it
    effect: float = 0.0  # of the arm's item (`lcb.models.item_effects`): what `update` leaves out of the reward
    mean: float = 0.0  # expected reward of the arm's features, where the bandit was given item effects
    effects: Floats | None = None  # (K,) the effect of every arm
    means: Floats | None = None  # (K,) the mean of every arm

    @classmethod
    def best(
        cls,
        scores: Floats,
        context: Floats,
        uniform: float,
        bounds: tuple[int, int] | None = None,
        effects: Floats | None = None,
        means: Floats | None = None,
    ) -> Decision:
        """Choose the arm with the highest of `scores` (K,); `uniform`, a uniform number in [0, 1), breaks ties.

        `bounds` are the first and the last of the best arms, if they are known.  `effects` and `means`, (K,) each, are
        the item effects and the expected rewards of the features of all arms.
        """
        first, last = bounds or (int(scores.argmax()), len(scores) - 1 - int(scores[::-1].argmax()))
        arm, propensity, best = first, 1.0, scores[first]
        if best != best:
            raise InputError("the context or the state contains NaN; give finite features and rewards")
        distribution = np.zeros(len(scores))
        if first == last:
            distribution[arm] = 1.0
        else:
            tied = (scores == best).nonzero()[0]
            arm, propensity = int(tied[int(uniform * len(tied))]), 1 / len(tied)
            distribution[tied] = propensity
        if effects is None or means is None:
            return cls(arm, propensity, context[arm], distribution)
        beside = effects.item(arm), means.item(arm), effects, means
        return cls(arm, propensity, context[arm], distribution, False, None, *beside)

    @classmethod
    def uniform(cls, context: Floats, uniform: float) -> Decision:
        """Draw an arm uniformly; `uniform` is a uniform number in [0, 1)."""
        n_arms = len(context)
        if not n_arms:
            raise InputError("the context has no arms; give at least 1")
        arm = int(uniform * n_arms)
        return cls(arm, 1 / n_arms, context[arm], np.full(n_arms, 1 / n_arms), at_random=True)

    def with_uniform(self, share: float, context: Floats, uniform: float) -> Decision:
        """Mix with the uniform distribution: if `uniform` is below `share`, draw the arm uniformly, without advice."""
        assert self.distribution is not None
        arm, advice = self.arm, self.advice
        if uniform < share:
            arm, advice = int(uniform / share * len(context)), None
        distribution = (1 - share) * self.distribution
        distribution += share / len(context)
        mixed = arm, distribution[arm], context[arm], distribution, self.at_random, advice
        effects, means = self.effects, self.means
        if effects is None or means is None:
            return Decision(*mixed)
        return Decision(*mixed, effects.item(arm), means.item(arm), effects, means)

    def mix(self, share: float, other: Decision, uniform: float) -> Decision:
        """Return this decision if `uniform` is below `share`, else `other`, with the probabilities of the mixture."""
        assert self.distribution is not None
        assert other.distribution is not None
        one = self if uniform < share else other
        distribution = share * self.distribution + (1 - share) * other.distribution
        beside = one.at_random, one.advice, one.effect, one.mean, one.effects, one.means
        return Decision(one.arm, distribution.item(one.arm), one.x, distribution, *beside)

    def with_effects(self, effects: Floats, means: Floats) -> Decision:
        """Return a copy with the item effects and the expected rewards of the features of all arms, (K,) each."""
        arm = self.arm
        own = arm, self.propensity, self.x, self.distribution, self.at_random, self.advice
        return Decision(*own, effects.item(arm), means.item(arm), effects, means)


@dataclass(slots=True, eq=False)
class Choices:
    """The decisions for many users from one context, each with the bits that it would have alone.

    >>> choices = Choices.best(np.array([[0.2, 0.7], [0.9, 0.1]]), np.array([0.5, 0.5]))
    >>> choices.arms, choices.with_uniform(0.1, np.array([0.5, 0.05])).distributions
    (array([1, 0]), array([[0.05, 0.95],
           [0.95, 0.05]]))
    """

    arms: Index  # (B,)
    distributions: Floats  # (B, K); an arm's probability is its propensity
    means: Floats | None = None  # (B, K) expected rewards of the features, where the bandit was given item effects

    @classmethod
    def best(cls, scores: Floats, uniforms: Floats) -> Choices:
        """Do the same as `Decision.best` for each row of `scores` (B, K)."""
        rows, n_arms = np.arange(len(scores)), scores.shape[1]
        arms = scores.argmax(axis=1)
        best = scores[rows, arms]
        if np.isnan(best).any():
            raise InputError("the context or the state contains NaN; give finite features and rewards")
        distributions = np.zeros(scores.shape)
        distributions[rows, arms] = 1.0
        for i in (arms != n_arms - 1 - scores[:, ::-1].argmax(axis=1)).nonzero()[0].tolist():
            tied = (scores[i] == best[i]).nonzero()[0]
            arms[i] = tied[int(uniforms[i] * len(tied))]
            distributions[i] = 0.0
            distributions[i, tied] = 1 / len(tied)
        return cls(arms, distributions)

    def with_uniform(self, share: float, uniforms: Floats) -> Choices:
        """Do the same as `Decision.with_uniform` for each decision."""
        n_arms = self.distributions.shape[1]
        arms, at_random = self.arms.copy(), uniforms < share
        arms[at_random] = (uniforms[at_random] / share * n_arms).astype(np.intp)
        distributions = (1 - share) * self.distributions
        distributions += share / n_arms
        return Choices(arms, distributions, self.means)


def rescale_many(uniforms: Floats, share: float) -> Floats:
    """Do the same as `rescale` for each number."""
    return np.maximum((uniforms - share) / (1 - share), 0.0) if share < 1 else np.zeros(len(uniforms))


def rescale(uniform: float, share: float) -> float:
    """Map a uniform number in [share, 1) to [0, 1)."""
    return max((uniform - share) / (1 - share), 0.0) if share < 1 else 0.0


def check_reward(reward: float) -> None:
    """Raise InputError for a reward that is not finite or is too large."""
    if not -LARGEST <= reward <= LARGEST:
        raise InputError(f"reward is {reward}; it must be a finite number of absolute value at most {LARGEST:g}")


def check_rewards(rewards: Floats) -> None:
    """Do the same for many rewards."""
    wrong = np.flatnonzero(~(np.abs(rewards) <= LARGEST))
    if len(wrong):
        check_reward(float(rewards[wrong[0]]))


def check_context(context: ArrayLike, n_features: int) -> Floats:
    """Return the context as an array; raise InputError unless it is arms by features, (K, d), with at least one arm.

    >>> check_context([[1, 0], [0, 1]], 2)
    array([[1., 0.],
           [0., 1.]])
    """
    context = to_context(context)
    if context.ndim != 2 or not len(context) or context.shape[1] != n_features:
        came = f"{len(context)} arms of {context.shape[1]} features" if context.ndim == 2 else f"shape {context.shape}"
        raise InputError(f"the context has {came}; give at least 1 arm, each of {n_features} features")
    return lay_out(context)


def to_context(context: ArrayLike) -> Floats:
    """Return a context given as lists as an array; an array stays as it is."""
    if isinstance(context, np.ndarray):
        return context
    try:
        return np.asarray(context, np.float64)
    except (ValueError, TypeError):
        raise InputError("the context is ragged or not numbers; give one list of features per arm") from None
