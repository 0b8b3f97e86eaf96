from __future__ import annotations

import numpy as np
import pytest

from conftest import stats_of
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import equal_classes, paper_classes
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.learners.fitting import count_classes
from lcb.learners.shared.n_classes import choose_n_classes
from lcb.stats import UserStats


@pytest.mark.parametrize("n_classes", [1, 2, 3, 5])
def test_as_many_classes_are_chosen_as_there_are(n_classes):
    beta = paper_classes().beta[:n_classes]
    stats, _ = stats_of(equal_classes(beta), 600, 20, seed=n_classes)
    found = fit(stats, rng=np.random.default_rng(0))
    assert found.models.n_classes == n_classes
    assert n_classes in found.held_out
    assert found.models.provenance["n_classes_chosen_by"] == "held-out users"


def test_more_classes_than_a_power_of_two_are_found():
    rng = np.random.default_rng(0)
    beta = rng.standard_normal((11, 6))
    stats, _ = stats_of(equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True)), 2000, 20, seed=0)
    assert fit(stats, rng=np.random.default_rng(0)).models.n_classes == pytest.approx(11, abs=1)


def test_too_few_users_to_hold_out_are_refused():
    stats, _ = stats_of(paper_classes(), 3, 5, seed=0)
    with pytest.raises(InputError, match="only 3 users"):
        fit(stats, rng=np.random.default_rng(0))


def test_every_number_up_to_the_features_is_open_to_spectral_experts():
    from lcb.event_log import EventLog

    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(3000), 20), rng.standard_normal((60_000, 5))
    reward = np.einsum("nd,nd->n", x, np.eye(5)[user % 5]) + 0.1 * rng.standard_normal(60_000)
    log = EventLog.from_rows(user, x, reward)
    assert fit(log, rng=np.random.default_rng(0), learner="spectral").models.n_classes == 5


@pytest.mark.parametrize("seed", range(4))
def test_clicks_of_three_kinds_of_people_are_three_classes(seed):
    from lcb.event_log import EventLog

    rng = np.random.default_rng(seed)
    user, arm = np.repeat(np.arange(600), 12), rng.integers(3, size=7200)
    liked = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])[user % 3]
    log = EventLog.from_rows(user, np.eye(3)[arm], (rng.random(7200) < liked[np.arange(7200), arm]).astype(float))
    assert fit(log, rng=np.random.default_rng(seed)).models.n_classes == 3


@pytest.mark.parametrize("kind", ["equal rewards", "one click each"])
def test_where_nothing_tells_people_apart_there_is_one_class(kind):
    from lcb.event_log import EventLog

    rng = np.random.default_rng(0)
    user = np.arange(2000) if kind == "one click each" else np.repeat(np.arange(100), 20)
    reward = (rng.random(2000) < 0.3).astype(float) if kind == "one click each" else np.ones(2000)
    log = EventLog.from_rows(user, np.ones((2000, 1)), reward)
    assert fit(log, rng=np.random.default_rng(0)).models.n_classes == 1


def test_fewer_classes_are_tried_downwards_until_they_do_not_do():
    """Five do as well as eight, and doubling and narrowing try 4, 6, 7 and 8 only."""
    from lcb.event_log import EventLog
    from lcb.learners.shared.n_classes import choose_n_classes

    value = {1: -9.0, 2: -7.0, 3: -6.0, 4: -5.0, 5: -1.0, 6: -1.0, 7: -1.0, 8: -0.9}
    noise = {n: np.random.default_rng(n).standard_normal(10_000) for n in range(65)}

    class Known:
        def __init__(self, n):
            self.n = n

        def user_scores(self, held_out):
            spread = noise[self.n][: held_out.n_users]
            return value.get(self.n, -1.5) + spread - spread.mean()

    log = EventLog(stats_of(paper_classes(), 100, 2, seed=0)[0])
    found = choose_n_classes(log, lambda part, n: Known(n), rng=np.random.default_rng(0))
    assert found.n_classes == 5
    assert 5 in found.scores


