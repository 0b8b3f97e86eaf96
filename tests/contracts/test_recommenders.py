"""What every recommender must obey."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.mmts import MMTS
from lcb.bandits.over_classes.mucb import MUCB
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.bandits.over_policies.iltcb import ILTCB
from lcb.bandits.uniform import Uniform
from lcb.evaluate.worlds.paper import paper_classes
from lcb.learners.em import gaussian as em
from lcb.models import weight_covariance
from lcb.policies import ClassPolicies, Softmax
from lcb.recommenders.clustering.club import Club
from lcb.recommenders.clustering.sclub import Sclub
from lcb.recommenders.cofine import CofineUCB
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import FromRows, Latent
from lcb.recommenders.mixture import Mixture
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import serve_step_by_step
from lcb.stats import UserStats

D = 4


def latent(make_bandit=GeneralizedThompson, **settings):
    def learn(stats, rng, last):
        models = em.fit(stats, 2, rng=rng, start=last, n_threads=1, tol=1e-3).models
        return models.with_covariance(weight_covariance(models, stats)) if make_bandit is MMTS else models

    return Latent(D, make_bandit, learn, rng=0, **settings)


def past_users():
    rng = np.random.default_rng(5)
    return UserStats.from_rows(np.arange(60) % 10, rng.uniform(-0.5, 0.5, (60, D)), rng.random(60))


def late_latent(**settings):
    """Its learner cannot learn from fewer than 6 users."""

    def learn(stats, rng, last):
        return None if stats.n_users < 6 else em.fit(stats, 2, rng=rng, start=last, n_threads=1, tol=1e-3).models

    return Latent(D, GeneralizedThompson, learn, rng=np.random.default_rng(0), **settings)


def latent_from_rows(**settings):
    """Its learner is handed rows."""

    def learn(log, rng, last):
        owner, x, reward = log.rows
        stats = UserStats.from_rows(owner, x, reward)
        return em.fit(stats, 2, rng=rng, start=last, n_threads=1, tol=1e-3).models

    return Latent(D, GeneralizedThompson, FromRows(learn), rng=np.random.default_rng(0), **settings)


RECOMMENDERS = {
    "population": lambda: Pooled(LinUCB(D, width=0.3, ridge=2.0)),
    "individual": lambda: Individual(LinUCB(D)),
    "random": lambda: Pooled(Uniform()),
    "latent": lambda: latent(n_warmup_users=4, retrain_every=3),
    "latent-uniform": lambda: latent(n_warmup_users=3, retrain_every=4, n_uniform_steps=2, train_on="uniform"),
    "latent-given": lambda: Latent(
        D, GeneralizedThompson, rng=np.random.default_rng(0), models=paper_classes(n_features=D), retrain_every=None
    ),
    "population-exp4p": lambda: Pooled(EXP4P(ClassPolicies(paper_classes(n_features=D)), horizon=66)),
    "individual-exp4p": lambda: Individual(EXP4P(ClassPolicies(paper_classes(n_features=D)), p_min=0.02)),
    "latent-exp3": lambda: latent(
        lambda models: EXP3(ClassPolicies(models, Softmax(0.2)), gamma=0.3), n_warmup_users=4, n_uniform_steps=2
    ),
    "latent-late": lambda: late_latent(n_warmup_users=3, retrain_every=2),
    "latent-rows": lambda: latent_from_rows(n_warmup_users=4, retrain_every=3),
    "lints-population": lambda: Pooled(LinTS(D, scale=0.3, ridge=2.0), state=LinTS(D, ridge=2.0).train(past_users())),
    "lints-individual": lambda: Individual(LinTS(D)),
    "cofine": lambda: CofineUCB(D, 2, n_warmup_users=4, retrain_every=3),
    "cofine-individual": lambda: CofineUCB(
        D,
        3,
        width=0.5,
        ridge=0.5,
        coarse_ridge=2.0,
        profile_ridge=0.3,
        n_warmup_users=3,
        warmup="individual",
        warmup_bandit=LinUCB(D, 0.1),
        retrain_every=None,
    ),
    "cofine-history": lambda: CofineUCB(D, 2, history=past_users(), retrain_every=5),
    "latent-epoch-greedy": lambda: latent(
        make_bandit=lambda models: EpochGreedy(ClassPolicies(models), c=4.0), n_warmup_users=3, n_uniform_steps=1
    ),
    "latent-iltcb": lambda: latent(
        make_bandit=lambda models: ILTCB(ClassPolicies(models), mu=0.01), n_warmup_users=3, retrain_every=4
    ),
    "latent-mmts": lambda: latent(MMTS, n_warmup_users=4, retrain_every=3),
    "latent-mucb": lambda: latent(
        lambda models: MUCB(models, n_steps=6, width=0.3), n_warmup_users=3, retrain_every=4, n_uniform_steps=1
    ),
    "club": lambda: Club(D, 11),
    "club-sparse": lambda: Club(D, 12, graph="sparse", degree=4.0, threshold=0.2, width=0.7, ridge=0.5, rng=0),
    "club-one-hop": lambda: Club(D, 11, one_hop=True, threshold=0.3, log_bonus=False),
    "sclub": lambda: Sclub(D, 11),
    "mixture": lambda: Mixture(D, rng=0, bonus=0.3, n_samples=2, n_sweeps=6, memory=50.0, share_memory=20.0),
    "sclub-split": lambda: Sclub(D, 13, threshold=0.3, frequency=0.4, width=0.7, ridge=0.5),
}


@pytest.fixture(params=RECOMMENDERS, ids=list(RECOMMENDERS))
def make(request):
    return RECOMMENDERS[request.param]


def some_users(n_users=11, n_steps=6, n_arms=5, seed=0):
    """Arms of different lengths: on unit arms a first choice is a tie that rounding decides."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (n_users, n_steps, n_arms, D)), rng.random((n_users, n_steps, n_arms))


