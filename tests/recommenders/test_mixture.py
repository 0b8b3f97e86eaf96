"""The recommender `Mixture`: learns from the first user on, in any units, and follows change."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.bandit import serve
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes
from lcb.models import LatentModels
from lcb.recommenders.mixture import Mixture

D = 4
WORLD = SimulatedWorld(equal_classes(np.eye(D)[:2] + 0.1, noise=0.1), n_arms=8)


def build(**settings) -> Mixture:
    return Mixture(D, rng=np.random.default_rng(0), **settings)


def truth_regret(models: LatentModels, users) -> np.ndarray:
    bandit = PosteriorMean(models)
    states = np.tile(bandit.start(), (len(users.label), 1))
    return users.regret(serve(bandit, states, users.contexts, users.rewards, np.random.default_rng(0))[1])


def test_it_comes_near_the_true_classes_from_nothing() -> None:
    users = WORLD.draw(150, 10, np.random.default_rng(1))
    mixture = build()
    regret = users.regret(mixture.serve(range(150), users.contexts, users.rewards, np.random.default_rng(2)))
    assert regret[50:].mean() < 1.15 * truth_regret(WORLD.models, users)[50:].mean()
    assert all(len(sample.occupied) in (2, 3) for sample in mixture.seats.samples)


def test_new_classes_are_found_and_old_ones_fade() -> None:
    other = SimulatedWorld(equal_classes(-np.eye(D)[2:] - 0.1, noise=0.1), n_arms=8)
    rng, serving = np.random.default_rng(3), np.random.default_rng(4)
    before, after = WORLD.draw(80, 10, rng), other.draw(160, 10, rng)
    mixture = build(share_memory=30.0)
    mixture.serve(range(80), before.contexts, before.rewards, serving)
    regret = after.regret(mixture.serve(range(80, 240), after.contexts, after.rewards, serving))
    assert regret[80:].mean() < 1.2 * truth_regret(other.models, after)[80:].mean()
    models = mixture.seats.models()
    old = np.abs(models.beta[:, None] - WORLD.models.beta).max(axis=2).min(axis=1) < 0.2
    assert models.pi[old].sum() < 0.05


def test_units_of_features_and_rewards_do_not_matter() -> None:
    users = WORLD.draw(30, 6, np.random.default_rng(5))
    arms = [
        build().serve(range(30), users.contexts * of_x, users.rewards * of_reward, np.random.default_rng(6))
        for of_x, of_reward in ((1.0, 1.0), (2.0**-8, 2.0**12), (2.0**9, 2.0**-11))
    ]
    np.testing.assert_array_equal(arms[0], arms[1])
    np.testing.assert_array_equal(arms[0], arms[2])


def test_a_user_who_comes_back_is_counted_once_and_has_all_their_rewards() -> None:
    users = WORLD.draw(12, 6, np.random.default_rng(7))
    mixture, rng = build(memory=np.inf), np.random.default_rng(8)
    for u in [*range(12), 3, 5, 3]:
        for t in range(2):
            decision = mixture.choose(u, users.contexts[u, t], rng)
            mixture.update(u, decision, users.rewards[u, t, decision.arm])
    mixture.start("next")
    assert [mixture.state_of(u)[-1] for u in (3, 4, 5)] == [6, 2, 4]
    for sample in mixture.seats.samples:
        assert sample.counts.sum() == 12
        np.testing.assert_allclose(sample.sums[:, -1].sum(), 12 * 2 + 6)


def test_a_late_reward_of_a_seated_user_is_used() -> None:
    users = WORLD.draw(5, 6, np.random.default_rng(9))
    mixture, rng = build(memory=np.inf), np.random.default_rng(10)
    late = mixture.choose(0, users.contexts[0, 0], rng)
    mixture.update(0, late, 0.3)
    for u in range(1, 5):
        mixture.update(u, mixture.choose(u, users.contexts[u, 0], rng), 0.1 * u)
    mixture.update(0, late, 0.2)
    mixture.start("next")
    assert mixture.state_of(0)[-1] == 2
    assert all(abs(sample.sums[:, -1].sum() - 6) < 1e-9 for sample in mixture.seats.samples)


def test_users_stay_until_they_leave_if_many_are_served_at_once() -> None:
    mixture, rng = build(one_at_a_time=False), np.random.default_rng(11)
    for t in range(3):
        for u in range(4):
            mixture.update(u, mixture.choose(u, np.eye(D), rng), float(u == t))
    assert not mixture.seats.samples
    mixture.leave(2)
    assert len(mixture.seats.samples[0].occupied) == 1
    mixture.leave(2)  # again: nothing changes
    assert mixture.seats.samples[0].counts.sum() == 1


def test_rewards_of_zero_alone_teach_nothing_and_break_nothing() -> None:
    mixture, rng = build(), np.random.default_rng(12)
    for u in range(5):
        mixture.update(u, mixture.choose(u, np.eye(D), rng), 0.0)
    assert not mixture.seats.samples
    for u in range(5, 9):
        mixture.update(u, mixture.choose(u, np.eye(D), rng), 1.0)
    mixture.start("next")
    assert mixture.seats.samples[0].counts.sum() == 9


def test_a_better_mixture_serves_a_present_user_at_once() -> None:
    users = WORLD.draw(60, 10, np.random.default_rng(13))
    mixture, rng = build(one_at_a_time=False), np.random.default_rng(14)
    mixture.update("early", mixture.choose("early", np.eye(D), rng), 0.1)
    before = mixture._bandit_for(mixture.state_of("early")).scores(mixture.state_of("early"), np.eye(D))
    mixture.serve(range(60), users.contexts, users.rewards, rng)
    for u in range(60):
        mixture.leave(u)
    after = mixture._bandit_for(mixture.state_of("early")).scores(mixture.state_of("early"), np.eye(D))
    assert np.abs(after - before).max() > 0.05


def test_wrong_settings_and_unknown_users_are_refused() -> None:
    for wrong in ({"bonus": -1.0}, {"memory": 0.5}, {"share_memory": 0.0}, {"n_samples": 0}, {"concentration": 0.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            build(**wrong)
    with pytest.raises(InputError, match="'ann' has not started"):
        build().update("ann", Decision(0, 1.0, np.ones(D)), 1.0)
