"""Whether a log supports a policy, in worlds where the truth is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lcb.bandits.uniform import Uniform
from lcb.evaluate.offline.logged_events import LoggedEvents
from lcb.evaluate.offline.off_policy import weigh_events
from lcb.evaluate.offline.replay import evaluate_replay
from lcb.evaluate.offline.support import Support, combine_support, find_missing, measure_support
from lcb.recommenders.pooled import Pooled

LIKES = np.array([0.1, 0.15, 0.05, 0.1, 0.6, 0.65])  # the best two arms are those that the bad log never shows
GOOD = np.array([0.9, 0.02, 0.02, 0.02, 0.02, 0.02])
BAD = np.array([0.9, 0.05, 0.03, 0.02, 0.0, 0.0])


def make_log(q, seed=0, n_users=400, n_events=20):
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(n_users), n_events)
    arm = rng.choice(6, len(user), p=q)
    reward = (rng.random(len(user)) < LIKES[arm]).astype(float)
    return LoggedEvents(tuple("abcdef"), np.eye(6), user, arm, reward, q[arm], n_users)


def weigh(log, seed=0):
    return weigh_events(Pooled(Uniform()), log, np.eye(6), theta=np.zeros(6), rng=np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_on_arms_that_the_log_never_shows_gets_no_interval(seed):
    found = weigh(make_log(BAD, seed))
    assert found.estimate("ips")[0] == pytest.approx((LIKES[:4] / 6).sum(), abs=0.03)  # far from the truth, 0.275
    support = found.support
    assert not support.is_sufficient
    assert support.missing_share == pytest.approx(2 / 6, abs=0.1)
    assert "no interval" in support.describe("random")


def test_a_supported_policy_keeps_its_interval_in_nearly_all_logs_and_it_covers_the_truth():
    """Binomial: with 3 standard errors on the weights, more than 4 of 60 refused has a chance below 1 in 10,000."""
    found = [weigh(make_log(GOOD, seed, n_users=100)) for seed in range(60)]
    sure = [one for one in found if one.support.is_sufficient]
    assert len(sure) >= 56
    covered = [abs(value - LIKES.mean()) < 1.96 * error for value, error in (one.estimate("ips") for one in sure)]
    assert sum(covered) >= 0.85 * len(sure)


def test_with_whole_distributions_the_missing_share_is_exact():
    log = make_log(BAD)
    uniform = np.full((len(log.arm), 6), 1 / 6)
    missing = find_missing(uniform, np.broadcast_to(BAD, uniform.shape))
    np.testing.assert_allclose(missing, 2 / 6)
    support = measure_support(1 / 6 / log.propensity, log.user, missing)
    assert support.missing_share == pytest.approx(2 / 6)
    assert "never shows 33.3 %" in support.shortfall


def test_propensities_that_are_too_small_are_noticed():
    log = make_log(GOOD)
    support = measure_support(1 / 6 / (log.propensity / 2), log.user)
    assert "propensities of the log are too small" in support.shortfall


def test_few_effective_events_give_no_interval():
    weight = np.zeros(1000)
    weight[:4] = 250.0  # mean 1, with a large error
    assert "4.0 effective events" in measure_support(weight, np.arange(1000)).shortfall


@pytest.mark.parametrize(("q", "missing"), [(GOOD, 0.0), (BAD, 2 / 6)])
def test_replay_misses_the_arms_that_no_event_shows(q, missing):
    log = make_log(q, n_users=40, n_events=1000)
    found = evaluate_replay(
        Pooled(Uniform()), log, np.arange(40), np.eye(6), n_steps=3, rng=np.random.default_rng(0)
    ).support
    assert found.missing == pytest.approx(missing)
    assert found.is_sufficient == (missing == 0)


def test_seeds_combine_to_means_with_the_largest_error_and_the_smallest_size():
    one, other = Support(10, None, 0.9, 0.2, 8.0), Support(30, None, 1.1, 0.1, 20.0)
    both = combine_support([one, other])
    assert both == Support(40, None, 1.0, 0.2, 8.0)
    assert json.loads(json.dumps(both.to_json()))["missing_share"] == 0.0
    assert combine_support([]) is None
