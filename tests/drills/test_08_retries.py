"""Drill 8: the answer is lost and the client asks again: same arm, same propensity, one event."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from lcb import messages
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.service import Service
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving
from support.inside import Inside, sqlite

RETRIES = 200 if LONG else 25


def send_and_leave(server: Server, body: dict) -> None:
    """Send a request and close the connection before the answer."""
    place = urlsplit(server.address)
    data = json.dumps(body).encode()
    lines = (
        "POST /v1/decisions HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    )
    head = "\r\n".join((*lines, "", ""))
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(head.encode() + data)


def drill_over_http(folder: Path, without: tuple[str, ...] = ()) -> None:
    rng = np.random.default_rng(0)
    with serving(folder, models=models_folder(folder), without=without) as server, server.client() as http:
        for i in range(RETRIES):
            body = {"user": f"u{i % 5}", "arms": arms(rng, 5), "decision_id": f"d{i}"}
            send_and_leave(server, body)
            answers = [http.post("/v1/decisions", json=body) for _ in range(3)]
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1, "asked again, answered otherwise"
            other = http.post("/v1/decisions", json={**body, "user": "somebody else"})
            assert other.status_code == 422
    store = open_store(str(folder / "lcb.db"))
    rows = Counter(row.kind for row in store.events(0))
    store.close()
    assert rows["decision"] == RETRIES, "asked again, decided again"


def test_a_client_that_lost_the_answer_gets_it_again(tmp_path: Path) -> None:
    drill_over_http(tmp_path)


def drill_at_every_moment(folder: Path, broken: Callable[[Service], None] | None = None) -> None:
    """Cancel the client or crash the service before the event is queued, before it is written, and after."""
    chance = np.random.default_rng(1)
    spec = RecommenderSpec("lcb", settings={"gamma": 0.5})
    given = Settings(recommenders=(spec,), models=models_folder(folder), pages=False)
    with Inside(sqlite(folder / "lcb.db"), given, broken=broken) as inside:
        for i in range(RETRIES):
            request = {"arms": arms(chance, 5), "decision_id": f"d{i}", **({"k": 3} if i % 4 == 0 else {})}
            first = inside.begin_decide(f"u{i % 5}", **request)
            if i % 3 == 0:
                first.cancel()  # the client is gone, but the event is still queued
            if i % 5 == 0:
                inside.crash()  # before it was written
            inside.write()
            expected = first.result() if first.done() and not first.cancelled() else None
            if i % 7 == 0:
                inside.crash()
            again = inside.ended(inside.begin_decide(f"u{i % 5}", **request))
            assert expected in (None, again), "asked again, answered otherwise"
            assert inside.ended(inside.begin_decide(f"u{i % 5}", **request)) == again, "asked again, answered otherwise"
        rows = Counter(row.kind for row in inside.store.events(0))
        assert rows["decision"] == RETRIES, "asked again, decided again"


def test_whenever_the_answer_gets_lost_it_is_the_same_again(tmp_path: Path) -> None:
    drill_at_every_moment(tmp_path)


def test_a_service_that_takes_every_request_for_a_new_one_decides_twice(tmp_path: Path) -> None:
    def forgetful(service: Service) -> None:
        kept = service.decisions.decide

        def decide(request: messages.DecisionRequest, *more: Any) -> Any:
            made = kept(request, *more)
            if isinstance(made, bytes):
                request.decision_id = None
                return kept(request, *more)
            return made

        service.decisions.decide = decide  # type: ignore[method-assign]

    with pytest.raises(AssertionError, match="asked again"):
        drill_at_every_moment(tmp_path, forgetful)
