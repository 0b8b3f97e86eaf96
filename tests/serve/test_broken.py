"""A service that could not apply an event ends: its state differs from the log, and a start computes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lcb.serve.audit.verify import verify
from lcb.storage.store.open_store import open_store
from support.harness import serving

ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]


def ask(http: Any, route: str, **body: Any) -> int:
    return http.post(f"/v1/{route}", json=body).status_code


def test_it_ends_writes_no_snapshot_and_starts_again(tmp_path: Path) -> None:
    with serving(tmp_path, without=("correctness",)) as server, server.client() as http:
        for name in ("ann", "ben"):
            assert ask(http, "decisions", user=name, arms=ARMS, decision_id=name) == 200
        assert ask(http, "rewards", decision_id="ann", reward=1.0) == 200
        assert ask(http, "rewards", decision_id="ben", reward=0.125) == 503
        assert server.process.wait(60) != 0
        assert "the state in memory differs from the log: start again" in server.output.read_text()
    with serving(tmp_path) as server, server.client() as http:
        assert ask(http, "rewards", decision_id="ben", reward=0.125) == 200  # it was stored
        assert http.get("/v1/users/ben").json()["reward_sum"] == 0.125
        assert http.get("/v1/trials").json()["recommenders"][0]["n_rewards"] == 2
        assert server.stop() == 0
    store = open_store(str(tmp_path / "lcb.db"))
    try:
        assert verify(store).differences == []
    finally:
        store.close()
