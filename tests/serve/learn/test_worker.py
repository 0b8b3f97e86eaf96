"""What the learning process learns from a log, without its process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lcb.bandits import LearnedClasses
from lcb.decision import Decision
from lcb.errors import ModelError, TooFewRows
from lcb.evaluate.worlds.paper import paper_classes
from lcb.learners.registry import LEARNERS
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.learn import training_data, worker
from lcb.serve.learn.job import Job, JobResult
from lcb.serve.learn.training_data import is_held_out
from lcb.serve.learn.worker import learn
from lcb.storage.models.folder import pack_models, unpack_models
from lcb.storage.store.base import NewRow, Store
from support.reward_log import SEED, add, reward, rewards_of, service, version


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
    assert models.personal == (learner in ("personal", "mixture"))


def test_the_choice_is_learned_and_made_again_when_users_have_doubled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    service(store)
    add(store, rewards_of(paper_classes(n_classes=2), 100, 20))
    found = learn(Job(store.url, store.head(), 0, learner="auto"), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    n_users = models.provenance["n_users"]
    assert (models.n_classes, models.personal, models.provenance["bonus"]) == (2, False, 0.5)
    assert models.provenance["chosen_from"] == n_users
    monkeypatch.setattr("lcb.evaluate.choice.choose.choose", lambda *_, **__: pytest.fail("chosen again"))
    version(store, 1, models)
    add(store, rewards_of(paper_classes(n_classes=2), 40, 20, first=100))
    again, _ = unpack_models(*_packed(learn(Job(store.url, store.head(), 1, learner="auto"), store)), "here")
    assert again.provenance["n_users"] > n_users
    assert (again.n_classes, again.provenance["chosen_from"], again.provenance["bonus"]) == (2, n_users, 0.5)
    add(store, rewards_of(paper_classes(n_classes=2), 80, 20, first=140))
    with pytest.raises(pytest.fail.Exception, match="chosen again"):
        learn(Job(store.url, store.head(), 1, learner="auto"), store)


def test_from_own_choices_among_the_same_arms_a_mixture_is_learned_that_knows_what_it_has_not_tried(
    store: Store,
) -> None:
    """Two kinds of users, who like the first or the second arm; the third was hardly ever shown."""
    rng = np.random.default_rng(0)
    service(store)
    for user in range(60):
        for step in range(12):
            arm = 2 if (user, step) == (0, 0) else int(rng.integers(2))
            clicked = rng.random() < (0.9 if arm == user % 2 else 0.1)
            add(store, [reward(f"u{user}", f"d{user}.{step}", np.eye(3)[arm].tolist(), float(clicked))])
    models, _ = unpack_models(*_packed(learn(Job(store.url, store.head(), 0, learner="auto"), store)), "here")
    assert (models.provenance["learner"], models.provenance["bonus"]) == ("mixture", 0.5)
    variance = np.diagonal(models.covariance, axis1=1, axis2=2)
    largest = np.argsort(-models.pi)[:2]
    assert (variance[largest, 2] > 10 * variance[largest, :2].max(axis=1)).all()
    given = Job(store.url, store.head(), 0, learner="auto", n_classes=2)
    models, _ = unpack_models(*_packed(learn(given, store)), "here")
    assert (models.n_classes, models.provenance["learner"]) == (2, "em")


@pytest.mark.parametrize("item_effects", [False, True])
def test_from_its_own_choices_a_service_learns_a_mixture_and_from_those_of_callers_what_serves_best(
    store: Store, item_effects: bool
) -> None:
    """Two kinds of users, and all arms were shown equally often, so that serving can tell candidates apart."""
    rng = np.random.default_rng(0)
    service(store)
    for user in range(60):
        for step in range(12):
            clicked = float(rng.random() < (0.9 if step % 3 == user % 2 else 0.1))
            x = np.eye(3)[step % 3].tolist()
            add(store, [reward(f"u{user}", f"d{user}.{step}", x, clicked, item=f"i{step % 6}")])
    for shadow, learner in ((False, "mixture"), (True, "em")):
        job = Job(store.url, store.head(), 0, learner="auto", item_effects=item_effects, shadow=shadow)
        models, _ = unpack_models(*_packed(learn(job, store)), "here")
        assert models.provenance["learner"] == learner
        assert np.sort(models.pi)[-2:].sum() > 0.9


@pytest.mark.parametrize("item_effects", [False, True])
@pytest.mark.parametrize("shadow", [False, True])
def test_one_reward_of_a_huge_feature_does_not_change_what_others_get(
    store: Store, item_effects: bool, shadow: bool
) -> None:
    rng = np.random.default_rng(0)
    service(store)
    rows = []
    for user in range(60):
        for step in range(12):
            clicked = float(rng.random() < (0.9 if step % 3 == user % 2 else 0.1))
            x = np.eye(3)[step % 3].tolist()
            rows.append(reward(f"u{user}", f"d{user}.{step}", x, clicked, item=f"i{step % 6}"))
    add(store, rows)
    found = []
    for _ in range(2):
        job = Job(store.url, store.head(), 0, learner="auto", item_effects=item_effects, shadow=shadow)
        found.append(learn(job, store))
        add(store, [reward("evil", "d", [1e9, 0.0, 0.0], 0.0, item="z")])
    before, after = (unpack_models(*_packed(one), "here")[0] for one in found)
    np.testing.assert_allclose(before.pi @ before.beta, after.pi @ after.beta, atol=0.05)
    assert [models.provenance["n_left_out"] for models in (before, after)] == [0, 1]
    assert "1 user left out, with features far larger" in found[1].reason


def _packed(found: JobResult) -> tuple[bytes, bytes]:
    return found.manifest, found.tensors


def test_too_few_users_for_a_choice_are_waited_for(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 3, 10))
    with pytest.raises(TooFewRows):
        learn(Job(store.url, store.head(), 0, learner="auto", held_out=0.0), store)


def test_a_large_covariance_is_kept_only_where_it_is_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SMALL", 10)
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
    with pytest.raises(TooFewRows, match="0 held out"):
        learn(Job(store.url, store.head(), 1, n_classes=1), store)


def test_numbers_that_are_none_are_a_fault_and_not_a_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    service(store)
    add(store, rewards_of(paper_classes(), 40, 10))

    def fit(*given: object, **more: object) -> None:
        raise ModelError("beta has 3 values that are not finite numbers")

    monkeypatch.setattr("lcb.learners.fit", fit)
    with pytest.raises(ModelError):
        learn(Job(store.url, store.head(), 0), store)


def _item_rewards(n_users: int, n_rows: int, *, first: int = 0, seed: int = 0) -> tuple[list[NewRow], dict[str, float]]:
    """Rewards of users of two kinds for 12 items of two categories, and the effects that the items have."""
    rng = np.random.default_rng(seed)
    truth = {f"i{i}": float(value) for i, value in enumerate(np.random.default_rng(7).normal(0.3, 0.3, 12))}
    rows = []
    for u in range(first, first + n_users):
        taste = np.array([0.5, -0.5]) * (1 if u % 2 else -1)
        for n in range(n_rows):
            i = int(rng.integers(12))
            x = np.eye(2)[i % 2]
            value = truth[f"i{i}"] + float(x @ taste) + 0.3 * rng.normal()
            body = events.RewardBody(0.0, 1, "lcb", value, 1.0, x.tobytes(), False, None, item=f"i{i}")
            rows.append(NewRow(f"r/d{u}.{n}", "reward", f"u{u}", 0, events.encode(body)))
    return rows, truth


def test_effects_are_learned_with_the_classes_and_without_the_held_out(store: Store) -> None:
    service(store)
    rows, truth = _item_rewards(120, 20)
    add(store, rows)
    found = learn(Job(store.url, store.head(), 0, learner="em", n_classes=2, item_effects=True), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    effects = models.item_effects
    assert effects is not None
    assert sorted(effects.ids) == sorted(truth)
    n_learned = sum(not is_held_out(SEED, f"u{u}", 0.2) for u in range(120))
    pairs = {(row.user, events.decode("reward", row.body).item) for row in rows}
    raters = sum(not is_held_out(SEED, user, 0.2) for user, _ in pairs)
    assert (found.n_users, effects.count.sum()) == (n_learned, raters)
    learned, wanted = effects.effect, np.array([truth[id] for id in effects.ids])
    kind = np.array([int(id[1:]) % 2 for id in effects.ids])
    for one in (0, 1):  # a shift of all items of a kind is the weight of the kind
        np.testing.assert_allclose(
            (learned - learned[kind == one].mean())[kind == one], (wanted - wanted[kind == one].mean())[kind == one],
            atol=5 * 0.3 / np.sqrt(20 * n_learned / 12),
        )  # fmt: skip
    plain = learn(Job(store.url, store.head(), 0, learner="em", n_classes=2), store)
    assert found.score > plain.score
    version(store, 1, models)
    add(store, _item_rewards(60, 20, first=120, seed=1)[0])
    again = learn(Job(store.url, store.head(), 1, learner="em", n_classes=2, item_effects=True), store)
    assert again.baseline is not None
    assert abs(again.score - again.baseline) < 0.05  # the same classes, and effects brought up to date


@pytest.mark.parametrize("learner", ["em", "auto"])
def test_two_kinds_of_readers_stay_two_classes_beside_item_effects(store: Store, learner: str) -> None:
    """Clicks less effects are no clicks: counted on them there would be 9 classes and more."""
    service(store)
    rng = np.random.default_rng(3)
    effect, likes = 0.04 * rng.normal(size=24), np.array([[0.9, 0.1], [0.1, 0.9]])
    rows = []
    for u in range(300):
        for n in range(20):
            i = int(rng.integers(24))
            value = float(rng.random() < likes[u % 2, i % 2] + effect[i])
            body = events.RewardBody(0.0, 1, "lcb", value, 1.0, np.eye(2)[i % 2].tobytes(), False, None, item=f"i{i}")
            rows.append(NewRow(f"r/d{u}.{n}", "reward", f"u{u}", 0, events.encode(body)))
    add(store, rows)
    job = Job(store.url, store.head(), 0, learner=learner, n_classes=None, item_effects=True, shadow=True)
    models, _ = unpack_models(*_packed(learn(job, store)), "here")
    assert (models.n_classes, models.personal) == (2, False)
    assert models.item_effects is not None
    order = np.argsort(models.beta[:, 1])
    gaps = models.beta[order][:, 0] - models.beta[order][:, 1]
    np.testing.assert_allclose(gaps - gaps.mean(), [0.8, -0.8], atol=0.1)


def test_items_that_do_not_come_again_have_no_effects(store: Store) -> None:
    service(store)
    add(store, rewards_of(paper_classes(n_classes=2), 60, 10))  # rewards without items, each with features of its own
    found = learn(Job(store.url, store.head(), 0, learner="em", n_classes=2, item_effects=True), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    assert models.item_effects is None


def test_an_item_that_changed_its_features_is_learned_from_those_that_most_have_rated(store: Store) -> None:
    service(store)
    rows, _ = _item_rewards(60, 20)
    body = events.decode("reward", rows[0].body)
    body.x, body.item = np.array([0.5, 0.5]).tobytes(), "i0"
    add(store, [NewRow("r/first", "reward", "u0", 0, events.encode(body)), *rows])
    read, users = training_data.read_item_rows(store, store.head(), "once", ())
    assert len(users) == 60
    assert len(read.ids) == 13
    assert [training_data.is_made_up(id) for id in read.ids] == [True] + [False] * 12
    assert read.x[read.ids.index("i0")].tolist() == [1.0, 0.0]
    found = learn(Job(store.url, store.head(), 0, learner="em", n_classes=2, item_effects=True), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    assert models.item_effects is not None
    assert len(models.item_effects.ids) == 12


@pytest.mark.parametrize(("n_strangers", "x"), [(9, [1.0, 0.0]), (10, [0.001, 0.0]), (11, [0.001, 0.0])])
def test_a_few_who_send_other_features_of_an_item_do_not_take_its_effect(
    store: Store, n_strangers: int, x: list[float]
) -> None:
    """Each of them has rated it often, and later than everybody else; of equally many, the newest features count."""
    service(store)

    def reward(user: str, n: int, x: list[float]) -> NewRow:
        body = events.RewardBody(0.0, 1, "lcb", 1.0, 1.0, np.array(x).tobytes(), False, None, item="i0")
        return NewRow(f"r/{user}.{n}", "reward", user, 0, events.encode(body))

    add(store, [reward(f"u{n}", 0, [1.0, 0.0]) for n in range(10)])
    add(store, [reward(f"stranger{n}", i, [0.001, 0.0]) for n in range(n_strangers) for i in range(5)])
    read, _ = training_data.read_item_rows(store, store.head(), "once", ())
    assert [id for id in read.ids if not training_data.is_made_up(id)] == ["i0"]
    assert read.x[read.ids.index("i0")].tolist() == x


@pytest.mark.parametrize("shared", [True, False])
def test_a_user_who_always_gives_the_same_does_not_draw_newcomers_into_a_class_without_noise(
    store: Store, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """One of 101 users: without shared noise, two rewards of 0 make a newcomer one of that kind."""
    if not shared:
        monkeypatch.setattr("lcb.serve.learn.worker.share_noise", lambda models, n_users: models)
    service(store)
    rng, likes, held = np.random.default_rng(0), np.array([[0.7, 0.2], [0.2, 0.7]]), {f"u{u}" for u in range(101)}
    fan = next(name for name in sorted(held) if not is_held_out(SEED, name, 0.2))
    rows = []
    for name in sorted(held):
        for n in range(500 if name == fan else 20):
            i = int(rng.integers(2))
            value = float(i) if name == fan else float(rng.random() < likes[int(name[1:]) % 2, i])
            body = events.RewardBody(0.0, 1, "lcb", value, 1.0, np.eye(2)[i].tobytes(), False, None)
            rows.append(NewRow(f"r/{name}.{n}", "reward", name, 0, events.encode(body)))
    add(store, rows)
    found = learn(Job(store.url, store.head(), 0, learner="em", n_classes=3), store)
    models, _ = unpack_models(found.manifest, found.tensors, "here")
    bandit = LearnedClasses(models)
    state = bandit.start()
    for _ in range(2):
        state = bandit.update(state, Decision(0, 1.0, np.array([1.0, 0.0])), 0.0)
    strange = int(np.argmin(models.sigma2))
    assert models.beta[strange] == pytest.approx([0.0, 1.0], abs=0.05)
    assert (bandit.weights(state)[strange] < 0.1) == shared
