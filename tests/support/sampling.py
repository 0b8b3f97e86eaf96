"""Tests of samplers against the exact posterior, by enumerating partitions, and by Geweke's joint-distribution test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from lcb.learners.gibbs._partition import log_partition
from lcb.models.prior import Prior
from lcb.stats import UserStats, upper

BOUND = 4.5  # standard errors: with 40 batches about one false alarm in 17,000 per number compared
PRIOR = Prior(mean=[0.3, -0.2], precision=[[1.0, 0.3], [0.3, 0.6]], shape=3.0, rate=1.5)
ALPHA = (2.0, 0.7)
X = np.random.default_rng(11).normal(size=(5, 3, 2))  # 5 users, 3 rows, 2 features


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [work(item) for item in items]


def planted(
    seed: int, n_users: int = 60, n_rows: int = 10, n_classes: int = 3, noise: float = 0.1
) -> tuple[UserStats, np.ndarray]:
    """Return users of clearly different classes, and the class of each."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(n_users) % n_classes)
    beta = 2.0 * np.eye(max(n_classes, 3))[:n_classes]
    x = rng.normal(size=(n_users, n_rows, beta.shape[1]))
    reward = np.einsum("utd,ud->ut", x, beta[label]) + noise * rng.normal(size=(n_users, n_rows))
    return stats_of(x, reward), label


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return canonical(a) == canonical(b)


def odd(name: str) -> UserStats:
    """Return data on which a careless learner computes NaN."""
    rng, n = np.random.default_rng(0), 40
    x, reward, user = rng.normal(size=(n * 6, 3)), rng.normal(size=n * 6), np.repeat(np.arange(n), 6)
    if name == "constant features":
        x[:] = 2.5
    elif name == "zero features":
        x[:] = 0.0
    elif name == "collinear features":
        x[:, 2] = x[:, 0] + x[:, 1]
        reward = x @ [1.0, 2.0, 0.0]
    elif name == "one reward each":
        x, reward, user = x[:n], reward[:n], np.arange(n)
    elif name == "one user":
        user[:] = 0
    elif name == "one user, one reward":
        x, reward, user = x[:1], reward[:1], user[:1]
    elif name == "equal rewards":
        reward[:] = 0.7
    elif name == "zero rewards":
        reward[:] = 0.0
    elif name == "duplicated users":
        x, reward = np.tile(x[:6], (n, 1)), np.tile(reward[:6], n)
    elif name == "large weights":
        reward = 1e6 * (x @ [1.0, 2.0, 0.0] + 0.1 * reward)
    elif name == "small weights":
        reward = 1e-6 * (x @ [1.0, 2.0, 0.0] + 0.1 * reward)
    elif name == "features of many sizes":
        x *= [1e-6, 1.0, 1e6]
    elif name == "float32":
        return UserStats.from_rows(user, x, reward, dtype=np.float32)
    return UserStats.from_rows(user, x, reward)


ODD = [
    "constant features", "zero features", "collinear features", "one reward each", "one user", "one user, one reward",
    "equal rewards", "zero rewards", "duplicated users", "large weights", "small weights", "features of many sizes",
    "float32",
]  # fmt: skip


def stats_of(x: np.ndarray, reward: np.ndarray) -> UserStats:
    """Do the same as `UserStats.from_rows`, without its checks."""
    rows, columns = upper(x.shape[2])
    gram = np.einsum("uti,utj->uij", x, x)[:, rows, columns]
    moment = np.einsum("utd,ut->ud", x, reward)
    square, count = np.square(reward).sum(axis=1), np.full(len(x), float(x.shape[1]))
    return UserStats(np.ascontiguousarray(np.column_stack([gram, moment, square, count]).T), x.shape[2])


