"""Settings must agree with the names in the log: features, categories, the path of the store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from lcb.errors import InputError, StoreError
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import AUTO, Settings
from lcb.serve.errors import Problem
from lcb.serve.log.bootstrap import keep_recommenders
from lcb.serve.service import Service
from lcb.storage.models.folder import save_models
from lcb.storage.store.open_store import open_store
from support.inside import Inside, sqlite
from support.tampering import run_sql


def models(folder: Path, *features: str) -> str:
    beta = np.eye(2, len(features))
    save_models(LatentModels(np.full(2, 0.5), beta, np.ones(2), features), folder / "-".join(features))
    return str(folder / "-".join(features))


def start(folder: Path, **settings: object) -> None:
    store = open_store(str(folder / "lcb.db"))
    try:
        Service(Settings(store=store.url, pages=False, **settings), store)  # type: ignore[arg-type]
    finally:
        store.close()


def test_models_whose_features_have_another_order_are_refused(tmp_path: Path) -> None:
    start(tmp_path, models=models(tmp_path, "sport", "arts", "science"))
    with pytest.raises(
        InputError, match="models of the features arts, science, sport, but this log has sport, arts, science"
    ):
        start(tmp_path, models=models(tmp_path, "arts", "science", "sport"))
    start(tmp_path, models=models(tmp_path, "x0", "x1", "x2"))  # features without names are taken by their place


def test_categories_on_a_log_that_began_without_them_are_refused(tmp_path: Path) -> None:
    start(tmp_path, models=models(tmp_path, "a", "b"))
    with pytest.raises(InputError, match="began without categories and has 2 features; leave them out"):
        start(tmp_path, categories=("x", "y"))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("reward", "\"user\" = 'nobody'"),
        ("reward", "body = x'90'"),
        ("decision", "body = x'c1'"),
        ("reward", "kind = 'x'"),
    ],
)
def test_an_event_that_was_changed_is_refused_in_one_sentence(tmp_path: Path, kind: str, change: str) -> None:
    service = Inside(sqlite(tmp_path / "lcb.db"), Settings(pages=False))
    try:
        arms = [{"id": "a", "x": [1.0]}, {"id": "b", "x": [2.0]}]
        service.reward(service.decide("ann", arms=arms)["decision_id"], 1.0)
        seq = next(row.seq for row in service.store.events(0) if row.kind == kind)
        service.crash()
    finally:
        service.close()
    run_sql(str(tmp_path / "lcb.db"), "delete from snapshot")
    run_sql(str(tmp_path / "lcb.db"), f"update event set {change} where seq = ?", (seq,))
    with pytest.raises(
        StoreError, match=rf"event {seq} of .* cannot be (applied|read) .*run lcb log verify.* from a backup"
    ):
        start(tmp_path)


def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    first = open_store(str(tmp_path / "lcb.db"), serve=True)
    (tmp_path / "link.db").symlink_to(tmp_path / "lcb.db")
    with pytest.raises(StoreError, match="is being served by another process"):
        open_store(str(tmp_path / "link.db"), serve=True)
    first.close()


def test_a_store_of_two_names_is_not_served(tmp_path: Path) -> None:
    first = open_store(str(tmp_path / "lcb.db"), serve=True)
    (tmp_path / "other.db").hardlink_to(tmp_path / "lcb.db")
    with pytest.raises(StoreError, match=r"other\.db has 2 names"):
        open_store(str(tmp_path / "other.db"), serve=True)
    first.close()
    (tmp_path / "other.db").unlink()
    open_store(str(tmp_path / "lcb.db"), serve=True).close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"categories": ()}, {"categories": ("a", "a")}, {"categories": (" ",)}, {"simulated_visitors": float("nan")},
        {"simulated_visitors": -1.0}, {"reward_range": (0.0, float("inf"))},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_recommender_has_a_name_that_fits_in_a_path() -> None:
    with pytest.raises(InputError, match="use 1 to 64 letters, digits"):
        Settings(recommenders=(RecommenderSpec("a b\n/x"),))


def test_a_setting_the_bandit_does_not_have_is_met_with_those_it_has() -> None:
    with pytest.raises(InputError, match="its settings are eta, uniform, loss, policy"):
        RecommenderSpec("lcb", "thompson", settings={"width": 1.0})


def test_a_log_keeps_its_recommenders_and_a_new_one_serves_what_is_chosen(tmp_path: Path) -> None:
    given = Settings(store=str(tmp_path / "lcb.db"), pages=False)

    def keep() -> Settings:
        store = open_store(given.store)
        try:
            kept = keep_recommenders(given, store)
            Service(kept, store)
            return kept
        finally:
            store.close()

    assert keep() == given  # an empty log
    (kept,) = keep().recommenders
    assert (kept.name, kept.bandit, kept.pin, kept.uniform) == ("lcb", "learned-classes", False, 0.01)
    assert keep().learner == AUTO
    (tmp_path / "lcb.db").unlink()
    start(tmp_path, recommenders=(RecommenderSpec("old", "thompson"),))
    assert [(one.name, one.bandit, one.pin) for one in keep().recommenders] == [("old", "thompson", True)]
    assert keep().learner == "em"


def test_a_new_log_takes_rewards_of_0_to_1_unless_told_otherwise(tmp_path: Path) -> None:
    arms = [{"id": "a", "x": [1.0]}]
    with closing(Inside(sqlite(tmp_path / "plain.db"), Settings(pages=False))) as inside:
        id = inside.decide("ann", arms=arms)["decision_id"]
        with pytest.raises(
            Problem, match=r"reward 1e\+09 is outside the range \[0, 1\] of this log; .* --reward-range"
        ):
            inside.reward(id, 1e9)
        inside.reward(id, 1.0)
    stars = tmp_path / "stars.db"
    with closing(Inside(sqlite(stars), Settings(pages=False, rewards="sum", reward_range=(0.0, 5.0)))) as inside:
        id = inside.decide("ann", arms=arms)["decision_id"]
        inside.reward(id, 4.0)
        with pytest.raises(Problem, match=r"reward 2 makes the sum 6, which is outside the range \[0, 5\]"):
            inside.reward(id, 2.0, reward_id="more")
        inside.reward(id, 1.0, reward_id="more")
    with closing(Inside(sqlite(stars), Settings(pages=False, rewards="sum"))) as inside:  # a log keeps its range
        assert tuple(inside.service.world.state.settings.reward_range) == (0.0, 5.0)
    with pytest.raises(InputError, match=r"reward_range is \(0.0, 5.0\) in this log, but \(0.0, 1.0\) in the settings"):
        Inside(sqlite(stars), Settings(pages=False, rewards="sum", reward_range=(0.0, 1.0)))


def test_a_log_of_an_earlier_version_takes_any_number_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = events.ServiceBody
    with monkeypatch.context() as patch:
        patch.setattr(
            events, "ServiceBody", lambda at, seed, rewards, _, *rest, **more: whole(at, seed, rewards, None, *rest)
        )
        Inside(sqlite(tmp_path / "lcb.db"), Settings(pages=False)).close()
    with closing(Inside(sqlite(tmp_path / "lcb.db"), Settings(pages=False))) as inside:
        inside.reward(inside.decide("ann", arms=[{"id": "a", "x": [1.0]}])["decision_id"], 1e9)
        assert verify(inside.store).differences == []
