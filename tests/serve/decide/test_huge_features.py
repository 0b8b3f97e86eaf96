"""Features of any size that is allowed must leave every later request answerable."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from support.inside import Inside, sqlite

HUGE = [{"id": "huge", "x": [1e8, 1e8, 1e8]}]
ARMS = [{"id": "a", "x": [1.0, 0.0, 0.5]}, {"id": "b", "x": [0.0, 1.0, 0.5]}]


@pytest.mark.parametrize("scope", ["user", "everyone"])
def test_one_decision_with_huge_features_does_not_stop_later_ones(tmp_path: Path, scope: str) -> None:
    spec = RecommenderSpec("ts", "lints", scope=scope)
    inside = Inside(sqlite(tmp_path / "lcb.db"), Settings(recommenders=(spec,), pages=False))
    try:
        inside.reward(inside.decide("eve", arms=HUGE)["decision_id"], 1.0)
        for user in ("eve", "ann", "bob", "eve"):
            inside.reward(inside.decide(user, arms=ARMS)["decision_id"], 0.5)
        assert verify(inside.store).differences == []
    finally:
        inside.close()