def test_serving_whole_users_makes_the_same_choices_as_step_by_step(make):
    contexts, rewards = some_users()
    fast, rng = make(), np.random.default_rng(1)
    arms = [fast.serve(range(i, min(i + 4, 11)), contexts[i : i + 4], rewards[i : i + 4], rng) for i in (0, 4, 8)]
    slow = serve_step_by_step(make(), range(11), contexts, rewards, np.random.default_rng(1))
    np.testing.assert_array_equal(np.concatenate(arms), slow)


def test_a_decision_says_with_which_probability_every_arm_would_be_taken(make):
    recommender, (contexts, rewards), rng = make(), some_users(), np.random.default_rng(2)
    for t in range(6):  # users interleaved
        for u in range(11):
            decision = recommender.choose(u, contexts[u, t], rng)
            assert decision.distribution.shape == (5,)
            assert abs(decision.distribution.sum() - 1) < 1e-9
            assert (decision.distribution >= 0).all()
            assert 0 < decision.propensity <= 1 + 1e-12
            assert decision.propensity == decision.distribution[decision.arm]
            np.testing.assert_array_equal(decision.x, contexts[u, t, decision.arm])
            recommender.update(u, decision, rewards[u, t, decision.arm])


def test_the_input_is_left_untouched(make):
    contexts, rewards = some_users()
    contexts_before, rewards_before = contexts.copy(), rewards.copy()
    make().serve(range(11), contexts, rewards, np.random.default_rng(1))
    serve_step_by_step(make(), range(11), contexts, rewards, np.random.default_rng(1))
    np.testing.assert_array_equal(contexts, contexts_before)
    np.testing.assert_array_equal(rewards, rewards_before)


def test_rewards_that_come_late_and_in_another_order_lead_to_the_same_choice(make):
    """Three users, two open decisions each; whoever's rewards come first, a known user's next choice is the same."""
    contexts, rewards = some_users(n_users=8)
    choices = []
    for order in (range(6), [5, 2, 0, 4, 1, 3]):
        recommender, rng = make(), np.random.default_rng(3)
        serve_step_by_step(recommender, range(5), contexts[:5], rewards[:5], rng)
        open_decisions = [(u, recommender.choose(u, contexts[u, t], rng), t) for t in (0, 1) for u in (5, 6, 7)]
        for i in order:
            u, decision, t = open_decisions[i]
            recommender.update(u, decision, rewards[u, t, decision.arm])
        choices.append(
            [recommender.choose(u, contexts[u, 2], np.random.default_rng(4)).distribution for u in (5, 6, 7)]
        )
    np.testing.assert_allclose(choices[0], choices[1], atol=1e-9)


def test_users_may_have_any_names(make):
    contexts, rewards = some_users()
    names = ["ann", 7, ("b", 2), *"cdefghij"][:11]
    by_name = make().serve(names, contexts, rewards, np.random.default_rng(1))
    np.testing.assert_array_equal(by_name, make().serve(range(11), contexts, rewards, np.random.default_rng(1)))


def test_one_arm_is_always_played(make):
    contexts, rewards = some_users(n_arms=1)
    assert (make().serve(range(11), contexts, rewards, np.random.default_rng(1)) == 0).all()


def test_a_context_may_be_lists(make):
    contexts, _ = some_users()
    decisions = [
        make().choose("ann", given, np.random.default_rng(2)) for given in (contexts[0, 0], contexts[0, 0].tolist())
    ]
    assert decisions[0].arm == decisions[1].arm
    np.testing.assert_array_equal(decisions[0].x, decisions[1].x)
