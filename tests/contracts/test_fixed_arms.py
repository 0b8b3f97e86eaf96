"""What every bandit and recommender must obey, for those that need arms without features: one-hot contexts."""

from __future__ import annotations

import numpy as np
import pytest

from contracts import test_bandits as bandits
from contracts import test_recommenders as recommenders
from contracts.test_bandits import (  # noqa: F401
    test_a_decision_survives_a_database,
    test_one_arm_is_always_played,
    test_propensity_is_in_the_distribution_which_sums_to_one,
    test_propensity_is_the_frequency,
    test_renaming_arms_renames_the_distribution,
    test_rewards_in_any_order_give_the_same_state,
    test_serve_plays_as_the_three_verbs_do,
    test_the_state_survives_a_database,
    test_tied_arms_are_played_alike,
    test_update_and_choose_leave_their_input_untouched,
)
from contracts.test_recommenders import (  # noqa: F401
    test_a_decision_says_with_which_probability_every_arm_would_be_taken,
    test_rewards_that_come_late_and_in_another_order_lead_to_the_same_choice,
    test_serving_whole_users_makes_the_same_choices_as_step_by_step,
    test_the_input_is_left_untouched,
    test_users_may_have_any_names,
)
from contracts.test_recommenders import (
    test_one_arm_is_always_played as test_one_arm_is_always_played_for_every_user,  # noqa: F401
)
from lcb.bandits.bandit import count_decision
from lcb.bandits.fixed_arms.multiple_k_ucb import MultipleKUCB
from lcb.bandits.fixed_arms.ucb1 import UCB1
from lcb.bandits.fixed_arms.umucb import UMUCB
from lcb.errors import InputError
from lcb.models import LatentModels
from lcb.recommenders.factorised import Factorised
from lcb.recommenders.individual import Individual
from lcb.recommenders.tucb import TUCB

K = 6  # arms in the world; a context offers six rows, one of them twice now and then
MODELS = LatentModels(
    pi=[0.5, 0.2, 0.3],
    beta=[[0.9, 0.1, 0.0, 0.2, 0.5, 0.4], [0.1, 0.8, 0.1, 0.1, 0.3, 0.2], [0.2, 0.1, 0.1, 0.9, 0.4, 0.6]],
    sigma2=[0.04, 0.09, 0.01],
)
BANDITS = {
    **bandits.from_registry(MODELS, K, fixed_arms=True),
    # with other settings
    "ucb1-narrow": UCB1(K, width=0.2),
    "multiple-k-ucb-wide": MultipleKUCB(MODELS, width=3.0),
    "umucb-uncertain": UMUCB(MODELS, n_steps=20, epsilon=0.1, n_first=1, width=0.5, delta=0.2),
}
RECOMMENDERS = {
    "ucb1": lambda: Individual(UCB1(K)),
    "tucb": lambda: TUCB(K, 2, n_steps=6, rng=np.random.default_rng(0), n_warmup_users=4, n_first=1),
    "tucb-seldom": lambda: TUCB(
        K,
        1,
        n_steps=6,
        rng=np.random.default_rng(0),
        noise=0.3,
        margin=0.1,
        delta=0.1,
        n_warmup_users=2,
        retrain_every=3,
    ),
    "factorised": lambda: Factorised(np.eye(K), rng=np.random.default_rng(0), n_warmup_users=3, retrain_every=4),
    "factorised-few": lambda: Factorised(
        np.eye(K), rng=np.random.default_rng(0), n_factors=2, ridge=0.3, n_epochs=5, rate=0.02, n_warmup_users=2
    ),
}


def one_hot(rng, n, n_arms=K):
    return np.eye(K)[rng.integers(K, size=(n, n_arms))]


def some_users(n_users=11, n_steps=6, n_arms=5, seed=0):
    rng = np.random.default_rng(seed)
    arms = np.array([[rng.permutation(K)[:n_arms] for _ in range(n_steps)] for _ in range(n_users)])
    return np.eye(K)[arms], rng.random((n_users, n_steps, n_arms))


@pytest.fixture(autouse=True)
def _without_features(monkeypatch):
    monkeypatch.setattr(bandits, "contexts", one_hot)
    monkeypatch.setattr(bandits, "reward_of", lambda decision, rng: float(MODELS.beta[1] @ decision.x))
    monkeypatch.setattr(bandits, "D", K)
    monkeypatch.setattr(recommenders, "some_users", some_users)


@pytest.fixture(params=BANDITS, ids=list(BANDITS))
def bandit(request):
    return BANDITS[request.param]


@pytest.fixture(params=RECOMMENDERS, ids=list(RECOMMENDERS))
def make(request):
    return RECOMMENDERS[request.param]


def test_ten_thousand_rewards_leave_finite_numbers(bandit, rng):
    state = bandit.start()
    for context in one_hot(rng, 10_000):
        decision = bandit.choose(state, context, rng)
        state = bandit.update(count_decision(bandit, state, decision), decision, rng.random())
    assert np.isfinite(state).all()


def test_a_reward_that_is_no_number_is_refused(bandit, rng):
    decision = bandit.choose(bandit.start(), np.eye(K), rng)
    for reward in (float("nan"), float("inf"), 1e200):
        with pytest.raises(InputError, match="reward"):
            bandit.update(bandit.start(), decision, reward)


def test_a_context_that_is_no_numbers_is_refused(bandit, rng):
    context = np.eye(K)
    context[2, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        bandit.choose(bandit.start(), context, rng)
