"""Item effects and classes learned together: classes from r - a_i, effects from what the classes leave.

    r = a_i + x_i . w_u + noise        a_i ~ N(a0, t2)

Given what the models say of a user, weights of mean m and covariance P after all their rewards r - a_i, an effect has

    n_i'  = sum over its rewards of 1 - x'P x / s2          what the user's weights fit says less of the item
    a_i  += (sum (r - x . m - a_i) / s2 - (a_i - a0) / t2) Var(a_i)         Var(a_i) = 1 / (1 / t2 + n_i' / s2)
    a0    = mean of a_i, or 0      t2 = mean of (a_i - a0)^2 + Var(a_i)     over the items that have rewards (EM)

Where the rewards of an item have more noise than the others, s2_i > s2, as clicks on what is liked have, Var(a_i) is
multiplied by 1 + g (s2_i / s2 - 1), g = 1 - Var(a_i) / t2 being the weight of the rewards against the prior.

The rewards of one user for one item count as one, their mean: an effect is what everybody likes, and one who clicks a
hundred times is one person.  (Sums over its rewards then have the weight 1 / n of each user's n rewards for it.)

The step is Newton's for the likelihood with the weights integrated out, one item at a time; where it rests, a_i is a0 +
sum (r - x . m - a0) / (n_i + s2 / t2).  m is the user's own: an item shown to enthusiasts is not taken for a good one.

`start_effects` does this with one class of people who differ, one EM step for the class and one for the items in turn;
`learn_with_effects` then alternates with the learner that was asked for.  A step costs O(users d^3 + rows d^2).

What is linear in the features belongs to the weights, but effects hardly give it back once they have it.  So every step
of the start ends with a regression of the effects on the features: a_i - x_i . g and weights + g say the same of every
reward, and the effects are as small as they can be.

The mean of all effects is nothing but a level of the rewards.  Where some weights give every item the same, as those of
categories do, the level is the weights', and a0 stays as it was, 0 from the start.  Else it would fall with every step:
people leave what disappoints them, so the means of users' rewards, of which an effect is made, are lower than the mean
of all rewards, of which the weights are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lcb.arrays import Floats
from lcb.event_log import EventLog
from lcb.learners.effects.rows import ItemRows
from lcb.learners.effects.sums import RatedItems, SumItems, find_items
from lcb.learners.personal._steps import CountRewards, Expect, Parameters, maximise
from lcb.learners.personal.mixture import begin
from lcb.learners.shared.users import Local, Users, map_here
from lcb.models import Fit, LatentModels
from lcb.models.item_effects import ItemEffects
from lcb.progress import Progress, silent

_STEPS = 12
_FEW = 5_000  # users from whom the class of the start is learned; effects are from all
_TOL = 2e-2  # change of an effect, in standard deviations of the effects, at which the steps end
LEAST_EFFECT = 0.001  # share of the variance of rewards; effects that explain less are not kept
_LIKE_OTHERS = 10.0  # rewards of the noise that all items have, beside those of an item
_SAME = 1e-6  # rounding of weights that give every item the same
_ROUNDS = 2  # of classes and effects in turn, after the start


def learn_with_effects(
    rows: ItemRows | RatedItems,
    fit: Callable[[EventLog | Users, LatentModels | None], Fit],
    *,
    effects: ItemEffects | None = None,
    n_rounds: int = _ROUNDS,
    progress: Progress = silent,
) -> Fit:
    """Learn classes with `fit(log, last models)` and item effects in turn; the models keep the effects.

    `effects` are those to start from, else `start_effects` learns them.
    """
    rows = find_items(rows)
    effects = start_effects(rows, progress=progress) if effects is None else effects
    found = fit(rows.history(effects.effect), None)
    for _ in range(n_rounds - 1):
        effects = improve_effects(effects, rows, found.models)
        found = fit(rows.history(effects.effect), found.models)
    effects = improve_effects(effects, rows, found.models)
    return replace(found, models=replace(found.models, item_effects=effects))


def start_effects(rows: ItemRows | RatedItems, *, n_steps: int = _STEPS, progress: Progress = silent) -> ItemEffects:
    """Learn item effects with one class of people who differ.

    >>> rng = np.random.default_rng(0)
    >>> appeal, user = rng.normal(0.0, 0.5, 20), np.repeat(np.arange(200), 5)
    >>> item = rng.integers(0, 20, 1000)
    >>> rows = ItemRows(tuple(map(str, range(20))), np.ones((20, 1)), user, item, rng.normal(appeal[item], 0.5))
    >>> effects = start_effects(rows)
    >>> bool(np.abs(effects.effect - effects.effect.mean() - appeal + appeal.mean()).max() < 0.3)
    True
    """
    rows = find_items(rows)
    effects, _ = give_to_features(_begin_effects(rows), rows)
    at: Parameters | None = None
    few = rows.take_users(np.linspace(0, rows.n_users - 1, min(_FEW, rows.n_users)).astype(np.intp))
    for step in range(n_steps):
        log = few.history(effects.effect)
        users = Local(log, map_here)
        totals = users.sums(CountRewards())
        if at is None:
            at, prior = begin(users, len(totals.count))
        for _ in range(2):
            at = maximise(totals, at, users.sums(Expect(at)), prior)
        before = effects.effect
        models = _as_models(at, rows)
        if step == 0:
            size = rows.sum_items(SumItems(models, effects.effect, with_size=True)).size
        effects, given = give_to_features(improve_effects(effects, rows, models, size), rows)
        at = replace(at, mu=at.mu + given)
        progress("learning item effects", step + 1, n_steps)
        if np.abs(effects.effect - before).max() <= _TOL * np.sqrt(effects.prior_variance):
            break
    assert at is not None  # there is at least one step
    return improve_effects(effects, rows, _as_models(at, rows))


def give_to_features(effects: ItemEffects, rows: ItemRows | RatedItems) -> tuple[ItemEffects, Floats]:
    """Return the effects without what is linear in the features of items, and the weights (d,) that say it instead.

    An item counts by how well its effect is known, and one more counts for weights of 0.

    >>> rows = ItemRows(("a", "b", "c"), np.array([[1.0], [2.0], [3.0]]), [0] * 9, [0, 1, 2] * 3, [0.0] * 9)
    >>> effects = ItemEffects(rows.ids, np.array([0.1, 0.2, 0.3]), np.full(3, 1e-9), rows.count, 0.2, 1.0, 1.0)
    >>> left, weights = give_to_features(effects, rows)
    >>> weights.round(3), (left.effect - left.effect.mean()).round(3)
    (array([0.075]), array([-0.025,  0.   ,  0.025]))
    """
    seen = rows.count > 0
    known = np.where(seen, np.clip(1 - effects.variance / max(effects.prior_variance, 1e-300), 0.0, 1.0), 0.0)
    if known.sum() < 2:
        return effects, np.zeros(rows.x.shape[1])
    share = known / known.sum()
    x = rows.x - share @ rows.x
    gram = (x * known[:, None]).T @ x
    ridge = float(np.trace(gram)) / known.sum()
    if ridge <= 0:
        return effects, np.zeros(x.shape[1])
    moment = x.T @ (known * (effects.effect - share @ effects.effect))
    weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), moment)
    effect, a0 = _settle_level(effects.effect - rows.x @ weights, effects.prior_mean, rows)
    t2 = float(np.mean((effect[seen] - a0) ** 2 + effects.variance[seen]))
    left = replace(
        effects,
        effect=np.where(seen, effect, a0),
        variance=np.where(seen, effects.variance, t2),
        prior_mean=a0,
        prior_variance=t2,
    )
    return left, weights


def improve_effects(
    effects: ItemEffects, rows: ItemRows | RatedItems, models: LatentModels, size: Floats | None = None
) -> ItemEffects:
    """Return the effects after one step, given the classes of r - a_i; `size` is n_i', which hardly changes."""
    noise, a0, t2 = float(models.pi @ models.sigma2), effects.prior_mean, effects.prior_variance
    rows = find_items(rows)
    sums = rows.sum_items(SumItems(models, effects.effect, with_size=size is None))
    gradient = sums.rest
    size = sums.size if size is None else size
    shrink = noise / t2 if t2 > 0 else np.inf
    effect = (
        effects.effect + (gradient - shrink * (effects.effect - a0)) / (size + shrink) if t2 > 0 else effects.effect
    )
    variance = noise / (size + shrink)
    seen = rows.count > 0
    effect, a0 = _settle_level(effect, a0, rows)
    t2 = float(np.mean((effect[seen] - a0) ** 2 + variance[seen]))
    moved = effect - effects.effect
    squares = sums.squares - 2 * moved * sums.rest + moved**2 * rows.n_raters
    variance *= _widen(rows.n_raters, squares, variance / max(t2, 1e-300), noise)
    effect, variance = np.where(seen, effect, a0), np.where(seen, variance, t2)
    return ItemEffects(rows.ids, effect, variance, rows.n_raters, a0, t2, noise)


