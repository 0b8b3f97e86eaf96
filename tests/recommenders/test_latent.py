from __future__ import annotations

import numpy as np
import pytest

from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.posterior_mean import PosteriorMean
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.learners.em import gaussian as em
from lcb.policies import Softmax
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import FromRows, Latent
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import serve_step_by_step

D = 10
WORLD = SimulatedWorld(paper_classes(), n_arms=6)


def learn(stats, rng, last):
    return em.fit(stats, 2, rng=rng, start=last, n_threads=1, tol=1e-3).models


def latent(make_bandit=GeneralizedThompson, seed=0, **settings):
    settings = {"n_warmup_users": 6, "retrain_every": 5, **settings}
    return Latent(D, make_bandit, settings.pop("learn", learn), rng=np.random.default_rng(seed), **settings)


SETTINGS = {
    "defaults": {},
    "individual": {"warmup": "individual"},
    "softmax": {"make_bandit": lambda models: GeneralizedThompson(models, policy=Softmax(0.1), uniform=0.1)},
    "mean": {"make_bandit": PosteriorMean},
    "uniform": {"n_uniform_steps": 2},
    "uniform only": {"n_uniform_steps": 3, "train_on": "uniform", "warmup": "individual"},
    "once": {"retrain_every": None},
    "given": {"models": paper_classes(n_classes=2)},
    "truth": {"models": paper_classes(), "retrain_every": None, "learn": None},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("block", [23, 4])
def test_serving_blocks_of_users_makes_the_same_choices_as_step_by_step(name, block):
    users = WORLD.draw(23, 7, np.random.default_rng(1))
    contexts = users.contexts * np.random.default_rng(5).uniform(0.5, 1, (23, 7, 6, 1))  # no ties for LinUCB
    fast, slow = latent(**SETTINGS[name]), latent(**SETTINGS[name])
    fast_rng = np.random.default_rng(2)
    parts = [
        fast.serve(range(i, min(i + block, 23)), contexts[i : i + block], users.rewards[i : i + block], fast_rng)
        for i in range(0, 23, block)
    ]
    arms = serve_step_by_step(slow, range(23), contexts, users.rewards, np.random.default_rng(2))
    np.testing.assert_array_equal(np.concatenate(parts), arms)
    np.testing.assert_allclose(fast.stats.packed, slow.stats.packed, atol=1e-10)
    assert [fast.version_of(u) for u in range(23)] == [slow.version_of(u) for u in range(23)]


def test_the_first_users_meet_linucb_and_the_models_are_relearned_after_every_n():
    recommender = latent(n_warmup_users=6, retrain_every=5)
    users = WORLD.draw(23, 4, np.random.default_rng(0))
    recommender.serve(range(23), users.contexts, users.rewards, np.random.default_rng(0))
    assert [recommender.version_of(u) for u in range(23)] == [None] * 6 + [0] * 5 + [1] * 5 + [2] * 5 + [3] * 2
    assert len(recommender.versions) == 4


def test_phase_one_is_population_linucb():
    users = WORLD.draw(6, 5, np.random.default_rng(0))
    ours = latent(warmup_bandit=LinUCB(D, width=0.3)).serve(
        range(6), users.contexts, users.rewards, np.random.default_rng(0)
    )
    linucb = Pooled(LinUCB(D, width=0.3)).serve(range(6), users.contexts, users.rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(ours, linucb)


def test_phase_one_may_be_one_linucb_each():
    users = WORLD.draw(6, 5, np.random.default_rng(0))
    ours = latent(warmup="individual").serve(range(6), users.contexts, users.rewards, np.random.default_rng(0))
    linucb = Individual(LinUCB(D)).serve(range(6), users.contexts, users.rewards, np.random.default_rng(0))
    np.testing.assert_array_equal(ours, linucb)


def test_given_models_skip_phase_one_and_without_a_learner_stay():
    recommender = latent(models=paper_classes(), retrain_every=None, learn=None)
    users = WORLD.draw(40, 3, np.random.default_rng(0))
    recommender.serve(range(40), users.contexts, users.rewards, np.random.default_rng(0))
    assert {recommender.version_of(u) for u in range(40)} == {0}
    assert len(recommender.versions) == 1


def test_the_uniform_first_steps_are_uniform_and_alone_in_the_data():
    recommender = latent(n_uniform_steps=3, train_on="uniform", retrain_every=None)
    users = WORLD.draw(2000, 5, np.random.default_rng(0))
    arms = recommender.serve(range(2000), users.contexts, users.rewards, np.random.default_rng(0))
    frequency = np.bincount(arms[:, :3].ravel(), minlength=6) / 6000
    assert np.abs(frequency - 1 / 6).max() < 4.5 * np.sqrt(5 / 36 / 6000)
    assert recommender.stats.count.max() == 3
    assert recommender.stats.n_events == 6000


def test_interleaved_users_keep_the_version_they_first_met():
    recommender, rng = latent(n_warmup_users=4, retrain_every=3), np.random.default_rng(0)
    users = WORLD.draw(12, 4, rng)

    def step(u, t):
        decision = recommender.choose(u, users.contexts[u, t], rng)
        recommender.update(u, decision, users.rewards[u, t, decision.arm])

    for u in range(4):
        step(u, 0)
    step(4, 0)
    assert recommender.version_of(4) == 0
    for u in range(5, 12):  # the others come, models are relearned, user 4 comes back in between
        step(u, 0)
        step(4, min(u - 4, 3))
    assert len(recommender.versions) == 3
    assert recommender.version_of(4) == 0
    assert recommender.version_of(0) is None
    assert recommender.version_of(11) == 2
    assert recommender.state_of(4).shape == (2,)


@pytest.mark.parametrize("retrain_every", [5, None])
def test_while_the_learner_cannot_learn_phase_one_goes_on_and_it_is_asked_again_when_next_due(retrain_every):
    asked = []

    def learn_late(stats, rng, last):
        asked.append(stats.n_users)
        return learn(stats, rng, last) if len(asked) > 2 else None

    recommender = latent(n_warmup_users=6, retrain_every=retrain_every, learn=learn_late)
    users = WORLD.draw(23, 4, np.random.default_rng(0))
    recommender.serve(range(23), users.contexts, users.rewards, np.random.default_rng(0))
    assert asked == ([6, 11, 16, 21] if retrain_every else [6, 12, 18])
    n_late = asked[2]
    assert [recommender.version_of(u) for u in range(n_late + 1)] == [None] * n_late + [0]
    assert len(recommender.versions) == len(asked) - 2


def test_when_the_learner_cannot_learn_again_the_last_models_stay():
    trained = []

    def learn_once(stats, rng, last):
        trained.append(last)
        return learn(stats, rng, last) if last is None else None

    recommender = latent(n_warmup_users=6, retrain_every=5, learn=learn_once)
    users = WORLD.draw(23, 4, np.random.default_rng(0))
    recommender.serve(range(23), users.contexts, users.rewards, np.random.default_rng(0))
    assert [recommender.version_of(u) for u in range(23)] == [None] * 6 + [0] * 17
    assert len(trained) == 4
    assert trained[1:] == [recommender.versions[0]] * 3


@pytest.mark.parametrize("by_step", [False, True])
def test_a_learner_that_needs_rows_gets_those_that_were_taken(by_step):
    logs = []

    def learn_from_rows(log, rng, last):
        logs.append(log)
        return learn(log.stats, rng, last)

    recommender = latent(n_warmup_users=6, retrain_every=5, learn=FromRows(learn_from_rows))
    users = WORLD.draw(12, 4, np.random.default_rng(0))
    serve = serve_step_by_step if by_step else Latent.serve
    arms = serve(recommender, range(12), users.contexts.copy(), users.rewards, np.random.default_rng(0))
    owner, x, reward = logs[-1].rows
    np.testing.assert_array_equal(owner, np.repeat(range(11), 4))
    np.testing.assert_array_equal(x, np.take_along_axis(users.contexts, arms[..., None, None], 2)[:11].reshape(44, D))
    np.testing.assert_array_equal(reward, np.take_along_axis(users.rewards, arms[..., None], 2)[:11].ravel())
    np.testing.assert_allclose(logs[-1].stats.square_sum, np.square(reward).reshape(11, 4).sum(axis=1))


def test_kept_rows_do_not_change_with_the_callers_arrays():
    recommender = latent(learn=FromRows(lambda log, rng, last: None))
    context = np.full((3, D), 0.5)
    decision = recommender.choose("ann", context, np.random.default_rng(0))
    recommender.update("ann", decision, 1.0)
    context[:] = 9.0
    (_, x, _) = recommender._data.build().rows
    assert x.max() == 0.5


def test_before_the_first_reward_there_are_no_statistics():
    for learner in (learn, FromRows(lambda log, rng, last: None)):
        assert latent(learn=learner).stats.n_users == 0


def test_late_rewards_reach_the_user_they_belong_to():
    recommender, rng = latent(models=paper_classes(), retrain_every=None, learn=None), np.random.default_rng(0)
    users = WORLD.draw(2, 3, rng)
    decisions = [(u, recommender.choose(u, users.contexts[u, t], rng)) for t in range(3) for u in range(2)]
    before = [recommender.state_of(u).copy() for u in range(2)]
    for u, decision in reversed(decisions):
        if u == 1:
            recommender.update(u, decision, 0.5)
    np.testing.assert_array_equal(recommender.state_of(0), before[0])
    assert not np.array_equal(recommender.state_of(1), before[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup": "none"}, "warmup='none'"),
        ({"train_on": "some"}, "train_on='some'"),
        ({"train_on": "uniform"}, "at least 1 uniform step"),
        ({"n_uniform_steps": -1}, "n_uniform_steps=-1"),
        ({"retrain_every": 0}, "retrain_every=0"),
        ({"n_warmup_users": 0}, "n_warmup_users=0"),
        ({"learn": None}, "no learner"),
        ({"models": paper_classes(n_features=12)}, "12 features"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        latent(**settings)


def test_users_who_come_before_any_reward_stay_with_linucb():
    recommender, rng = latent(n_warmup_users=3), np.random.default_rng(0)
    users = WORLD.draw(8, 1, rng)
    decisions = [recommender.choose(u, users.contexts[u, 0], rng) for u in range(5)]
    assert [recommender.version_of(u) for u in range(5)] == [None] * 5
    for u, decision in enumerate(decisions):
        recommender.update(u, decision, 0.5)
    recommender.choose(5, users.contexts[5, 0], rng)
    assert recommender.version_of(5) == 0


def test_a_late_reward_of_a_uniform_step_is_still_learned_from():
    recommender, rng = latent(n_uniform_steps=1, train_on="uniform"), np.random.default_rng(0)
    context = WORLD.draw(1, 1, rng).contexts[0, 0]
    first, second = recommender.choose("ann", context, rng), recommender.choose("ann", context, rng)
    recommender.update("ann", second, 0.5)
    assert recommender.stats.n_users == 0
    recommender.update("ann", first, 0.5)
    assert recommender.stats.n_events == 1


def test_an_unknown_user_is_refused_by_name():
    with pytest.raises(InputError, match="'ann' has not started"):
        latent().version_of("ann")


def test_a_pinned_user_is_served_and_updated_by_the_version_first_met():
    recommender, rng = latent(n_warmup_users=4, retrain_every=3, make_bandit=PosteriorMean), np.random.default_rng(0)
    users = WORLD.draw(12, 2, rng)
    for u in range(12):
        decision = recommender.choose(u, users.contexts[u, 0], rng)
        recommender.update(u, decision, users.rewards[u, 0, decision.arm])
    first, last = (PosteriorMean(recommender.versions[i]) for i in (0, -1))
    own, probes = recommender.state_of(4), WORLD.draw(1, 300, rng).contexts[0]
    wanted = [first.choose(own, context, rng).arm for context in probes]
    assert wanted != [last.choose(own, context, rng).arm for context in probes]  # the versions do differ
    assert [recommender.choose(4, context, rng).arm for context in probes] == wanted
    decision = recommender.choose(4, probes[0], rng)
    recommender.update(4, decision, 0.3)
    np.testing.assert_allclose(recommender.state_of(4), first.update(own, decision, 0.3))
