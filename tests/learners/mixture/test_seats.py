"""The mixture against truths that need none of its code: integrals, enumeration, and Geweke's joint test."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm

from lcb.learners.mixture import _seats_numba as kernels
from lcb.learners.mixture.sample import Hyperparameters, Sample
from lcb.learners.mixture.seats import Seats
from lcb.stats import UserStats

HYPER = Hyperparameters(noise=0.3, variance=0.8, scale=2.0, mean=np.array([0.4]))
CONCENTRATION = 0.7


def pack(x: np.ndarray, reward: np.ndarray) -> np.ndarray:
    return UserStats.from_rows(np.zeros(len(reward), int), x, reward).packed[:, 0]


def draw(kernel: Any, rows: np.ndarray, label: np.ndarray, hyper: Hyperparameters, rng: np.random.Generator) -> None:
    """One Gibbs sweep in place."""
    sample, ones = Sample.empty(len(rows), hyper), np.ones(len(rows))
    sample.label = label
    sample.rebuild(rows, ones, ones)
    done = kernel(
        rows,
        ones,
        sample.label,
        rng.permutation(len(rows)),
        rng.random(len(rows)),
        sample.sums,
        sample.size,
        ones,
        sample.counts,
        hyper.prior,
        CONCENTRATION,
    )
    assert done == len(rows)


def test_log_predictive_is_the_integral_over_the_weights() -> None:
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(5, 1)), rng.normal(size=5)
    past_x, past_r = rng.normal(size=(4, 1)), rng.normal(size=4)
    for known in (np.zeros(4), pack(past_x, past_r)):
        precision, mean, work = np.empty((1, 1)), np.empty(1), np.empty((1, 1))
        half = kernels.describe_class(known, *HYPER.prior, precision, mean, work)
        found = kernels.log_predictive(pack(x, r), HYPER.noise, precision, mean, half, work, np.empty(1))

        def weight(beta: float, with_past: bool = bool(known.any())) -> float:
            density = norm.pdf(beta, HYPER.mean[0], np.sqrt(HYPER.variance))
            return density * np.prod(norm.pdf(past_r, past_x[:, 0] * beta, np.sqrt(HYPER.noise))) ** with_past

        def joint(beta: float, weight: Any = weight) -> float:
            return weight(beta) * np.prod(norm.pdf(r, x[:, 0] * beta, np.sqrt(HYPER.noise)))

        wanted = np.log(quad(joint, -12, 12)[0] / quad(weight, -12, 12)[0])
        assert abs(found - wanted) < 1e-6


def test_log_predictive_is_a_ratio_of_normal_densities() -> None:
    rng, d = np.random.default_rng(6), 3
    hyper = Hyperparameters(0.2, 0.7, 1.0, rng.normal(size=d))
    x, r = rng.normal(size=(9, d)), rng.normal(size=9)

    def log_density(n: int) -> float:
        covariance = hyper.noise * np.eye(n) + hyper.variance * x[:n] @ x[:n].T
        return float(multivariate_normal.logpdf(r[:n], x[:n] @ hyper.mean, covariance))

    precision, mean, work = np.empty((d, d)), np.empty(d), np.empty((d, d))
    half = kernels.describe_class(pack(x[:4], r[:4]), *hyper.prior, precision, mean, work)
    found = kernels.log_predictive(pack(x[4:], r[4:]), hyper.noise, precision, mean, half, work, np.empty(d))
    assert abs(found - (log_density(9) - log_density(4))) < 1e-9


def test_a_class_and_a_new_class_are_the_integral_over_the_mean_of_classes() -> None:
    """Numerical integration over the prior mean m and the weight of one class."""
    x, r = np.array([[1.0], [0.5], [-1.0]]), np.array([1.2, 0.1, -0.7])
    sample = Sample.empty(1, HYPER)
    sample.label[0] = 0
    sample.rebuild(pack(x, r)[None], np.ones(1), np.ones(1))
    _, v_mean, mean, means, covariances = sample.posterior()

    beta, m = np.meshgrid(np.linspace(-7, 7, 701), np.linspace(-7, 7, 701))
    joint = norm.pdf(m, 0, np.sqrt(HYPER.scale)) * norm.pdf(beta, m, np.sqrt(HYPER.variance))
    for features, reward in zip(x[:, 0], r, strict=True):
        joint *= norm.pdf(reward, features * beta, np.sqrt(HYPER.noise))
    joint /= joint.sum()  # the trapezoidal rule, exact to rounding for a density that vanishes at the edges
    class_mean, new_mean = (joint * beta).sum(), (joint * m).sum()
    assert abs(means[0, 0] - class_mean) < 1e-8
    assert abs(mean[0] - new_mean) < 1e-8
    assert abs(covariances[0, 0, 0] - (joint * (beta - class_mean) ** 2).sum()) < 1e-6
    assert abs(v_mean[0, 0] - (joint * (m - new_mean) ** 2).sum()) < 1e-6


def test_several_classes_are_the_marginals_of_one_joint_normal_distribution() -> None:
    rng, d = np.random.default_rng(1), 2
    hyper = Hyperparameters(0.2, 0.5, 1.5, np.zeros(d))
    blocks = [(rng.normal(size=(n, d)), rng.normal(size=n)) for n in (3, 1, 6)]
    sample, ones = Sample.empty(3, hyper), np.ones(3)
    sample.label[:] = range(3)
    sample.rebuild(np.array([pack(*block) for block in blocks]), ones, ones)
    _, v_mean, mean, means, covariances = sample.posterior()
    precision, moment, eye = np.zeros((8, 8)), np.zeros(8), np.eye(d)
    precision[:d, :d] = eye / hyper.scale + 3 * eye / hyper.variance
    for h, (x, r) in enumerate(blocks, start=1):
        at = slice(d * h, d * h + d)
        precision[at, at] = x.T @ x / hyper.noise + eye / hyper.variance
        precision[:d, at] = precision[at, :d] = -eye / hyper.variance
        moment[at] = r @ x / hyper.noise
    joint = np.linalg.inv(precision)
    centre = joint @ moment
    np.testing.assert_allclose(mean, centre[:d], rtol=1e-10)
    np.testing.assert_allclose(v_mean, joint[:d, :d], rtol=1e-10)
    np.testing.assert_allclose(means.ravel(), centre[d:], rtol=1e-10)
    for h in range(3):
        at = slice(d * h + d, d * h + 2 * d)
        np.testing.assert_allclose(covariances[h], joint[at, at], rtol=1e-10, atol=1e-12)


def exact_partitions(xs: list[np.ndarray], rewards: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """The posterior probability of every partition, from the density of all rewards of a class at once."""
    log_p = {}
    for label in product(range(len(xs)), repeat=len(xs)):
        if any(h > max(label[:u], default=-1) + 1 for u, h in enumerate(label)):
            continue  # not in order of first appearance
        total = 0.0
        for h in set(label):
            of_h = [u for u in range(len(xs)) if label[u] == h]
            x, r = np.concatenate([xs[u] for u in of_h]), np.concatenate([rewards[u] for u in of_h])
            covariance = HYPER.noise * np.eye(len(r)) + HYPER.variance * x @ x.T
            total += multivariate_normal.logpdf(r, x @ HYPER.mean, covariance)
            total += np.log(CONCENTRATION) + np.log(np.arange(1, len(of_h))).sum()
        log_p[label] = total
    top = max(log_p.values())
    norming = sum(np.exp(value - top) for value in log_p.values())
    return {label: float(np.exp(value - top) / norming) for label, value in log_p.items()}


def test_gibbs_sweeps_visit_every_partition_as_often_as_its_probability() -> None:
    rng = np.random.default_rng(2)
    xs = [rng.normal(size=(n, 1)) for n in (2, 1, 3, 2)]
    rewards = [x[:, 0] * b + 0.5 * rng.normal(size=len(x)) for x, b in zip(xs, (0.9, 0.8, -0.6, 0.1), strict=True)]
    rows = np.array([pack(x, r) for x, r in zip(xs, rewards, strict=True)])
    wanted = exact_partitions(xs, rewards)
    label, visits, n = np.zeros(4, np.int32), dict.fromkeys(wanted, 0), 20_000
    for _ in range(n):
        draw(kernels.draw_seats, rows, label, HYPER, rng)
        first = {h: i for i, h in enumerate(dict.fromkeys(label.tolist()))}
        visits[tuple(first[h] for h in label.tolist())] += 1
    assert len(wanted) == 15
    assert max(wanted.values()) < 0.5
    for partition, p in wanted.items():  # sweeps are correlated: twice the standard error of independent draws
        assert abs(visits[partition] / n - p) < 4.5 * 2 * np.sqrt(p * (1 - p) / n) + 1e-4, partition


def geweke_distance(kernel: Any, n: int, seed: int = 3) -> float:
    """Draw rewards given seats and seats given rewards, in turn: the seats must follow the restaurant process.

    Return the largest distance, in standard errors over batches, of the number of classes and of three users sitting
    together from their exact means under the process.
    """
    rng, n_users, label, found = np.random.default_rng(seed), 4, np.zeros(4, np.int32), []
    x = rng.normal(size=(n_users, 3, 1))
    for _ in range(n):
        beta = rng.normal(HYPER.mean[0], np.sqrt(HYPER.variance), n_users + 8)[label]
        rewards = x[:, :, 0] * beta[:, None] + np.sqrt(HYPER.noise) * rng.normal(size=(n_users, 3))
        rows = np.array([pack_quickly(x[u, :, 0], rewards[u]) for u in range(n_users)])
        draw(kernel, rows, label, HYPER, rng)
        found.append((len(set(label.tolist())), label[0] == label[1], label[1] == label[2], label[0] == label[3]))
    classes = sum(CONCENTRATION / (CONCENTRATION + u) for u in range(n_users))
    together = 1 / (1 + CONCENTRATION)
    batches = np.array(found, float)[: n // 20 * 20].reshape(20, -1, 4).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(20)
    return float(np.abs((batches.mean(axis=0) - (classes, together, together, together)) / error).max())


def pack_quickly(x: np.ndarray, reward: np.ndarray) -> np.ndarray:
    return np.array([x @ x, x @ reward, reward @ reward, len(x)])


def test_seats_and_rewards_have_their_joint_distribution() -> None:
    assert geweke_distance(kernels.draw_seats, 12_000) < 5


@pytest.mark.parametrize(
    "line,broken",
    [
        ("mass[before] -= mass_weights[u]", "pass"),  # a user is counted twice
        ("log_w[h] = np.log(max(mass[h], 1e-300))", "log_w[h] = 0.0"),  # all classes have the same prior weight
        ("half_log_det - half_with_user", "half_with_user - half_log_det"),  # the wrong sign of a determinant
    ],
)
def test_a_broken_line_is_noticed(line: str, broken: str) -> None:
    """The same code, uncompiled, with one line changed, fails the joint test."""
    assert geweke_distance(load_changed(line, broken).draw_seats, 2_000) > 5
    assert geweke_distance(load_changed(line, line).draw_seats, 600) < 5  # unchanged, it passes


def load_changed(line: str, changed: str) -> Any:
    source = Path(str(kernels.__file__)).read_text()
    assert source.count(line) == 1
    namespace: dict[str, Any] = {"__name__": "changed"}
    source = source.replace(
        "from lcb.runtime.compiled import EXACT, njit", "EXACT, njit = {}, lambda **settings: lambda function: function"
    )
    exec(compile(source.replace(line, changed), "changed", "exec"), namespace)

    class Changed:
        draw_seats = staticmethod(namespace["draw_seats"])

    return Changed


def seated(order: list[int], rows: np.ndarray, seed: int = 0) -> Seats:
    seats = Seats(1, rng=np.random.default_rng(seed), n_samples=2, n_sweeps=4)
    for row in rows:
        user = seats.add_user()
        seats.rows[user] = row
    for user in order:
        seats.seat(user)
    return seats


def test_the_order_of_departures_does_not_change_what_the_same_seats_predict() -> None:
    rng = np.random.default_rng(4)
    rows = np.array([pack(rng.normal(size=(3, 1)), rng.normal(size=3)) for _ in range(6)])
    first, second = seated([0, 1, 2, 3, 4, 5], rows), seated([5, 3, 1, 0, 2, 4], rows)
    for seats in (first, second):
        (sample,) = seats.samples
        sample.hyper = HYPER
        sample.label[:6] = [0, 1, 0, 1, 1, 0]
        sample.rebuild(seats.rows, seats.weights(seats.memory), seats.weights(seats.share_memory))
    for name in ("pi", "beta", "covariance"):
        np.testing.assert_allclose(getattr(first.models(), name), getattr(second.models(), name), rtol=1e-12)


def test_a_user_who_comes_back_leaves_nothing_behind() -> None:
    rng = np.random.default_rng(5)
    rows = np.array([pack(rng.normal(size=(3, 1)), rng.normal(size=3)) for _ in range(8)])
    seats = seated(list(range(8)), rows)
    seats.memory, seats.share_memory = 5.0, 3.0
    seats.refit()
    seats.unseat(6)
    for sample in seats.samples:
        others, weights = np.delete(np.arange(8), 6), seats.weights(5.0)
        np.testing.assert_allclose(sample.sums.sum(axis=0), weights[others] @ rows[others], atol=1e-12)
        np.testing.assert_allclose(sample.size.sum(), weights[others].sum())
        np.testing.assert_allclose(sample.recent.sum(), seats.weights(3.0)[others].sum())
        assert sample.counts.sum() == 7
        assert sample.label[6] == -1
    seats.unseat(6)  # again: nothing changes
    assert all(sample.counts.sum() == 7 for sample in seats.samples)


def test_more_classes_than_slots_are_seated() -> None:
    """Forty users, all different: the slots for new classes grow."""
    rows = np.array([pack(np.ones((9, 1)), np.full(9, 100.0 * u) + np.arange(9) / 9) for u in range(40)])
    seats = seated(list(range(40)), rows)
    seats.refit()
    assert len(seats.samples[-1].occupied) > 20


@pytest.mark.parametrize("seed", range(3))
def test_hyperparameters_are_found(seed: int) -> None:
    rng, n = np.random.default_rng(seed), 30
    beta, x = 1.0 + 0.5 * rng.normal(size=(n, 4)), rng.normal(size=(n, 40, 4))
    rewards = np.einsum("nij,nj->ni", x, beta) + 0.2 * rng.normal(size=(n, 40))
    sample = Sample.empty(n, Hyperparameters(1.0, 10.0, 10.0, np.zeros(4)))
    sample.label[:] = range(n)
    sample.rebuild(np.array([pack(x[u], rewards[u]) for u in range(n)]), np.ones(n), np.ones(n))
    sample.learn_hyperparameters(30)
    assert abs(sample.hyper.noise / 0.04 - 1) < 0.15
    assert 0.6 < sample.hyper.variance / 0.25 < 1.8  # with a weak prior toward the mean square of the weights
    assert np.abs(sample.hyper.mean - 1).max() < 0.4


def test_the_concentration_follows_its_posterior_given_the_number_of_classes() -> None:
    """5 classes of 30 users: p(alpha) is Gamma(1, 1) times alpha^5 G(alpha) / G(alpha + 30), integrated numerically."""
    rng, sample = np.random.default_rng(7), Sample.empty(30, HYPER)
    sample.label[:] = np.arange(30) % 5
    sample.rebuild(np.ones((30, 4)), np.ones(30), np.ones(30))
    found = []
    for _ in range(4000):
        sample.draw_concentration(rng)
        found.append(sample.hyper.concentration)

    def density(alpha: float) -> float:
        return float(np.exp(5 * np.log(alpha) - alpha + gammaln(alpha) - gammaln(alpha + 30)))

    total = quad(density, 0, 40)[0]
    mean = quad(lambda alpha: alpha * density(alpha), 0, 40)[0] / total
    variance = quad(lambda alpha: (alpha - mean) ** 2 * density(alpha), 0, 40)[0] / total
    error = np.sqrt(variance / 4000) * 1.5  # draws are a little correlated
    assert abs(np.mean(found) - mean) < 4 * error
    assert abs(np.var(found) / variance - 1) < 0.15


@pytest.mark.parametrize("given", [None, 2.5])
def test_a_given_concentration_is_kept_and_else_it_is_learned(given: float | None) -> None:
    rng = np.random.default_rng(8)
    seats = Seats(1, rng=rng, n_samples=2, n_sweeps=4, concentration=given)
    for u in range(12):
        position = seats.add_user()
        seats.rows[position] = pack(rng.normal(size=(3, 1)), rng.normal(size=3) + u % 3)
        seats.seat(position)
    seats.refit()
    drawn = {sample.hyper.concentration for sample in seats.samples}
    assert drawn == {2.5} if given else len(drawn) == 2
    new = seats.models().pi[len(seats.samples[0].occupied)]
    at = seats.samples[0].hyper.concentration
    assert abs(new - at / (12 + at) / 2) < 1e-12  # of two samples