def test_the_error_that_is_reported_is_the_one_that_decides():
    """Scores of users differ far more than the two numbers of classes do; only the paired error tells them apart."""
    rng = np.random.default_rng(0)
    level, rise = 50 * rng.standard_normal(400), {1: 0.0, 2: 2.0}

    class Scored:
        def __init__(self, n):
            self.n = n

        def user_scores(self, held_out):
            return (level + rise.get(self.n, 2.0) + 0.1 * self.n * noise)[: held_out.n_users]

    noise = rng.standard_normal(400)
    stats = UserStats.from_rows(np.arange(400), np.ones((400, 1)), rng.standard_normal(400))
    found = choose_n_classes(EventLog(stats), lambda part, n: Scored(n), rng=rng, most=4)
    chosen, scores = found.n_classes, found.scores
    best = max(scores, key=lambda n: scores[n][0])
    assert chosen == 2
    assert scores[best][1] == 0
    assert all(error < 0.1 for _, error in scores.values())
    assert scores[best][0] - scores[1][0] > scores[1][1]
    assert scores[best][0] - scores[chosen][0] <= scores[chosen][1]


def test_counting_alone_chooses_what_learning_chooses():
    stats, _ = stats_of(equal_classes(paper_classes().beta[:3]), 300, 20, seed=1)
    found = fit(EventLog(stats), rng=0)
    counted = count_classes(EventLog(stats), rng=np.random.default_rng(0))
    assert counted.n_classes == found.models.n_classes == 3
    assert counted.why == found.why


NOISE = {
    "clicks": lambda rng, mean: (rng.random(len(mean)) < mean).astype(float),
    "ratings": lambda rng, mean: np.clip(np.round(1 + 4 * mean + rng.standard_normal(len(mean))), 1, 5),
    "heavy tails": lambda rng, mean: mean + 0.3 * rng.standard_t(3, len(mean)),
}


def draw_log(n_classes, noise, seed, n_users=1000, n_events=20):
    rng = np.random.default_rng((seed, 7))
    user, arm = np.repeat(np.arange(n_users), n_events), rng.integers(8, size=n_users * n_events)
    rates = rng.permuted(np.tile(np.linspace(0.05, 0.95, 8), (n_classes, 1)), axis=1)
    return EventLog.from_rows(user, np.eye(8)[arm], NOISE[noise](rng, rates[user % n_classes, arm]))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("n_classes", [1, 3])
def test_noise_that_is_not_gaussian_is_no_class_of_people(noise, n_classes):
    """A higher likelihood alone finds 5 to 9 classes in these logs of ratings and heavy tails."""
    found = fit(draw_log(n_classes, noise, 0), rng=0)
    assert found.models.n_classes == n_classes, found.why


def test_people_who_are_alike_are_one_class_in_small_logs():
    """Of such logs one in eight had several classes by one standard error on one split."""
    found = [fit(draw_log(1, "clicks", seed, 200, 10), rng=seed).models.n_classes for seed in range(6)]
    assert found == [1] * 6


@pytest.mark.parametrize("seed", range(2))
def test_two_kinds_of_people_in_a_small_log_are_kept(seed):
    assert fit(draw_log(2, "clicks", seed, 120, 10), rng=seed).models.n_classes == 2


def test_more_than_one_class_must_be_better_by_two_errors_over_all_users():
    """The gain of two classes is 1.5 errors on the held-out users; on the others it is there, or it is not."""
    rng = np.random.default_rng(0)
    stats = UserStats.from_rows(np.arange(400), np.ones((400, 1)), np.arange(400.0))
    noise = rng.standard_normal(120)
    first = (noise - noise.mean()) / noise.std(ddof=1) + 1.5 / np.sqrt(120)

    class Scored:
        def __init__(self, n, everywhere):
            self.n, self.everywhere = n, everywhere

        def user_scores(self, held_out):
            if self.n == 1 or held_out.n_users < 120:
                return np.full(held_out.n_users, 0.3 * self.everywhere * (self.n > 1)) + 1e-3 * held_out.stats.count
            return first if self.n == 2 else first - 1

    for everywhere, n_classes in ((True, 2), (False, 1)):
        found = choose_n_classes(
            EventLog(stats), lambda part, n, own=everywhere: Scored(n, own), rng=np.random.default_rng(0), most=4
        )
        assert found.n_classes == n_classes
        assert ("standard errors when every user is held out once" in found.why) == (n_classes == 1)


def test_classes_have_their_own_variance_only_where_that_predicts_better():
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(600), 10), np.ones((6000, 1))
    odd = user % 2 == 1
    reward = np.where(odd, 1.0, 0.0) + rng.standard_normal(6000) * np.where(odd, 2.0, 0.3)
    sigma2 = np.sort(fit(EventLog.from_rows(user, x, reward), rng=0).models.sigma2)
    np.testing.assert_allclose(sigma2, [0.09, 4.0], rtol=0.15)
    same = np.where(odd, 1.0, 0.0) + rng.standard_normal(6000)
    assert len(set(fit(EventLog.from_rows(user, x, same), rng=0).models.sigma2.tolist())) == 1