def partitions(n: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """All partitions of n users, each as labels in order of first appearance."""

    def grow(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == n:
            yield labels
            return
        for h in range(min(max(labels, default=-1) + 2, most or n)):
            yield from grow((*labels, h))

    yield from grow(())


def canonical(labels: np.ndarray) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(int(h), len(seen)) for h in labels)


def exact_posterior(
    stats: UserStats, alpha: float, n_classes: int | None, shared: bool
) -> dict[tuple[int, ...], float]:
    """Probability of every partition, from `Prior.log_evidence` alone."""
    log_p = {}
    for labels in partitions(stats.n_users, n_classes):
        k = max(labels) + 1
        sums = np.stack([stats.packed[:, np.equal(labels, h)].sum(axis=1) for h in range(k)], axis=1)
        sizes = np.bincount(labels).astype(float)
        value = log_partition(sizes, alpha, n_classes)
        if n_classes:  # the ways to label the partition
            value += np.log(np.arange(n_classes - k + 1, n_classes + 1)).sum()
        classes = UserStats(sums, stats.n_features)
        if shared:  # sigma2 integrated on a grid
            grid = np.exp(np.linspace(-5, 5, 100))
            log_prior = -(PRIOR.shape + 1) * np.log(grid) - PRIOR.rate / grid + np.log(grid)
            log_like = np.array([PRIOR.log_evidence(classes, sigma2).sum() for sigma2 in grid])
            value += np.logaddexp.reduce(log_prior + log_like)
        else:
            value += PRIOR.log_evidence(classes).sum()
        log_p[labels] = value
    total = np.logaddexp.reduce(list(log_p.values()))
    return {labels: float(np.exp(value - total)) for labels, value in log_p.items()}


def standard_error(draws: np.ndarray, n_batches: int = 40) -> np.ndarray:
    """Of the mean over axis 0, by batch means; never below that of independent draws."""
    n = len(draws) // n_batches * n_batches
    batches = draws[:n].reshape(n_batches, -1, *draws.shape[1:]).mean(axis=1)
    independent = draws.std(axis=0) / np.sqrt(len(draws))
    return np.maximum(batches.std(axis=0, ddof=1) / np.sqrt(n_batches), independent)


def worst_against_exact(draws: list[tuple[int, ...]], exact: dict[tuple[int, ...], float]) -> float:
    """Largest distance, in standard errors, between frequency and probability of a partition or number of classes."""
    keys = list(exact)
    seen = np.array([[draw == key for key in keys] for draw in draws], dtype=float)
    p = np.array(list(exact.values()))
    counts = np.array([max(key) + 1 for key in keys])
    seen_k = np.stack([seen[:, counts == k].sum(axis=1) for k in range(1, counts.max() + 1)], axis=1)
    p_k = np.array([p[counts == k].sum() for k in range(1, counts.max() + 1)])
    seen, p = np.hstack([seen, seen_k]), np.append(p, p_k)
    error = np.maximum(standard_error(seen), np.sqrt(p * (1 - p) / len(seen)))
    return float(np.max(np.abs(seen.mean(axis=0) - p) / error))


def summary(label: np.ndarray, alpha: float, reward: np.ndarray) -> list[float]:
    """What Geweke's test compares: of the classes, of alpha, of the rewards and of both together."""
    sizes = np.bincount(label)
    k = float((sizes > 0).sum())
    spread = float(np.log1p(np.square(reward).sum()))
    between = float(np.tanh(np.var(reward.mean(axis=1))))
    same = float(label[0] == label[1])
    near = float(np.tanh(abs(reward[0].mean() - reward[1].mean())))
    return [
        k,
        k * np.log(alpha),
        float(np.square(sizes).sum()),
        np.log(alpha),
        alpha,
        spread,
        between,
        same,
        near,
        same * near,
    ]


@cache
def _prior_of_weights() -> tuple[np.ndarray, np.ndarray]:
    """The mean of the prior and the Cholesky root of its covariance."""
    mean, precision = PRIOR.arrays(2)
    return mean, np.linalg.cholesky(np.linalg.inv(precision))


def draw_rewards(label: np.ndarray, sigma2: float, rng: np.random.Generator, x: np.ndarray = X) -> np.ndarray:
    """Rewards given the classes of users, (beta, sigma2) of each class from the prior; `sigma2` 0: one per class."""
    k = int(label.max()) + 1
    variance = np.full(k, sigma2) if sigma2 else PRIOR.rate / rng.standard_gamma(PRIOR.shape, k)
    mean, root = _prior_of_weights()
    beta = mean + np.sqrt(variance)[:, None] * (rng.standard_normal((k, 2)) @ root.T)
    fitted = np.einsum("utd,ud->ut", x, beta[label])
    return fitted + np.sqrt(variance[label])[:, None] * rng.standard_normal(fitted.shape)


def draw_classes(alpha: float, n_classes: int | None, rng: np.random.Generator, n_users: int = len(X)) -> np.ndarray:
    """Classes of users from the Chinese restaurant process, or from a Dirichlet of given length."""
    if n_classes:
        return rng.choice(n_classes, n_users, p=rng.dirichlet(np.full(n_classes, alpha / n_classes)))
    label = np.zeros(n_users, np.intp)
    for u in range(1, n_users):
        weights = np.append(np.bincount(label[:u]), alpha)
        label[u] = rng.choice(len(weights), p=weights / weights.sum())
    return label


@cache
def prior_draws(n: int, n_classes: int | None, shared: bool) -> np.ndarray:
    """`summary` of independent draws of everything."""
    rng, out = np.random.default_rng(100), []
    for _ in range(n):
        alpha = rng.gamma(ALPHA[0]) / ALPHA[1]
        label = draw_classes(alpha, n_classes, rng)
        sigma2 = PRIOR.rate / rng.standard_gamma(PRIOR.shape) if shared else 0.0
        out.append(summary(label, alpha, draw_rewards(label, sigma2, rng)))
    return np.array(out)


def geweke_distance(independent: np.ndarray, successive: np.ndarray) -> float:
    """Largest distance of two means in standard errors."""
    error = np.hypot(independent.std(axis=0) / np.sqrt(len(independent)), standard_error(successive))
    return float(np.max(np.abs(independent.mean(axis=0) - successive.mean(axis=0)) / error))
