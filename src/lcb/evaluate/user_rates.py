"""A model of users' click rates, which says how a user would answer an arm that has no label left.

A user belongs to a class h; the user's rate of arm a is Beta distributed around the rate of the class:

    rate_ua | class h  ~  Beta(concentration * mean_ha, concentration * (1 - mean_ha))

With one class every user has rates of their own; with a high concentration all users of a class are alike.  EM fits the
classes; the concentration is the value on a grid with the highest likelihood.  The number of classes is the one that
predicts the labels of other users best: users are cut in two halves, each half is scored by the model of the other.

`draw_rates` draws every user's rates from their posterior, given the user's own labels and a model of other users: the
users are cut in four parts, and the model of a part is fitted on the three others.
If the model is true, drawn rates are distributed as the true ones, however few labels a user has; the more labels, the
less the model matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln

from lcb.arrays import Floats, Index, add_up

FEWEST_LABELS = 1.0  # per user and arm, to draw rates; with fewer, they would be those of the model
_NUMBERS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)  # of classes, tried in this order until two in a row do not improve
_CONCENTRATIONS = 2.0 ** np.arange(1, 11.5, 0.5)
_FOLDS = 4
_MOST_USERS = 3_000  # to fit one model
_STARTS, _SHORT, _LONG, _FINAL = 6, 15, 150, 5  # random starts; EM steps of each, of the best start, with concentration
_PSEUDO = 2.0  # labels with the rates of the population, added to every class and arm


@dataclass(frozen=True, eq=False)
class DrawnRates:
    """Rates of users (rows) for arms (columns), drawn from the posterior."""

    rate: Floats = field(repr=False)  # (U, A) in (0, 1)
    n_classes: int
    concentration: float  # the smallest of the models
    folds: tuple[tuple[Index, RateModel], ...] = field(default=(), repr=False)  # users, and the model of the others

    def draw_again(self, clicked: Floats, passed: Floats, rng: np.random.Generator) -> Floats:
        """Draw other rates of the same users, (U, A), from the same models."""
        rate = np.empty(clicked.shape)
        for own, model in self.folds:
            rate[own] = model.draw(Counts.build(clicked[own], passed[own]), rng)
        return rate


def draw_rates(clicked: Floats, passed: Floats, rng: np.random.Generator) -> DrawnRates:
    """Draw the rates of users from their numbers of clicks and passes, both (U, A).

    >>> clicks = np.array([[9.0, 0.0], [0.0, 9.0]] * 20)
    >>> drawn = draw_rates(clicks, clicks[:, ::-1], np.random.default_rng(0))
    >>> drawn.rate[::2].mean(axis=0).round(1), drawn.n_classes
    (array([1., 0.]), 2)
    """
    n_users = len(clicked)
    order = rng.permutation(n_users)
    n_classes = _choose_n_classes(
        [Counts.build(clicked[half], passed[half]) for half in (order[::2], order[1::2])], rng
    )
    rate, folds = np.empty(clicked.shape), []
    for i in range(min(_FOLDS, n_users)):
        own, others = order[i::_FOLDS], order[np.arange(n_users) % _FOLDS != i]
        others = others[:_MOST_USERS] if len(others) else own
        model = fit_rates(Counts.build(clicked[others], passed[others]), n_classes, rng)
        rate[own] = model.draw(Counts.build(clicked[own], passed[own]), rng)
        folds.append((own, model))
    return DrawnRates(rate, n_classes, min(model.concentration for _, model in folds), tuple(folds))


def find_residuals(user: Index, arm: Index, label: Floats, count: Floats, total: Floats) -> tuple[list[Floats], float]:
    """Return the labels minus the user's mean, by arm, and how many clicks one label is worth.

    Labels (n,) are on the scale [0, 1]; `count` and `total` (U, A) are their numbers and sums.  A mean of n labels has
    a variance of s2 / n, a share of n clicks one of p (1 - p) / n; so a label is worth p (1 - p) / s2 clicks.
    Residuals of few labels are enlarged to variance s2.
    """
    mean, n = total / np.maximum(count, 1), count[user, arm]
    several = n > 1
    n, arm, residual = n[several], arm[several], (label - mean[user, arm])[several]
    clicks = float((np.maximum(count - 1, 0) * mean * (1 - mean)).sum())
    enlarged = residual * np.sqrt(n / (n - 1))
    pools = [own if len(own := enlarged[arm == a]) else np.zeros(1) for a in range(count.shape[1])]
    return pools, float(np.clip(clicks / max(float((residual**2).sum()), 1e-12), 1, 100))


def _choose_n_classes(halves: list[Counts], rng: np.random.Generator) -> int:
    """Return the number of classes with which each half predicts the labels of the other best."""
    best, top, misses = 1, -np.inf, 0
    for n_classes in _NUMBERS:
        if n_classes > 1 and n_classes > min(len(half.clicked) for half in halves) // 4:
            break
        models = [fit_rates(half.take(_MOST_USERS), n_classes, rng) for half in halves]
        score = add_up(
            float(model.log_evidence(other).sum()) for model, other in zip(models, halves[::-1], strict=True)
        )
        if score > top:
            best, top, misses = n_classes, score, 0
        else:
            misses += 1
        if misses == 2:
            break
    return best


@dataclass(frozen=True, eq=False)
class Counts:
    """Clicks and passes as tables, and the positions of the pairs (user, arm) that have labels."""

    clicked: Floats  # (U, A)
    passed: Floats
    user: Index  # of the pairs with labels
    arm: Index

    @classmethod
    def build(cls, clicked: Floats, passed: Floats) -> Counts:
        clicked, passed = np.asarray(clicked, np.float64), np.asarray(passed, np.float64)
        return cls(clicked, passed, *np.nonzero(clicked + passed))

    def take(self, n_users: int) -> Counts:
        """Return the first users."""
        return self if len(self.clicked) <= n_users else self.build(self.clicked[:n_users], self.passed[:n_users])


@dataclass(frozen=True, eq=False)
class RateModel:
    share: Floats  # (N,) of the classes
    mean: Floats  # (N, A) rates
    concentration: float

    def log_evidence_by_class(self, counts: Counts) -> Floats:
        """Return log share + log probability of each user's labels under each class, (U, N)."""
        user, arm = counts.user, counts.arm
        clicked, passed = counts.clicked[user, arm], counts.passed[user, arm]
        above, below = self.concentration * self.mean, self.concentration * (1 - self.mean)
        total = gammaln(self.concentration) - gammaln(self.concentration + clicked + passed)
        start = gammaln(above) + gammaln(below)
        result = np.empty((len(counts.clicked), len(self.share)))
        for h in range(len(self.share)):
            terms = gammaln(above[h, arm] + clicked) + gammaln(below[h, arm] + passed) - start[h, arm] + total
            result[:, h] = np.bincount(user, terms, len(result))
        return result + np.log(self.share)

    def log_evidence(self, counts: Counts) -> Floats:
        """Return the log probability of each user's labels, (U,)."""
        return _normalise(self.log_evidence_by_class(counts))[1]

    def draw(self, counts: Counts, rng: np.random.Generator) -> Floats:
        """Draw each user's class, then the rates, from the posterior; (U, A)."""
        posterior, _ = _normalise(self.log_evidence_by_class(counts))
        passed_over = rng.random((len(posterior), 1)) > np.cumsum(posterior, axis=1)
        mean = self.mean[np.minimum(passed_over.sum(axis=1), len(self.share) - 1)]
        return rng.beta(self.concentration * mean + counts.clicked, self.concentration * (1 - mean) + counts.passed)


