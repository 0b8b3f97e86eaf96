from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from lcb.errors import ConvergenceWarning, InputError, ModelError, TooFewRows
from lcb.learners.em import gaussian as em
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral._lifted import unpack
from lcb.learners.spectral._low_rank import fit_low_rank
from lcb.learners.spectral._matching import lift, match_moments
from lcb.learners.spectral.moments import Moments, features_only
from lcb.stats import UserStats

FORMS = ("pooled", "grouped")


def simulation(seed, n_users, n_steps=20, n_classes=5, d=10, sigma=0.1):
    """Workload S: unit features, weights .8 on four of them and .1 elsewhere, Gaussian noise."""
    rng = np.random.default_rng(seed)
    beta = np.full((n_classes, d), 0.1)
    for h in range(n_classes):
        beta[h, [(2 * h + j) % d for j in range(4)]] = 0.8
    label = rng.integers(0, n_classes, n_users)
    x = rng.uniform(-1, 1, (n_users * n_steps, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    user = np.repeat(np.arange(n_users), n_steps)
    reward = (x * beta[label[user]]).sum(axis=1) + sigma * rng.standard_normal(len(x))
    return user, x, reward, beta


def small(seed=0, n_users=600, n_steps=10, beta=((1.0, 0.2, 0.2), (0.2, 1.0, 0.2)), sigma=0.1, features=None):
    """Classes in turn, so that shares are exact, on normal features or those given."""
    rng = np.random.default_rng(seed)
    beta = np.array(beta)
    user = np.repeat(np.arange(n_users), n_steps)
    x = rng.standard_normal((len(user), beta.shape[1])) if features is None else features(rng, len(user))
    return user, x, (x * beta[user % len(beta)]).sum(axis=1) + sigma * rng.standard_normal(len(user)), beta


def fitted(user, x, reward, n_classes, form="grouped", **settings):
    return spectral.fit(
        Moments.from_rows(user, x, reward, form=form), n_classes, rng=np.random.default_rng(0), **settings
    )


def error(models, beta):
    """Largest distance of a class to its estimate."""
    distance = np.linalg.norm(beta[:, None] - models.beta[None], axis=2)
    return distance[linear_sum_assignment(distance)].max()


def population(beta, pi, form, sigma2, unit, seed=0, n=4000):
    """Moments in which every product of rewards is its expectation: no chance but in the features."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, beta.shape[1]))
    if unit:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    user = np.repeat(np.arange(n // 4), 4)
    noises = (
        (np.sqrt(sigma2), -np.sqrt(sigma2)) if form == "pooled" else (0.0,)
    )  # of different rows: independent, mean 0
    weight, parts = [], []
    for share, row in zip(pi, beta, strict=True):
        for noise in noises:
            weight.append(share / len(noises))
            parts.append(Moments.from_rows(user, x, x @ row + noise, form=form))
    sums = {name: sum(w * getattr(p, name) for w, p in zip(weight, parts, strict=True)) for name in ("second", "third")}
    packed = sum(w * p.stats.packed for w, p in zip(weight, parts, strict=True))
    if form == "grouped":
        packed[-2] += sigma2 * packed[-1]
    return replace(parts[0], stats=replace(parts[0].stats, packed=packed), values=(0.0, 0.5, 1.0), **sums)


@pytest.mark.parametrize("form, unit", [("pooled", True), ("pooled", False), ("grouped", True), ("grouped", False)])
@pytest.mark.parametrize("matching", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_classes_come_back_exactly_from_expected_moments(form, unit, matching, centred):
    rng = np.random.default_rng(5)
    beta, pi = rng.standard_normal((3, 5)), np.array([0.5, 0.3, 0.2])
    moments = population(beta, pi, form, 0.3, unit)
    models = spectral.fit(moments, 3, rng=rng, penalty=0, matching=matching, centred=centred).models
    np.testing.assert_allclose(models.beta, beta, atol=1e-5)
    np.testing.assert_allclose(models.pi, pi, atol=1e-5)


def test_as_many_classes_as_features_come_back_when_the_noise_can_be_told():
    rng = np.random.default_rng(6)
    beta, pi = rng.standard_normal((4, 4)), np.array([0.4, 0.3, 0.2, 0.1])
    for moments, sigma2 in (
        (population(beta, pi, "pooled", 0.2, unit=False), None),
        (population(beta, pi, "pooled", 0.2, unit=True), 0.2),
        (population(beta, pi, "grouped", 0.2, unit=True), None),
    ):
        models = spectral.fit(moments, 4, rng=rng, sigma2=sigma2, penalty=0).models
        np.testing.assert_allclose(models.beta, beta, atol=1e-4)
        np.testing.assert_allclose(models.pi, pi, atol=1e-4)


@pytest.mark.parametrize("form, n_users, seed", [("grouped", 1000, 0), ("grouped", 1000, 1), ("pooled", 7500, 0)])
def test_the_classes_of_the_simulation_are_found(form, n_users, seed):
    user, x, reward, beta = simulation(seed, n_users)
    moments, rng = Moments.from_rows(user, x, reward, form=form), np.random.default_rng(0)
    published = spectral.fit(moments, 5, rng=rng, matching=False, centred=False)
    matched = spectral.fit(moments, 5, rng=rng)
    polished = spectral.fit(moments, 5, rng=rng, polish=True)
    assert error(published.models, beta) < 0.2
    assert error(matched.models, beta) < 0.12
    assert error(polished.models, beta) < 0.03
    np.testing.assert_allclose(matched.models.sigma2, 0.01, rtol=0.7)
    assert polished.converged
    assert polished.trace[-1] > matched.trace[-1] > published.trace[-1]


def test_polish_ends_where_em_ends():
    user, x, reward, _ = simulation(1, 400)
    polished = fitted(user, x, reward, 5, polish=True, penalty=0)
    direct = em.fit(UserStats.from_rows(user, x, reward), 5, rng=np.random.default_rng(0))
    assert polished.trace[-1] == pytest.approx(direct.trace[-1], rel=1e-4)


def test_grouped_moments_hold_for_clicks():
    rng = np.random.default_rng(0)
    beta = np.full((3, 4), 0.05)
    beta[range(3), range(3)] = 0.8
    user = np.repeat(np.arange(20_000), 5)
    x = rng.standard_normal((len(user), 4)) ** 2
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    clicks = rng.random(len(user)) < (x * beta[user % 3]).sum(axis=1)
    assert error(fitted(user, x, clicks.astype(float), 3).models, beta) < 0.1


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_rows_users_and_features_changes_nothing(form):
    user, x, reward, _ = small()
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(len(user)), np.array([2, 0, 1])
    one = fitted(user, x, reward, 2, form).models
    other = fitted((-user)[rows], x[rows][:, columns], reward[rows], 2, form).models
    np.testing.assert_allclose(other.beta, one.beta[:, columns], atol=1e-6)
    np.testing.assert_allclose(other.pi, one.pi, atol=1e-6)
    np.testing.assert_allclose(other.sigma2, one.sigma2, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e6, 1e-6, [1e6, 1.0, 1e-6]])
def test_units_of_features_change_nothing_but_the_weights(form, scale):
    user, x, reward, _ = small()
    one, other = fitted(user, x, reward, 2, form).models, fitted(user, x * scale, reward, 2, form).models
    np.testing.assert_allclose(other.beta * scale, one.beta, atol=1e-6)
    np.testing.assert_allclose(other.sigma2, one.sigma2, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_units_of_rewards_scale_the_weights(form, scale):
    user, x, reward, _ = small()
    one, other = fitted(user, x, reward, 2, form).models, fitted(user, x, reward * scale, 2, form).models
    np.testing.assert_allclose(other.beta / scale, one.beta, atol=1e-6)
    np.testing.assert_allclose(other.sigma2 / scale**2, one.sigma2, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_collinear_features_predict_the_same(form):
    user, x, reward, _ = small()
    double = np.column_stack([x, x[:, 0] - 2 * x[:, 1], np.zeros(len(x))])
    one, other = fitted(user, x, reward, 2, form).models, fitted(user, double, reward, 2, form).models
    np.testing.assert_allclose(double @ other.beta.T, x @ one.beta.T, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_users_twice_are_the_same_classes(form):
    user, x, reward, _ = small()
    one = fitted(user, x, reward, 2, form, penalty=0).models
    twice = (np.concatenate(pair) for pair in ((user, user + 1000), (x, x), (reward, reward)))
    np.testing.assert_allclose(fitted(*twice, 2, form, penalty=0).models.beta, one.beta, atol=1e-6)


def test_a_constant_and_one_hot_features_are_learned_from_grouped_moments():
    constant = small(features=lambda rng, n: np.column_stack([np.ones(n), rng.standard_normal((n, 2))]))
    one_hot = small(features=lambda rng, n: np.eye(3)[rng.integers(0, 3, n)], n_users=2000)
    for user, x, reward, beta in (constant, one_hot):
        assert error(fitted(user, x, reward, 2).models, beta) < 0.2


def test_one_class_and_one_feature_are_enough():
    user, x, reward, beta = small(beta=((2.0,),))
    for form in FORMS:
        assert error(fitted(user, x, reward, 1, form).models, beta) < 0.05


@pytest.mark.parametrize("form", FORMS)
def test_one_class_is_one_regression_for_all(form):
    user, x, reward, _ = small()
    regression = np.linalg.lstsq(x, reward, rcond=None)[0]
    for centred in (True, False):
        np.testing.assert_allclose(fitted(user, x, reward, 1, form, centred=centred).models.beta[0], regression)


@pytest.mark.filterwarnings("ignore::lcb.errors.ConvergenceWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_gives_finite_classes_or_a_refusal(form, seed):
    user, x, _, _ = small(n_users=50)
    reward = np.random.default_rng(seed).standard_normal(len(user))
    try:
        models = fitted(user, x, reward, 3, form).models
    except ModelError:  # what was learned is no model
        raise
    except InputError:  # said so before
        return
    assert np.isfinite(models.beta).all()


def test_classes_the_third_moments_do_not_show_are_warned_of():
    rng = np.random.default_rng(0)
    moments = population(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0.5, 0.5]), "grouped", 0.1, False)
    blank = replace(moments, third=moments.third * ~(np.arange(moments.third.shape[1]) == moments.third.shape[1] - 1))
    with pytest.warns(ConvergenceWarning, match="too noisy for 2 classes"):
        assert not spectral.fit(blank, 2, rng=rng, matching=False, centred=False).converged


def test_far_too_few_rows_are_warned_of():
    user, x, reward, _ = simulation(0, 50)
    with pytest.warns(ConvergenceWarning, match=r"moments of 1000 rows are too noisy .* smallest class has 0"):
        assert not fitted(user, x, reward, 5, "pooled", centred=False).converged


def unit(rng, n):
    x = rng.standard_normal((n, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def flat(rng, n):
    return rng.standard_normal((n, 2)) @ np.eye(2, 3)


REFUSED = {
    "n_classes=4, but 3 features": (small(), 4, "both", {}),
    "3 features that span 2 dim": (small(features=flat), 3, "both", {}),
    "3 features of constant length.* give sigma2": (small(features=unit), 3, "pooled", {}),
    "all rewards are 0 or 1.*use grouped": ((*small()[:2], np.tile([0, 1], 3000)), 2, "pooled", {}),
    "several times worse": ((*small()[:2], np.tile([0, 1], 3000)), 2, "grouped", {"polish": True}),
    r"no user has 3 rewards \(the most is 2\)": (small(n_steps=2), 2, "grouped", {}),
    "but only 1 user": ((np.zeros(6000), *small()[1:3]), 2, "both", {}),
    "n_classes=0": (small(), 0, "both", {}),
    "penalty=-1": (small(), 2, "both", {"penalty": -1}),
    "sigma2=nan": (small(), 2, "pooled", {"sigma2": np.nan}),
    "grouped moments have no noise term": (small(), 2, "grouped", {"sigma2": 0.1}),
    "one-hot": (small(features=lambda g, n: np.eye(3)[g.integers(0, 3, n)]), 2, "pooled", {}),
    "too few users have": (small(n_users=2, n_steps=3), 2, "grouped", {}),
    "collinear up to": (small(features=lambda g, n: 1e5 + g.standard_normal((n, 3))), 2, "both", {}),
    "all rewards are 0": ((*small()[:2], np.zeros(6000)), 1, "grouped", {}),
    "explains all rewards to one part": (
        (small()[0], np.column_stack([np.ones(6000), small()[1]]), np.ones(6000)), 2, "grouped", {},
    ),
    "have rank 1": (small(), 2, "both", {"penalty": 1e9}),
    "have rank 0": (small(), 2, "both", {"penalty": 1e9, "centred": False}),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_learned_is_refused_with_the_reason(words):
    (user, x, reward, *_), n_classes, forms, settings = REFUSED[words]
    for form in FORMS if forms == "both" else (forms,):
        with pytest.raises(InputError, match=words):
            fitted(user, x, np.asarray(reward, float), n_classes, form, **settings)


@pytest.mark.parametrize("form", FORMS)
def test_refusals_that_more_rows_may_mend_are_told_from_those_they_never_will(form):
    user, x, reward, _ = small(n_users=3, n_steps=3)  # 9 rows for 10 third moments
    with pytest.raises(TooFewRows, match="span"):
        fitted(user, x, reward, 2, form)
    with pytest.raises(TooFewRows, match="rank"):
        fitted(*small()[:3], 2, form, penalty=1e9)
    hot = small(features=lambda g, n: np.eye(3)[g.integers(0, 3, n)])
    with pytest.raises(InputError) as never:
        fitted(*hot[:3], 4 if form == "grouped" else 2, form)
    assert not isinstance(never.value, TooFewRows)


def test_many_users_of_three_rows_may_still_be_too_few_triples():
    user, x, reward, _ = small(n_users=8, n_steps=3)  # 24 rows, but 8 triples for 10 third moments
    with pytest.raises(TooFewRows, match=r"three features span 8 of 10 .* too few users have"):
        fitted(user, x, reward, 2, "grouped")


def test_one_class_is_one_regression_whatever_the_length_of_the_features():
    user, x, _, _ = small(features=unit)
    reward = x @ [1.0, -2.0, 0.5] + 0.1 * np.random.default_rng(1).standard_normal(len(x))
    for form in FORMS:
        models = fitted(user, x, reward, 1, form).models
        np.testing.assert_allclose(models.beta, [[1.0, -2.0, 0.5]], atol=0.02)
        assert models.sigma2[0] == pytest.approx(0.01, rel=0.1)


def test_all_rewards_equal_are_one_class_of_a_constant():
    user, x, _, _ = small()
    models = fitted(user, np.column_stack([np.ones(len(x)), x]), np.full(len(x), 3.0), 1).models
    np.testing.assert_allclose(models.beta, [[3, 0, 0, 0]], atol=1e-6)


def test_a_million_users_with_one_reward_are_learned_from_pooled_moments():
    user, x, reward, beta = small(n_users=1_000_000, n_steps=1)
    assert error(fitted(user, x, reward, 2, "pooled").models, beta) < 0.02


@pytest.mark.parametrize("degree", [2, 3])
def test_the_penalised_regression_is_at_its_optimum(degree):
    """The gradient of the loss is `penalty` times a subgradient of the nuclear norm: spectral norm 1, and tight."""
    user, x, reward, _ = small(seed=2)
    moments = Moments.from_rows(user, x, reward)
    sums = {2: moments.second, 3: moments.third}[degree] / len(x)
    gram, moment = sums[:, features_only(3, degree)], sums[:, -1]
    plain = fit_low_rank(gram, moment, 0.0, 3, degree)
    np.testing.assert_allclose(gram @ plain, moment, atol=1e-9)
    values = np.linalg.svd(unpack(plain, 3, degree).reshape(3, -1), compute_uv=False)
    penalty = 0.5 * values[1] * np.linalg.eigvalsh(gram).mean()

    def objective(packed):
        nuclear = np.linalg.svd(unpack(packed, 3, degree).reshape(3, -1), compute_uv=False).sum()
        return packed @ gram @ packed / 2 - moment @ packed + penalty * nuclear

    found = fit_low_rank(gram, moment, penalty, 3, degree)
    rng = np.random.default_rng(0)
    nearby = found + rng.standard_normal((300, len(found))) * 10.0 ** rng.uniform(-6, 0, (300, 1))
    assert all(objective(other) >= objective(found) - 1e-12 for other in nearby)
    assert objective(found) < objective(plain)
    assert np.linalg.svd(unpack(found, 3, degree).reshape(3, -1), compute_uv=False)[-1] < 1e-6 * values[0]


def test_matching_stays_at_classes_whose_moments_are_exact():
    rng = np.random.default_rng(0)
    beta, pi = rng.standard_normal((2, 3)), np.array([0.7, 0.3])
    grams = [np.eye(3), np.diag(rng.uniform(1, 2, 6)), np.diag(rng.uniform(1, 2, 10))]
    moments = [gram @ (pi @ lift(beta, k)) for k, gram in enumerate(grams, start=1)]
    shares, weights = match_moments(grams, moments, np.array([0.5, 0.5]), beta + 0.1)
    np.testing.assert_allclose(weights, beta, atol=1e-6)
    np.testing.assert_allclose(shares, pi, atol=1e-6)


def test_em_goes_on_from_one_start_alone():
    user, x, reward, _ = small()
    stats = UserStats.from_rows(user, x, reward)
    start = em.fit(stats, 2, rng=np.random.default_rng(0)).models
    assert em.fit(stats, 2, rng=np.random.default_rng(1), start=start, n_starts=0).n_steps <= 3
    with pytest.raises(InputError, match="without `start`"):
        em.fit(stats, 2, rng=np.random.default_rng(1), n_starts=0)