def _settle_level(effect: Floats, level: float, rows: ItemRows | RatedItems) -> tuple[Floats, float]:
    """Return the effects (I,) and their mean: `level`, as before, where features can say the rest, else their own."""
    seen = rows.count > 0
    mean = float(effect[seen].mean())
    return (effect + (level - mean), level) if _carry_level(rows.x[seen]) else (effect, mean)


def _carry_level(x: Floats) -> bool:
    """Whether some weights (d,) give every row of x the same value, as those of categories do.

    >>> _carry_level(np.eye(3)), _carry_level(np.array([[1.0], [2.0]]))
    (True, False)
    """
    weights = np.linalg.lstsq(x.T @ x, x.sum(axis=0), rcond=None)[0]
    return bool(np.abs(x @ weights - 1).max() < _SAME)


def _widen(n_raters: Floats, squares: Floats, unknown: Floats, noise: float) -> Floats:
    """Return the factors, (I,), at least 1, of the variances of items whose rewards have more noise than the others.

    `squares` are those of what is left of the rewards of each item, (I,); `unknown` is Var(a_i) / t2, (I,).  The factor
    is that of the mean squared error of a_i, which weighs rewards as if all had the same noise.
    """
    own = (squares + _LIKE_OTHERS * noise) / ((n_raters + _LIKE_OTHERS) * noise)
    return np.asarray(1 + np.clip(1 - unknown, 0.0, 1.0) * np.maximum(own - 1, 0.0))


