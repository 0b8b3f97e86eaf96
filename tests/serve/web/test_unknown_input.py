"""What a route does not know is refused by its name: fields of bodies, parameters of queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.raw_requests import Local

PLACES = {
    "{user:path}": "ann",
    "{recommender:path}": "lcb",
    "{version}": "0",
    "{user}": "ann",
    "{name}": "dashboard.js",
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    folder: Path = tmp_path_factory.mktemp("unknown")
    with Local(str(folder / "lcb.db"), pages=True) as local:
        made = local.send("POST", "/v1/decisions", {"user": "ann", "arms": [{"id": "a", "x": [1, 0]}]})
        assert made.status == 200
        yield local


def fill_in(path: str) -> str:
    for place, value in PLACES.items():
        path = path.replace(place, value)
    return path


def test_every_route_with_a_body_names_a_field_that_it_does_not_know(local: Local) -> None:
    routes = [call for call in local.app.calls if call.request is not None]
    assert len(routes) > 8
    for call in routes:
        said = local.send(call.method, fill_in(call.path), {"unknwon": 1})
        assert (said.status, said.json["field"]) == (422, "unknwon"), call.path


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/models/retrain"), ("DELETE", "/v1/users/ann")])
def test_a_route_without_a_body_refuses_fields(local: Local, method: str, path: str) -> None:
    said = local.send(method, path, {"dry_run": True})
    assert (said.status, said.json["field"]) == (422, "dry_run")
    assert "is not a field of this request; remove it" in said.json["detail"]
    assert local.ask(method, path, b"no JSON").status == 400
    assert local.ask("GET", "/v1/users/ann").json["n_decisions"] == 1  # nobody was erased


def test_every_route_of_the_api_refuses_a_query(local: Local) -> None:
    routes = [call for call in local.app.calls if call.path.startswith("/v1/")]
    assert len(routes) == 13
    for call in routes:
        before = local.service.world.seq
        body = json.dumps({"user": "ann", "arms": [{"id": "a", "x": [1, 0]}]}).encode() if call.request else b""
        said = local.ask(call.method, fill_in(call.path) + "?%6b=3&x", body)
        assert (said.status, said.json["field"]) == (422, "query"), call.path
        assert said.json["detail"].startswith("the query has 'k', and this route takes none; leave it out")
        assert local.service.world.seq == before


@pytest.mark.parametrize("path", ["/v1/items?", "/healthz?probe=1", "/metrics?name[]=a", "/dashboard?tab=1"])
def test_probes_scrapes_and_pages_may_have_a_query(local: Local, path: str) -> None:
    assert local.ask("GET", path).status == 200
