"""Stores, model folders, logs and tables that earlier code wrote read as they did then (data/README.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compatibility import facts, make
from compatibility.facts import DATA, LOGS, MODELS, STORES, TABLES
from lcb.serve.audit.verify import verify
from lcb.serve.config.settings import Settings
from lcb.storage.store.sqlite.store import SQLite
from support.inside import Inside, sqlite

EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
ASKED: dict[str, list[Any]] = json.loads((DATA / "asked.json").read_text())


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.fixture(params=STORES)
def store_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / request.param, tmp_path))


def test_a_store_verifies_and_folds_to_the_same_bytes(store_path: Path) -> None:
    """Only its snapshots are gone: they have no checksum, and an upgrade drops them."""
    found, expected = as_json(facts.store_facts(store_path)), EXPECTED["stores"][store_path.name]
    assert found["differences"] == []
    assert found["users_from_snapshots"]
    assert expected["verify"]["n_snapshots"] > 0
    expected = {**expected, "verify": {**expected["verify"], "n_snapshots": 0}}
    for name in expected:
        assert found[name] == expected[name], name


def test_the_stores_have_every_kind_of_event() -> None:
    kinds = {kind for store in EXPECTED["stores"].values() for kind in store["kinds"]}
    assert kinds == {
        "service", "recommender", "items", "model", "activate", "decision", "reward", "erase", "erased decision",
        "erased reward",
    }  # fmt: skip


def test_a_request_sent_again_has_the_answer_it_had(store_path: Path) -> None:
    with serve(store_path) as inside:
        head = inside.store.head()
        n_asked = 0
        for path, request, answer in ASKED[store_path.name]:
            if path == "/v1/decisions":
                assert inside.decide(**request) == answer
                n_asked += 1
            elif store_path.name != "last.db":  # there an older reward sent again is a change
                assert inside.reward(request.pop("decision_id"), request.pop("reward"), **request) == answer
        assert n_asked > 3
        assert inside.store.head() == head


def test_a_store_is_served_on(store_path: Path) -> None:
    with serve(store_path) as inside:
        arms = [
            {"id": "a", "x": [1.0] * (inside.service.world.state.n_features or 1)},
            {"id": "b", "x": [0.5] * (inside.service.world.state.n_features or 1)},
        ]
        n_old, old = inside.store.head(), inside.store.users()
        for user in ["newcomer", *old[:20]]:
            inside.reward(inside.decide(user, arms=arms)["decision_id"], 1.0)
        for user in ["newcomer", old[1]]:
            inside.erase(user)
        inside.stop()
        store = SQLite(store_path)
        report = verify(store)
        assert report.differences == []
        assert report.chain_start == n_old + 1  # what came before is as it was, without salts and links
        assert all(seal == (None, None, None) for _, seal in store.sealed_events(0, n_old))
        assert report.n_snapshots > 0
        store.close()


def serve(path: Path) -> Inside:
    """A service of the settings that the log has."""
    store = SQLite(path)
    world = facts.fold(store, snapshots=False)
    store.close()
    assert world.state.settings is not None
    given = Settings(
        recommenders=tuple(world.state.recommenders.values()),
        rewards=world.state.settings.rewards,
        reward_range=world.state.settings.reward_range,
        pages=False,
    )
    return Inside(sqlite(path), given)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_equal(name: str) -> None:
    assert as_json(facts.model_facts(DATA / "models" / name)) == EXPECTED["models"][name]


@pytest.mark.parametrize("name", LOGS)
def test_logs_are_equal(name: str) -> None:
    assert as_json(facts.log_facts(DATA / name)) == EXPECTED["logs"][name]


@pytest.mark.parametrize("name", TABLES)
def test_tables_give_equal_statistics(name: str) -> None:
    assert as_json(facts.table_facts(DATA / name, TABLES[name])) == EXPECTED["tables"][name]


def test_an_import_writes_the_log_it_wrote(tmp_path: Path) -> None:
    make.make_tables(tmp_path)
    make.make_log(tmp_path)
    for name in ("log", "clicks.parquet"):
        assert as_json(facts.log_facts(tmp_path / name)) == EXPECTED["logs"][name]
