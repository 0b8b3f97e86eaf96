"""Personal classes against oracles: integration, planted classes, and the models they become in the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import lcb
from lcb.errors import ConvergenceWarning, InputError
from lcb.event_log import EventLog
from lcb.learners.personal import _steps
from lcb.learners.personal.mixture import fit
from lcb.learners.shared.users import Local
from lcb.models import LatentModels
from lcb.models.marginal import NoisePerArm, SharedNoise, marginal_log_likelihood
from lcb.progress import silent
from lcb.runtime import parallel
from lcb.stats import UserStats


def people(rng, mu, sigma, pi, n_users, n_rewards, noise):
    """A log of users with weights of their own, their classes and their weights."""
    label = rng.choice(len(pi), n_users, p=pi)
    root = np.linalg.cholesky(sigma)
    own = mu[label] + np.einsum("uij,uj->ui", root[label], rng.standard_normal((n_users, mu.shape[1])))
    user, x = np.repeat(np.arange(n_users), n_rewards), rng.normal(size=(n_users * n_rewards, mu.shape[1]))
    reward = np.sum(x * own[user], axis=1) + noise * rng.standard_normal(len(user))
    return EventLog.from_rows(user, x, reward), label, own


def clicks(rng, n_users=60, n_arms=4, n_rewards=8, d=None):
    arms = np.eye(n_arms) if d is None else rng.normal(size=(n_arms, d))
    shown = rng.multinomial(n_rewards, np.full(n_arms, 1 / n_arms), n_users)
    clicked = rng.binomial(shown, rng.beta(1, 2, (n_users, n_arms)))
    return EventLog.from_counts(arms, clicked, shown - clicked)


MU = np.array([[1.5, 0.0, -1.0], [-1.0, 1.0, 0.5], [0.0, -1.5, 1.5]])
SIGMA = np.array([np.diag([0.3, 0.05, 0.1]), [[0.1, 0.08, 0.0], [0.08, 0.2, 0.0], [0.0, 0.0, 0.05]], 0.15 * np.eye(3)])
PI = np.array([0.5, 0.3, 0.2])


# The likelihood


def test_the_marginal_likelihood_is_the_integral_over_the_users_weight():
    rng = np.random.default_rng(0)
    x, reward = rng.normal(size=5), rng.normal(size=5)
    stats = UserStats.from_rows(np.zeros(5), x[:, None], reward)
    for mu, variance, noise in ((0.3, 0.5, 0.2), (-1.0, 2.0, 0.7), (0.0, 0.01, 1.5)):

        def joint(w, mu=mu, variance=variance, noise=noise):
            return np.exp(norm.logpdf(reward, w * x, np.sqrt(noise)).sum()) * norm.pdf(w, mu, np.sqrt(variance))

        exact = np.log(quad(joint, -12, 12, points=[mu, x @ reward / (x @ x)], limit=500)[0])
        found = marginal_log_likelihood(
            SharedNoise(stats), np.array([noise]), np.array([[mu]]), np.array([[[variance]]])
        )
        np.testing.assert_allclose(found, [[exact]], rtol=1e-8)


def test_the_marginal_likelihood_is_a_normal_density_of_all_rewards_at_once():
    rng = np.random.default_rng(1)
    log = clicks(rng, n_users=5, n_arms=6, d=3)
    noise, found = rng.uniform(0.1, 0.5, 6), None
    found = marginal_log_likelihood(NoisePerArm(log.clicks), noise, MU, SIGMA)
    for u in range(5):
        clicked, passed = (part[[u]].toarray()[0].astype(int) for part in (log.clicks.clicked, log.clicks.passed))
        arm = np.concatenate([np.repeat(np.arange(6), clicked), np.repeat(np.arange(6), passed)])
        x, reward = log.clicks.arms[arm], np.repeat([1.0, 0.0], [clicked.sum(), passed.sum()])
        for h in range(3):
            covariance = x @ SIGMA[h] @ x.T + np.diag(noise[arm])
            exact = multivariate_normal(x @ MU[h], covariance).logpdf(reward)
            assert found[u, h] == pytest.approx(exact, rel=1e-9)


def test_personal_models_score_users_with_their_spread():
    log, label, _ = people(np.random.default_rng(2), MU, SIGMA, PI, 300, 6, 0.3)
    models = LatentModels(PI, MU, np.full(3, 0.09), covariance=SIGMA, personal=True)
    points = models.without_spread()
    assert models.user_scores(log).mean() > points.user_scores(log).mean() + 1
    assert np.mean(models.posterior(log).argmax(axis=1) == label) > np.mean(
        points.posterior(log).argmax(axis=1) == label
    )


def test_the_compiled_e_step_agrees_with_the_likelihood_and_with_bayes_rule():
    rng = np.random.default_rng(3)
    log, _, _ = people(rng, MU, SIGMA, PI, 50, 4, 0.3)
    at = _steps.Parameters(PI, MU, SIGMA, np.array([0.09]))
    with parallel.threads(1) as run:
        found = Local(log, run).sums(_steps.Expect(at))
        means = _steps.user_means(SharedNoise(log.stats), at, run)
    models = LatentModels(PI, MU, np.full(3, 0.09), covariance=SIGMA, personal=True)
    assert found.evidence == pytest.approx(models.user_scores(log).sum(), rel=1e-10)
    resp = models.posterior(log)
    np.testing.assert_allclose(found.mass, resp.sum(axis=0), rtol=1e-9)
    gram, moment = log.stats.gram / 0.09, log.stats.moment / 0.09
    spread = np.linalg.inv(np.linalg.inv(SIGMA) + gram[:, None])  # (users, N, d, d)
    right = np.einsum("hij,hj->hi", np.linalg.inv(SIGMA), MU) + moment[:, None]
    own = np.einsum("uhij,uhj->uhi", spread, right)
    np.testing.assert_allclose(found.spread, np.einsum("uh,uhij->hij", resp, spread), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.first, np.einsum("uh,uhi->hi", resp, own - MU), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(means, np.einsum("uh,uhi->ui", resp, own), rtol=1e-8, atol=1e-10)
    rows = log.rows
    residual = sum(
        resp[u, h] * ((r - x @ own[u, h]) ** 2 + x @ spread[u, h] @ x)
        for u, x, r in zip(*rows, strict=True)
        for h in range(3)
    )
    assert found.residuals[0] == pytest.approx(residual, rel=1e-8)


# Learning


@settings(max_examples=25, deadline=None)
@given(seed=integers(0, 2**32 - 1), n_classes=integers(1, 5), tied=booleans(), per_arm=booleans())
def test_the_log_posterior_never_falls(seed, n_classes, tied, per_arm):
    rng = np.random.default_rng(seed)
    log = clicks(rng, d=3)
    with parallel.threads(1) as run:
        users = Local(log, run)
        totals = users.sums(_steps.CountRewards(per_arm))
    prior = _steps.SpreadPrior(
        rng.normal(size=3), np.eye(3) * rng.uniform(0.1, 10), np.eye(3) * rng.uniform(0.01, 1), rng.uniform(1, 50), 0.2
    )
    sigma = np.tile(np.eye(3) * rng.uniform(0.01, 2), (1 if tied else n_classes, 1, 1))
    noise = rng.uniform(0.01, 1, len(totals.count))
    at = _steps.Parameters(np.full(n_classes, 1 / n_classes), rng.normal(size=(n_classes, 3)), sigma, noise)
    _, trace = _steps.climb(users, totals, at, prior, 1e-12, 40, silent, "", per_arm=per_arm)
    assert np.all(np.diff(trace) >= -1e-8 * np.abs(trace[:-1]))


def test_planted_classes_are_found_with_their_spread():
    log, label, _ = people(np.random.default_rng(4), MU, SIGMA, PI, 3000, 10, 0.3)
    found = lcb.fit(log, 3, rng=np.random.default_rng(0), learner="personal", tol=1e-5)
    models = found.models
    order = [int(np.linalg.norm(models.beta - mu, axis=1).argmin()) for mu in MU]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(models.beta[order], MU, atol=0.08)
    np.testing.assert_allclose(models.covariance[order], SIGMA, atol=0.06)
    np.testing.assert_allclose(models.pi[order], PI, atol=0.04)
    np.testing.assert_allclose(models.sigma2, 0.09, rtol=0.05)
    assert np.mean(np.array(order)[label] == models.posterior(log).argmax(axis=1)) > 0.95
    assert models.personal
    assert models.provenance["learner"] == "personal"


def test_one_class_is_the_mixed_model_of_planted_people():
    log, _, own = people(np.random.default_rng(5), MU[1:2], SIGMA[1:2], [1.0], 3000, 5, 0.5)
    models = fit(log, 1, rng=np.random.default_rng(0), tol=1e-6).models
    np.testing.assert_allclose(models.beta[0], own.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(models.covariance[0], np.cov(own.T), atol=0.03)
    np.testing.assert_allclose(models.sigma2, 0.25, rtol=0.05)


def test_noise_is_learned_per_arm_where_clicks_are_counted():
    """Of people who agree the noise of an arm is p (1 - p)."""
    rng, p = np.random.default_rng(6), np.array([0.05, 0.2, 0.5])
    shown = np.full((2000, 3), 4)
    clicked = rng.binomial(shown, p)
    log = EventLog.from_counts(np.eye(3), clicked, shown - clicked)
    per_arm = lcb.fit(log, 1, rng=rng, learner="personal", tol=1e-6).models
    np.testing.assert_array_equal(per_arm.arms, np.eye(3))
    np.testing.assert_allclose(per_arm.arm_sigma2, p * (1 - p), rtol=0.1)
    np.testing.assert_allclose(per_arm.noise_of(np.eye(3)[[2, 0]]), per_arm.arm_sigma2[[2, 0]])
    assert per_arm.noise_of(np.ones((1, 3)))[0] == per_arm.sigma2[0]
    shared = lcb.fit(log, 1, rng=rng, learner="personal", noise="shared").models
    assert shared.arms is None
    np.testing.assert_allclose(shared.sigma2, np.mean(p * (1 - p)), rtol=0.1)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_threads_and_units_change_nothing(n_classes):
    log, _, _ = people(np.random.default_rng(7), MU, SIGMA, PI, 1500, 6, 0.3)
    one, two = (fit(log, n_classes, rng=np.random.default_rng(0), n_threads=n).models for n in (1, 2))
    np.testing.assert_array_equal(one.covariance, two.covariance)
    user, x, reward = log.rows
    unit = np.array([1.0, 100.0, 0.01])
    other = fit(EventLog.from_rows(user, x * unit, 5 * reward), n_classes, rng=np.random.default_rng(0)).models
    order = [int(np.linalg.norm(other.beta * unit / 5 - beta, axis=1).argmin()) for beta in one.beta]
    np.testing.assert_allclose(other.beta[order] * unit / 5, one.beta, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        other.covariance[order] * np.outer(unit, unit) / 25, one.covariance, rtol=1e-4, atol=1e-8
    )


def test_a_start_is_continued_from():
    log, _, _ = people(np.random.default_rng(8), MU, SIGMA, PI, 400, 6, 0.3)
    truth = LatentModels(PI, MU, np.full(3, 0.09), covariance=SIGMA, personal=True)
    for start in (truth, truth.without_spread()):
        models = fit(log, 3, rng=np.random.default_rng(0), start=start, n_starts=0).models
        np.testing.assert_allclose(models.beta, MU, atol=0.25)  # class by class: the labels are the start's


def test_more_classes_than_there_are_keep_finite_numbers():
    log, _, _ = people(np.random.default_rng(9), MU[:1], SIGMA[:1], [1.0], 40, 3, 0.3)
    models = fit(log, 12, rng=np.random.default_rng(0)).models
    assert models.n_classes == 12
    assert np.isfinite(models.covariance).all()


def test_what_cannot_be_learned_is_refused_with_the_reason():
    log, _, _ = people(np.random.default_rng(10), MU, SIGMA, PI, 20, 3, 0.3)
    truth = LatentModels(PI, MU, np.full(3, 0.09))
    for n_classes, own, words in (
        (0, {}, "n_classes=0"),
        (21, {}, "n_classes=21 of 20 users"),
        (2, {"noise": "arm"}, "noise='arm' needs"),
        (2, {"noise": "class"}, "noise='class'"),
        (2, {"shrink": 0.0}, "shrink=0"),
        (2, {"tol": 0.0}, "tol=0"),
        (2, {"n_starts": 0}, "n_starts=0"),
        (2, {"start": truth}, "start has 3 classes"),
    ):
        with pytest.raises(InputError, match=words):
            fit(log, n_classes, rng=np.random.default_rng(0), **own)
    with pytest.warns(ConvergenceWarning, match="raise max_steps"):
        fit(log, 2, rng=np.random.default_rng(0), max_steps=1, tol=1e-9)
