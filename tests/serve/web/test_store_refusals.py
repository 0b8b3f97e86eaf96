"""Who asks while the store is down is not told where it is; the operational log says it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.config.settings import Settings
from lcb.serve.observe.places import Places
from support.http_inside import inside

ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]
DECISION = {"user": "new", "arms": ARMS}
SERVER = "postgresql://lcb:***@db.internal:5432/shop"
WORDS = 'connection to server at "10.1.2.3", port 5432 failed: FATAL: database "shop" does not exist'


class Down:
    """A store that fails once `error` is set."""

    def __init__(self, store: Any) -> None:
        self._store, self.error = store, None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self.error is not None and name in ("append", "erase", "event", "events", "events_of", "snapshot", "check"):
            raise self.error
        return found


def build_errors(url: str) -> list[StoreError]:
    return [
        StoreUnavailable(f"{url} could not be written (disk I/O error: {url}-wal); free space on its disk"),
        StoreError(f"{url} is damaged ({Path(url).resolve()}: no such table); restore it from a backup"),
        StoreUnavailable(f"the archive {url}.archive has events up to 3; give the folder that lcb log compact wrote"),
    ]


@pytest.mark.parametrize("which", range(3))
def test_a_refusal_does_not_name_the_store(which: int, tmp_path: Path) -> None:
    url = str(tmp_path / "secret-place.db")
    stores: list[Down] = []

    def wrap(store: Any) -> Down:
        stores.append(Down(store))
        return stores[-1]

    async def run() -> list[str]:
        async with inside(Settings(store=url, pages=False), around=wrap) as (_, client):
            assert (await client.post("/v1/decisions", json={"user": "ann", "arms": ARMS})).status_code == 200
            stores[0].error = build_errors(url)[which]
            answers = [
                await client.post("/v1/decisions", json=DECISION),
                await client.post("/v1/decisions:batch", json={"decisions": [DECISION, {**DECISION, "user": "b"}]}),
                await client.post("/v1/rewards", json={"decision_id": "unknown", "reward": 1.0}),
                await client.get("/v1/users/unknown"),
                await client.delete("/v1/users/ann"),
                await client.get("/readyz"),
            ]
            stores[0].error = None
        assert [one.status_code for one in answers if one.status_code != 200], "nothing was refused"
        return [one.text for one in answers]

    with capture_logs() as lines:
        said = asyncio.run(run())
    assert any("the store" in one or "the archive" in one for one in said)
    for one in said:
        assert "secret-place" not in one
        assert str(tmp_path) not in one
    assert any("secret-place" in str(line.get("error")) for line in lines), "nobody can find out what is wrong"


def test_a_refusal_does_not_name_a_database_server() -> None:
    places = Places(SERVER, Path("/srv/archive"))
    said = places.hide(f"{SERVER} cannot be reached or written ({WORDS}); check the server")
    assert said == "the store cannot be reached or written; check the server"
    assert places.hide("event 3 in /srv/archive/events/1-9.parquet") == "event 3 in the archive/events/1-9.parquet"
    assert places.hide("nothing of it (at all)") == "nothing of it (at all)"