def measure_effects(rows: ItemRows | RatedItems, effects: ItemEffects) -> float:
    """Return the variance of the effects of the items that were shown, as a share of the variance of the rewards."""
    rows = find_items(rows)
    share = rows.count / rows.count.sum()
    spread = float(share @ (effects.effect - share @ effects.effect) ** 2)
    return spread / max(rows.variance, 1e-300)


def explain(rows: ItemRows | RatedItems, models: LatentModels) -> float:
    """Return the share of the variance of the rewards that the item effects explain, beyond features and classes."""
    assert models.item_effects is not None
    rows = find_items(rows)
    effect, n_rows = models.item_effects.effect, float(rows.count.sum())
    level = float(rows.count @ effect) / n_rows
    with_effects, without = rows.sum_items(SumItems(models, effect, level=level)).left / n_rows
    return float(max(without - with_effects, 0.0) / rows.variance) if rows.variance > 0 else 0.0


def describe_effects(rows: ItemRows | RatedItems, models: LatentModels) -> str:
    """Return a sentence on what the item effects explain."""
    assert models.item_effects is not None
    known = int((rows.count > 0).sum())
    return (
        f"effects of {known:,} items, with a standard deviation of {np.sqrt(models.item_effects.prior_variance):.3g}, "
        f"explain {100 * explain(rows, models):.1f} % of the variance of the rewards beyond features and classes"
    )


def _begin_effects(rows: RatedItems) -> ItemEffects:
    """Return effects by the means of the items: their spread less what noise alone would give."""
    count = rows.n_raters
    total = rows.sum_items(SumItems(None, np.full(len(rows.ids), rows.mean))).rest
    noise = max(rows.variance, 1e-12)
    often = count >= 2
    spread = float(np.mean((total[often] / count[often]) ** 2 - noise / count[often])) if often.any() else 0.0
    found = {"prior_mean": 0.0, "prior_variance": max(spread, 0.01 * noise), "noise": noise}
    return ItemEffects.from_residuals(rows.ids, count, total, **found)


def _as_models(at: Parameters, rows: RatedItems) -> LatentModels:
    return LatentModels(at.pi, at.mu, at.noise[:1], rows.features, covariance=at.sigma, personal=True)
