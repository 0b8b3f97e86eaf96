"""The learning process without its process: what it reads of a log, how it judges, what it sends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from conftest import rows_of
from lcb.clicks import EventLog
from lcb.errors import ModelError, TooFewRows
from lcb.evaluate.worlds.paper import paper_classes
from lcb.learners.registry import LEARNERS
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.learn import worker as learning
from lcb.serve.learn.worker import Job, Learned, alike, frame, history, is_held_out, judged, learn, opened, paired
from lcb.storage.models.folder import pack_models, unpack_models
from lcb.storage.store.base import NewRow, Store, open_store

SEED = b"0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(str(tmp_path / "lcb.db"))
    yield opened
    opened.close()


def service(store: Store, rewards: str = "once", declared: tuple[float, float] | None = None) -> None:
    body = events.ServiceBody(0.0, SEED, rewards, declared, None, None)
    add(store, [NewRow("service", "service", None, None, events.encode(body))])


def add(store: Store, rows: list[NewRow]) -> None:
    store.append(rows, store.head())


def reward(user: str, id: str, x: list[float], value: float, before: float | None = None, n: int = 1) -> NewRow:
    body = events.RewardBody(0.0, 1, "lcb", value, 1.0, np.array(x).tobytes(), False, None, before)
    return NewRow(f"r/{id}" if n == 1 else f"r/{id}#{n}", "reward", user, 0, events.encode(body))


def rewards_of(models: LatentModels, n_users: int, n_rows: int, seed: int = 0) -> list[NewRow]:
    user, x, value, _ = rows_of(models, n_users, n_rows, seed)
    rows = zip(user.tolist(), x.tolist(), value.tolist(), strict=True)
    return [reward(f"u{u}", f"d{i}", row, r) for i, (u, row, r) in enumerate(rows)]


def version(store: Store, number: int, models: LatentModels) -> None:
    manifest, tensors = pack_models(models)
    body = events.ModelBody(0.0, number, manifest, tensors, True, "", 1, None, None)
    add(store, [NewRow(f"model/{number}", "model", None, None, events.encode(body))])


# Reading


def test_of_a_reward_that_was_changed_the_last_value_counts_once(store: Store) -> None:
    service(store, "sum")
    add(store, [reward("ann", "a", [1.0], 1.0), reward("bob", "b", [1.0], 1.0), reward("ann", "a", [1.0], 3.0, 1.0, 2)])
    add(store, [reward("ann", "a", [1.0], 6.0, 3.0, 3)])
    stats = history(store, store.head(), "sum", ()).stats
    assert stats.users == ("ann", "bob")
    assert stats.count.tolist() == [1, 1]
    assert stats.moment[:, 0].tolist() == [6.0, 1.0]


def test_the_log_is_read_as_far_as_the_job_says(store: Store) -> None:
    service(store, "last")
    add(store, [reward("ann", "a", [1.0], 1.0), reward("ann", "b", [1.0], 1.0), reward("ann", "a", [1.0], 9.0, 1.0, 2)])
    assert history(store, 3, "last", ()).stats.moment[0, 0] == 2.0
    assert history(store, 4, "last", ()).stats.moment[0, 0] == 10.0


def test_what_was_a_persons_is_not_learned_from_after_the_erasure(store: Store) -> None:
    service(store)
    left = events.ErasedReward("population", True, 1.0, 1.0, np.ones(1).tobytes(), False, None, None)
    add(store, [reward("ann", "a", [1.0], 0.5), NewRow("erased/3", "erased reward", None, None, events.encode(left))])
    assert history(store, store.head(), "once", ()).stats.count.tolist() == [1]


def test_long_logs_are_read_in_blocks_to_the_same_statistics(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 7, 5))
    whole = history(store, store.head(), "once", ()).stats
    monkeypatch.setattr(learning, "_BLOCK", 4)
    np.testing.assert_allclose(history(store, store.head(), "once", ()).stats.packed, whole.packed, rtol=1e-12)


def test_a_log_without_rewards_is_too_little(store: Store) -> None:
    service(store)
    with pytest.raises(TooFewRows, match="no user has given a reward"):
        history(store, store.head(), "once", ())


# Holding out


def test_the_same_users_judge_every_version_and_they_are_the_share_that_was_asked_for() -> None:
    names = [f"user {i}" for i in range(4000)]
    held = [is_held_out(SEED, name, 0.2) for name in names]
    assert held == [is_held_out(SEED, name, 0.2) for name in names]
    assert abs(np.mean(held) - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / len(names))
    assert held != [is_held_out(b"another log's se", name, 0.2) for name in names]
    assert not any(is_held_out(SEED, name, 0.0) for name in names)


def test_models_are_not_learned_from_those_who_judge_them(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 60, 10))
    found = learn(Job(store.url, store.head(), 0, n_classes=2), store)
    n_held = sum(is_held_out(SEED, f"u{i}", 0.2) for i in range(60))
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    assert 0 < n_held < 30
    assert found.n_users == models.provenance["n_users"] == 60 - n_held
    assert models.provenance["n_held_out"] == n_held


def test_the_same_log_gives_the_same_models(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 60, 10))
    job = Job(store.url, store.head(), 0)
    assert learn(job, store).tensors == learn(job, store).tensors


def test_two_users_are_too_few_to_choose_classes_from(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 3, 10))
    with pytest.raises(TooFewRows):
        learn(Job(store.url, store.head(), 0, held_out=0.0), store)


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_can_be_asked_for(store: Store, learner: str) -> None:
    service(store)
    add(store, rewards_of(paper_classes(n_classes=2), 200, 20))
    found = learn(Job(store.url, store.head(), 0, learner=learner, n_classes=2), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    assert models.provenance["learner"] == learner
    assert models.covariance is not None


def test_a_large_covariance_is_kept_only_where_it_is_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_SMALL", 10)
    service(store)
    add(store, rewards_of(paper_classes(), 40, 10))
    for wanted in (False, True):
        found = learn(Job(store.url, store.head(), 0, n_classes=2, covariance=wanted), store)
        models, _ = unpack_models(found.manifest, found.tensors, "here")
        assert (models.covariance is not None) == wanted


# The likelihood


@pytest.mark.parametrize(
    ("declared", "levels", "wanted"),
    [
        (None, (0.0, 1.0), "bernoulli"),
        ((0.0, 1.0), (0.0, 1.0), "bernoulli"),
        ((0.0, 5.0), (0.0, 5.0), "bernoulli"),
        ((0.0, 5.0), (0.0, 1.0), "gaussian"),  # 5 may still come
        ((-1.0, 1.0), (0.0, 1.0), "gaussian"),
        (None, (0.0, 3.0), "gaussian"),  # two prices, and nobody said that there are no others
    ],
)
def test_rewards_are_clicks_where_no_others_are_to_come(
    store: Store, declared: tuple[float, float] | None, levels: tuple[float, float], wanted: str
) -> None:
    service(store, declared=declared)
    chance = np.random.default_rng(0)
    add(store, [reward(f"u{i // 8}", f"d{i}", [1.0], levels[chance.integers(2)]) for i in range(240)])
    found = learn(Job(store.url, store.head(), 0, n_classes=1), store)
    assert unpack_models(found.manifest, found.tensors, "here")[0].likelihood == wanted


# Judging


def log_of(models: LatentModels, n_users: int, seed: int = 0) -> EventLog:
    user, x, value, _ = rows_of(models, n_users, 10, seed)
    return EventLog.from_rows(user, x, value, features=models.features)


def test_models_that_score_worse_are_kept_aside_and_the_reason_has_the_numbers() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 40)
    wrong = replace(true, beta=true.beta[:, ::-1])
    better, reason, score, baseline = judged(wrong, true, 3, judges)
    n = judges.stats.count.sum()
    assert not better
    assert score == pytest.approx(wrong.user_scores(judges).sum() / n)
    assert baseline == pytest.approx(true.user_scores(judges).sum() / n)
    assert reason.startswith(
        f"kept aside: 40 held-out users score {score:.4f} per reward, under version 3 {baseline:.4f}"
    )
    assert f"worse by {baseline - score:.4f} ± " in reason


def test_models_that_score_better_or_the_same_are_served() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 40)
    wrong = replace(true, beta=true.beta[:, ::-1])
    assert judged(true, wrong, 1, judges)[0]
    assert judged(true, true, 1, judges)[0]


def test_the_first_version_is_served_and_so_is_one_that_nobody_can_judge() -> None:
    true, judges = paper_classes(), log_of(paper_classes(), 4)
    better, reason, score, baseline = judged(true, None, 0, judges)
    assert better
    assert score is not None
    assert baseline is None
    assert reason.startswith("the first version: 4 held-out users score")
    assert judged(true, None, 0, judges.take(np.zeros(4, bool)))[:2] == (True, "no user was held out to judge by")


def test_clicks_are_compared_with_clicks() -> None:
    """A Gaussian density of 0/1 rewards may be above 1; beside a probability it would win for nothing."""
    log = EventLog.from_rows(user=[0, 0, 1, 1], x=np.ones((4, 1)), reward=[1, 0, 1, 0])
    clicks = LatentModels([1.0], [[0.5]], [0.25], likelihood="bernoulli", levels=(0.0, 1.0))
    narrow = LatentModels([1.0], [[0.9]], [0.0001])
    assert judged(clicks, narrow, 1, log)[0]
    assert alike(narrow, clicks).user_scores(log) == pytest.approx([np.log(0.9) + np.log(0.1)] * 2)
    assert alike(clicks, narrow).levels is None


def test_the_error_of_a_difference_is_that_of_its_mean_where_all_users_gave_as_much() -> None:
    d = np.random.default_rng(0).normal(size=50)
    mean, error = paired(d * 7, np.full(50, 7.0))
    assert mean == pytest.approx(d.mean())
    assert error == pytest.approx(d.std(ddof=1) / np.sqrt(50))


def test_the_error_of_a_difference_is_the_spread_over_samples_of_users() -> None:
    rng = np.random.default_rng(1)
    count = rng.integers(1, 30, 300).astype(float)
    d = 0.1 * count + rng.normal(size=300) * np.sqrt(count)
    draws = rng.integers(0, 300, (4000, 300))
    again = d[draws].sum(axis=1) / count[draws].sum(axis=1)
    assert paired(d, count)[1] == pytest.approx(again.std(), rel=0.07)


def test_a_version_is_compared_on_the_same_users_with_the_one_that_is_served(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 80, 15))
    version(store, 1, paper_classes())  # the truth: what 80 users teach is worse
    found = learn(Job(store.url, store.head(), 1, n_classes=5), store)
    assert not found.better
    assert found.score is not None
    assert found.baseline is not None
    assert found.score < found.baseline
    version(store, 2, replace(paper_classes(), beta=np.zeros((5, 10))))
    assert learn(Job(store.url, store.head(), 2, n_classes=5), store).better


def test_a_version_that_cannot_be_read_is_no_reason_to_keep_another_aside(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 80, 15))
    manifest, tensors = pack_models(paper_classes())
    body = events.ModelBody(0.0, 1, manifest, tensors[:-1], True, "", 1, None, None)
    add(store, [NewRow("model/1", "model", None, None, events.encode(body))])
    found = learn(Job(store.url, store.head(), 1, n_classes=5), store)
    assert found.better
    assert "version served before, 1, cannot be read" in found.reason


def test_too_few_to_judge_by_is_no_reason_to_replace_what_is_served(store: Store) -> None:
    service(store)
    some = [f"u{i}" for i in range(100) if not is_held_out(SEED, f"u{i}", 0.2)][:20]
    add(store, [reward(name, f"d{i}", [1.0, float(i % 3)], i % 2) for i, name in enumerate(some * 5)])
    version(store, 1, LatentModels([1.0], [[0.5, 0.0]], [0.1]))
    with pytest.raises(TooFewRows, match="0 to judge by"):
        learn(Job(store.url, store.head(), 1, n_classes=1), store)


def test_numbers_that_are_none_are_a_fault_and_not_a_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 40, 10))

    def fit(*given: object, **more: object) -> None:
        raise ModelError("beta has 3 values that are not finite numbers")

    monkeypatch.setattr("lcb.learners.fit", fit)
    with pytest.raises(ModelError):
        learn(Job(store.url, store.head(), 0), store)


# Frames


def test_a_frame_carries_its_kind_its_length_and_the_sha256_of_what_follows() -> None:
    kind, length, sha256 = opened(frame(learning.DONE, b"abc")[: learning.HEADER])
    assert (kind, length, sha256) == (b"done", 3, hashlib.sha256(b"abc").digest())


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame"):
        opened(b"Traceback (most recent call last): and so on")


def test_models_come_through_the_pipe_bit_for_bit() -> None:
    manifest, tensors = pack_models(paper_classes())
    sent = Learned(manifest, tensors, 3, True, "why", -0.5, None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Learned) == sent