def fit_rates(counts: Counts, n_classes: int, rng: np.random.Generator) -> RateModel:
    """Fit `n_classes` classes by EM: first of users who are alike, then with the best concentration."""
    posterior: Floats = np.ones((len(counts.clicked), 1))
    if n_classes > 1:
        starts = [_fit_alike(counts, _start(counts, n_classes, rng), _SHORT) for _ in range(_STARTS)]
        posterior, _ = _fit_alike(counts, max(starts, key=lambda start: start[1])[0], _LONG)
    tried = _CONCENTRATIONS
    for _ in range(_FINAL if n_classes > 1 else 1):
        share, mean = _update(counts, posterior)
        models = [RateModel(share, mean, float(concentration)) for concentration in tried]
        evidence = [_normalise(model.log_evidence_by_class(counts)) for model in models]
        best = int(np.argmax([float(log.sum()) for _, log in evidence]))
        posterior, model = evidence[best][0], models[best]
        tried = _CONCENTRATIONS[np.abs(np.log2(_CONCENTRATIONS / model.concentration)) < 0.75]
    return model


def _start(counts: Counts, n_classes: int, rng: np.random.Generator) -> Floats:
    """Return a first posterior (U, N) of classes around users drawn at random."""
    chosen = rng.choice(len(counts.clicked), n_classes, replace=False)
    clicked, passed = counts.clicked[chosen], counts.passed[chosen]
    mean = (clicked + 2 * _PSEUDO * _population(counts)) / (clicked + passed + 2 * _PSEUDO)
    return _normalise(counts.clicked @ np.log(mean).T + counts.passed @ np.log1p(-mean).T)[0]


def _fit_alike(counts: Counts, posterior: Floats, n_steps: int) -> tuple[Floats, float]:
    """Run EM for classes of users who are alike; return the posterior (U, N) and the log likelihood."""
    last = -np.inf
    for _ in range(n_steps):
        share, mean = _update(counts, posterior)
        log = np.log(share) + counts.clicked @ np.log(mean).T + counts.passed @ np.log1p(-mean).T
        posterior, evidence = _normalise(log)
        now = float(evidence.sum())
        if now - last < 1e-3:
            break
        last = now
    return posterior, now


def _update(counts: Counts, posterior: Floats) -> tuple[Floats, Floats]:
    """Return the shares (N,) and the rates (N, A) of the classes."""
    n_users, n_classes = posterior.shape
    share = (posterior.sum(axis=0) + 1) / (n_users + n_classes)
    clicked, passed = posterior.T @ counts.clicked, posterior.T @ counts.passed
    return share, (clicked + _PSEUDO * _population(counts)) / (clicked + passed + _PSEUDO)


def _population(counts: Counts) -> Floats:
    """Return the rate of each arm over all users, (A,), never 0 or 1."""
    clicked, passed = counts.clicked.sum(axis=0), counts.passed.sum(axis=0)
    overall = (clicked.sum() + 1) / (clicked.sum() + passed.sum() + 2)
    return (clicked + 2 * overall) / (clicked + passed + 2)


def _normalise(log: Floats) -> tuple[Floats, Floats]:
    """Return softmax (U, N) and log-sum-exp (U,) of every row."""
    top = log.max(axis=1, keepdims=True)
    weight = np.exp(log - top)
    total = weight.sum(axis=1, keepdims=True)
    return weight / total, (top + np.log(total))[:, 0]
