"""Item effects: how much an item is liked beyond what its features say, for everybody.

    E[r | user, item] = a_i + x_i . w_u               a_i ~ N(prior_mean, prior_variance)

Given the weights of the users, an item whose effect is N(effect, variance) and that then gets `count` rewards with
residuals r - x . m, m a user's expected weights, has the effect

    effect   += variance (residual_sum - count effect) / (count variance + noise)
    variance *= noise / (count variance + noise)

From the prior this is a0 + sum (r - x . m - a0) / (n + s2 / t2_a), with variance t2_a s2 / (n t2_a + s2).  The sums are
over rewards, so their order does not matter.  An item that nobody has seen has the prior.

Where all items were alike so far, prior_variance is small, and nothing could ever lift a newcomer.  So the effects that
decisions use allow that an item is unlike the others (`ItemEffects.allow_unlike`):

    a_i ~ N(prior_mean, prior_variance), or with the chance `unlike` N(prior_mean, unlike_variance)

and effect and variance are those of the posterior under this prior (`mix_priors`): of an item that nobody has seen, the
variance is (1 - unlike) prior_variance + unlike unlike_variance; rewards soon say which of the two it is.

In a decision an effect is added to the expected reward of its arm, and its variance to the uncertainty (`ArmEffects`):

    score_a = mu_a + a_i + sqrt(bonus^2 sd_a^2 + item_bonus^2 l_i Var(a_i))
    l_i     = 1.5 psi(item_horizon Var(a_i) / noise)^2

mu_a and sd_a are of the arm's features for this user.  The effect is for everybody and the weights are the user's own,
so the two variances add up.  Each has its weight, because what is learned about an item serves later users too: a_i +
psi sqrt(Var(a_i)) is Gittins' index of an item that is to be offered `item_horizon` more times (Brezzi & Lai 2002), the
certain reward for which it would not be worth a try; an item that is known from as many rewards gains nothing.  The 1.5
is for clicks, which have more noise on an item that is liked more than on the others.  With `item_horizon` = 0, as in
logs written before there was one, l_i is 1 + 4 log(Var(a_i) / mean of Var over the arms on offer), at least 1.  The
reward then teaches the user's bandit r - a_i, the effect that the decision used.

Many newcomers at once would take every offer.  So the bonus of items counts in a share q of the offers only:

    p_a     = (1 - q) [a = argmax_b mu_b + a_b + bonus sd_b] + q [a = argmax_b score_b]
    q       = 1 if n <= 3, else max(item_share, 3 / n)
    n       = sum of 1 - Var(a_best) / Var(a_i) over the items i that the bonus puts above the best arm without it

n counts the unknown items that would take the offer: each counts less the more is known of it, and no more when its
bonus does not lift it above the best one.  With `item_share` = 1 there is no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats, Index
from lcb.decision import Decision, rescale
from lcb.errors import InputError, ModelError

_TWO_SIDED = 1.96  # standard deviations of a 95 % interval
UNLIKE = 0.1  # chance that an item is unlike the others
ALIKE, APART = 0.01, 0.25  # variance of effects that are alike, and of such an item's, as shares of that of the rewards
ITEM_HORIZON = 100_000.0  # offers of an item that are still to come, for the weight of its uncertainty


class ArmEffects(NamedTuple):
    """The item effects of the arms of one decision."""

    effect: Floats  # (K,)
    variance: Floats  # (K,)
    noise: float = 1.0  # variance of one residual

    def take(self, rows: Index) -> ArmEffects:
        """Return the effects of some of the arms."""
        return ArmEffects(self.effect[rows], self.variance[rows], self.noise)


SMALL_EFFECTS = "item_effects_explain_under"  # in the provenance of models whose effects were left out, being too small


@dataclass(frozen=True)
class ItemEffect:
    """The effect of one item beyond the mean of all items, with its 95 % interval."""

    item: str
    effect: float
    low: float
    high: float
    count: float


@dataclass(frozen=True, eq=False)
class ItemEffects:
    """The effects of all items that were learned from, and the prior of all others; checked on construction.

    An item costs 24 bytes beside its id.

    >>> effects = ItemEffects.from_residuals(["a", "b"], [4, 0], [2.0, 0.0], prior_mean=0.1, prior_variance=0.04,
    ...                                      noise=0.16)
    >>> effects.effect, effects.variance  # 0.1 + (2 - 4 * 0.1) / (4 + 4); 0.04 * 0.16 / (4 * 0.04 + 0.16)
    (array([0.3, 0.1]), array([0.02, 0.04]))
    >>> effects.of(["a", "never seen"])
    ArmEffects(effect=array([0.3, 0.1]), variance=array([0.02, 0.04]), noise=0.16)
    """

    ids: tuple[str, ...] = field(repr=False)
    effect: Floats = field(repr=False)  # (n,)
    variance: Floats = field(repr=False)  # (n,)
    count: Floats = field(repr=False)  # (n,) users that each effect was learned from
    prior_mean: float = 0.0
    prior_variance: float = 0.0
    noise: float = 1.0  # variance of one residual
    unlike: float = 0.0  # chance that an item is unlike the others; 0 in models saved before there was one
    unlike_variance: float = 0.0  # of the effect of such an item

    def __post_init__(self) -> None:
        ids = tuple(self.ids)
        for name in ("effect", "variance", "count"):
            values = np.array(getattr(self, name), dtype=np.float64)
            if values.shape != (len(ids),):
                raise ModelError(f"{name} of items has shape {values.shape}; wanted one number for each of {len(ids)}")
            if not np.isfinite(values).all() or (name != "effect" and (values < 0).any()):
                wanted = "finite numbers" if name == "effect" else "finite numbers, at least 0"
                raise ModelError(f"{name} of items has other values than {wanted}")
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        numbers = self.prior_mean, self.prior_variance, self.noise
        if not np.isfinite(numbers).all() or self.prior_variance < 0 or self.noise <= 0:
            raise ModelError(
                f"item effects have prior_mean={self.prior_mean}, prior_variance={self.prior_variance}, "
                f"noise={self.noise}; wanted finite numbers, a variance of at least 0 and noise above 0"
            )
        unlike, apart = self.unlike, self.unlike_variance
        if not (0 <= unlike < 1 and 0 <= apart < np.inf) or (unlike and not (self.prior_variance and apart)):
            raise ModelError(
                f"item effects have unlike={unlike}, unlike_variance={apart}; wanted a chance below 1, and if it is "
                "not 0, a prior_variance and an unlike_variance above 0"
            )
        object.__setattr__(self, "ids", ids)
        if len(set(ids)) != len(ids):
            raise ModelError(f"{len(ids)} items have {len(set(ids))} different ids; ids must be unique")

    @classmethod
    def from_residuals(
        cls,
        ids: Iterable[str],
        count: ArrayLike,
        residual_sum: ArrayLike,
        *,
        prior_mean: float,
        prior_variance: float,
        noise: float,
    ) -> Self:
        """Build the effects that follow from the prior and the residuals r - x . m of every item, (n,) each."""
        names, n, total = tuple(ids), np.asarray(count, np.float64), np.asarray(residual_sum, np.float64)
        effect, variance = add_residuals(prior_mean, prior_variance, n, total, noise)
        return cls(names, effect, variance, n, prior_mean, prior_variance, noise)

    @property
    def n_items(self) -> int:
        return len(self.ids)

    def allow_unlike(self, variance: float) -> Self:
        """Return the effects if items are alike, but any may be unlike the others; `variance` is that of the rewards.

        The effects stay as they are where items differ: their variance is 1 % of that of the rewards, or more.

        >>> effects = ItemEffects.from_residuals(["a", "b"], [100, 100], [0.0, 30.0], prior_mean=0.0,
        ...                                      prior_variance=0.001, noise=0.2)
        >>> effects.effect.round(3), effects.get("new")  # both are like the others, and so is what nobody has seen
        (array([0. , 0.1]), (0.0, 0.001))
        >>> wider = effects.allow_unlike(0.2)
        >>> wider.effect.round(3), round(wider.get("new")[1], 5)
        (array([0.   , 0.288]), 0.0059)
        """
        apart = APART * variance
        if not 0 < self.prior_variance < ALIKE * variance:
            return self
        precision = self.count / self.noise
        total = (self.effect - self.prior_mean) * (precision + 1 / self.prior_variance)
        widened = self.variance * (precision + 1 / self.prior_variance)  # what else makes effects uncertain
        effect, mixed = mix_priors(total, precision, self.prior_variance, apart, UNLIKE)
        return replace(
            self,
            effect=self.prior_mean + effect,
            variance=mixed * np.where(self.count > 0, widened, 1.0),
            unlike=UNLIKE,
            unlike_variance=apart,
        )

    def list_extremes(self, n: int) -> dict[str, list[ItemEffect]]:
        """Return at most `n` items with rewards each: best first, worst first, and the least known first."""
        seen = np.flatnonzero(self.count > 0)
        effect, half = self.effect - self.prior_mean, _TWO_SIDED * np.sqrt(self.variance)
        orders = {"best": -self.effect, "worst": self.effect, "uncertain": -self.variance}
        return {
            name: [
                ItemEffect(
                    self.ids[i],
                    float(effect[i]),
                    float(effect[i] - half[i]),
                    float(effect[i] + half[i]),
                    float(self.count[i]),
                )
                for i in seen[np.argsort(key[seen], kind="stable")][:n].tolist()
            ]
            for name, key in orders.items()
        }

    def summary(self) -> dict[str, float]:
        """Return the number of items with rewards, the prior of an effect and the noise."""
        items = int((self.count > 0).sum())
        numbers = {"prior_mean": self.prior_mean, "prior_variance": self.prior_variance, "noise": self.noise}
        return {"items": items, **numbers}

    @cached_property
    def rows(self) -> dict[str, int]:
        """The positions of the items by id; it costs 60 bytes an item, beside the id, from its first use on."""
        return {id: place for place, id in enumerate(self.ids)}

    def find(self, ids: Iterable[str]) -> Index:
        """Return the positions of these items, -1 for one that was not learned from."""
        return np.array([self.rows.get(id, -1) for id in ids], np.intp)

    def get(self, id: str, count: float = 0.0, residual_sum: float = 0.0) -> tuple[float, float]:
        """Return the effect of an item and its variance, after `count` more residuals r - x . m with this sum.

        Those of an item that was not learned from follow from the prior.
        """
        place = self.rows.get(id)
        if self.unlike and (place is None or not self.count[place]):
            total, precision = (residual_sum - count * self.prior_mean) / self.noise, count / self.noise
            effect, variance = mix_priors(total, precision, self.prior_variance, self.unlike_variance, self.unlike)
            return float(self.prior_mean + effect), float(variance)
        known = self.prior_mean, self.prior_variance
        if place is not None:
            known = float(self.effect[place]), float(self.variance[place])
        return add_residuals(*known, count, residual_sum, self.noise) if count or residual_sum else known

    def of(self, ids: Iterable[str]) -> ArmEffects:
        """Return the effects of the arms of a decision."""
        found = [self.get(id) for id in ids]
        effect, variance = np.array(found, np.float64).reshape(-1, 2).T.copy()
        return ArmEffects(effect, variance, self.noise)


def add_residuals(effect: Any, variance: Any, count: Any, residual_sum: Any, noise: float) -> tuple[Any, Any]:
    """Return effects and variances after `count` more residuals r - x . m with this sum, numbers or arrays.

    An effect without variance does not move.

    >>> add_residuals(0.1, 0.04, np.array([4.0]), np.array([2.0]), 0.16)
    (array([0.3]), array([0.02]))
    """
    size = count * variance + noise
    return effect + variance * (residual_sum - count * effect) / size, variance * (noise / size)


def mix_priors(total: Any, precision: Any, usual: float, unlike: float, chance: float) -> tuple[Any, Any]:
    """Return mean and variance of an effect with the prior N(0, usual), or with this chance N(0, unlike).

    `precision` is that of its rewards, `total` the precision times their mean, numbers or arrays.

    >>> [round(float(one), 4) for one in mix_priors(0.0, 0.0, 0.001, 0.05, 0.1)]  # no rewards: 0.9 * 0.001 + 0.1 * 0.05
    [0.0, 0.0059]
    >>> [round(float(one), 4) for one in mix_priors(0.0, 100.0, 0.001, 0.05, 0.1)]  # 20 rewards like the others'
    [0.0, 0.0012]
    """
    narrow, wide = usual / (1 + usual * precision), unlike / (1 + unlike * precision)  # variances given the rewards
    odds = np.log(chance / (1 - chance)) + 0.5 * (np.log(wide * usual / (narrow * unlike)) + total**2 * (wide - narrow))
    share = 1 / (1 + np.exp(-np.minimum(np.maximum(odds, -500.0), 500.0)))
    apart = total * (wide - narrow)
    return total * narrow + share * apart, (1 - share) * narrow + share * wide + share * (1 - share) * apart**2


def choose_by_scores(
    scores: Floats,
    means: Floats,
    effects: ArmEffects,
    item_bonus: float,
    horizon: float,
    share: float,
    context: Floats,
    uniform: float,
) -> Decision:
    """Choose the best arm with item effects; `scores` without them are `means` plus a bonus, (K,) each, overwritten.

    >>> effects = ArmEffects(np.zeros(2), np.full(2, 0.16))  # 0.2 + sqrt(0.3^2 + 0.4^2) against 0.2 + 0.4
    >>> choose_by_scores(np.array([0.5, 0.2]), np.array([0.2, 0.2]), effects, 1.0, 0.0, 1.0, np.eye(2), uniform=0.5).arm
    0
    """
    effect, variance, noise = effects
    weight, kernel = item_bonus * item_bonus, _load_kernels()[0]
    first, last, limit = kernel(scores, means, effect, variance, weight, horizon, noise, share)
    if limit == 1:
        return Decision.best(scores, context, uniform, (first, last), effect, means)
    plain = scores + effect
    kernel(scores, means, effect, variance, weight, horizon, noise, 1.0)
    return _choose_within(limit, plain, scores, (first, last), context, uniform, effect, means)


def choose_by_means(
    means: Floats, effects: ArmEffects, item_bonus: float, horizon: float, share: float, context: Floats, uniform: float
) -> Decision:
    """Do the same where the expected rewards of the features, (K,), are certain or their bonus is 0."""
    return choose_by_scores(means.copy(), means, effects, item_bonus, horizon, share, context, uniform)


def choose_by_classes(
    weights: Floats,
    expected: Floats,
    bonus: float,
    effects: ArmEffects,
    item_bonus: float,
    horizon: float,
    share: float,
    context: Floats,
    uniform: float,
) -> Decision:
    """Do the same for classes of these `weights` (N,), under which the arms have the `expected` rewards (N, K)."""
    effect, variance, noise = effects
    weighs, found = (item_bonus * item_bonus, horizon, noise, share), np.empty((3, len(context)))
    first, last, limit = _load_kernels()[1](weights, expected, bonus, effect, variance, *weighs, found)
    means, scores = found[0], found[1]
    if limit == 1:
        return Decision.best(scores, context, uniform, (first, last), effect, means)
    return _choose_within(limit, found[2], scores, (first, last), context, uniform, effect, means)


def _choose_within(
    limit: float,
    plain: Floats,
    scores: Floats,
    bounds: tuple[int, int],
    context: Floats,
    uniform: float,
    effect: Floats,
    means: Floats,
) -> Decision:
    """Choose by `scores` in a share `limit` of the decisions, else by `plain`, without the bonus of items."""
    own = Decision.best(scores, context, uniform / limit if uniform < limit else 0.0, bounds, effect, means)
    return own.mix(limit, Decision.best(plain, context, rescale(uniform, limit), None, effect, means), uniform)


Kernel = Callable[..., tuple[int, int, float]]


@cache
def _load_kernels() -> tuple[Kernel, Kernel]:
    from lcb.models._item_effects_numba import add_effects_to_scores, score_by_classes

    return add_effects_to_scores, score_by_classes


def check_item_bonus(item_bonus: float, item_horizon: float, item_share: float) -> None:
    if not 0 <= item_share <= 1:
        raise InputError(f"item_share={item_share}; it is a share of the offers and must lie in [0, 1]")
    for name, value in (("item_bonus", item_bonus), ("item_horizon", item_horizon)):
        if not 0 <= value < np.inf:
            raise InputError(f"{name}={value}; it must be a finite number, at least 0")
