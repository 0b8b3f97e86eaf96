"""/openapi.json is built from the routes, and describes what the service does."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import schemathesis

from lcb import messages
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.web.endpoint import Call
from lcb.serve.web.keys import sha256
from lcb.serve.web.openapi import list_statuses, strip_converters
from lcb.storage.store.base import Key
from support.http_inside import inside

DOCS = Path(__file__).parents[3] / "docs" / "http.md"
ADMIN = Key("ops", "admin", sha256("lcb_admin"), 0.0, None)


def page(tmp_path: Path, keys: tuple[Key, ...] = ()) -> tuple[dict, list[Call]]:
    async def read() -> tuple[dict, list[Call]]:
        async with inside(Settings(store=str(tmp_path / "lcb.db")), keys=keys) as (app, client):
            answer = await client.get("/openapi.json")
            assert answer.status_code == 200
            return answer.json(), app.calls

    return asyncio.run(read())


def test_the_page_needs_no_key_and_names_every_call_of_the_docs_and_no_other(tmp_path):
    found, calls = page(tmp_path, (ADMIN,))
    named = {f"{method.upper()} {path}" for path, methods in found["paths"].items() for method in methods}
    documented = re.findall(r"^\| `([A-Z]+ /\S*)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert named == set(documented)
    assert len(documented) == len(set(documented)) == len(calls)
    assert found["openapi"] == "3.1.0"


def test_operations_have_names_of_their_own_and_say_what_they_do(tmp_path):
    found, calls = page(tmp_path)
    operations = [operation for methods in found["paths"].values() for operation in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(calls)
    assert all(one["summary"] for one in operations)
    assert found["paths"]["/page/login"]["post"]["responses"]["204"].keys() == {"description"}


def test_the_page_is_openapi_as_others_read_it(tmp_path):
    found, calls = page(tmp_path)
    schema = schemathesis.openapi.from_dict(found)
    assert len(list(schema.get_all_operations())) == len(calls)


def test_the_schemas_are_those_of_the_types_that_validate(tmp_path):
    schemas = page(tmp_path)[0]["components"]["schemas"]
    arms = schemas["DecisionRequest"]["properties"]["arms"]["anyOf"][0]
    assert (arms["minItems"], arms["maxItems"]) == (1, messages.MOST_ARMS)
    assert schemas["DecisionRequest"]["additionalProperties"] is False
    assert schemas["RewardRequest"]["required"] == ["decision_id", "reward"]
    assert schemas["RewardRequest"]["properties"]["reward"]["maximum"] == messages.LARGEST


def test_a_key_is_asked_for_where_there_are_keys(tmp_path):
    document = page(tmp_path, (ADMIN,))[0]
    decide = document["paths"]["/v1/decisions"]["post"]
    assert decide["security"] == [{"key": []}, {"session": []}]
    cookie = document["components"]["securitySchemes"]["session"]
    assert (cookie["type"], cookie["in"], cookie["name"]) == ("apiKey", "cookie", "lcb_session")
    assert "scope writer" in decide["description"]
    assert page(tmp_path)[0]["paths"]["/v1/decisions"]["post"]["security"] == [{}]
    assert "security" not in page(tmp_path, (ADMIN,))[0]["paths"]["/healthz"]["get"]


def test_an_answer_leads_to_the_calls_that_follow(tmp_path):
    links = page(tmp_path)[0]["paths"]["/v1/decisions"]["post"]["responses"]["200"]["links"]
    assert links["reward"]["requestBody"] == {"decision_id": "$response.body#/decision_id"}
    assert links["get_user"]["parameters"] == {"user": "$request.body#/user"}


def test_every_status_is_a_problem_or_the_answer(tmp_path):
    found, calls = page(tmp_path)
    for call in calls:
        responses = found["paths"][strip_converters(call.path)][call.method.lower()]["responses"]
        assert list(map(int, responses)) == list_statuses(call)
    of = {f"{call.method} {strip_converters(call.path)}": list_statuses(call) for call in calls}
    assert of["POST /v1/rewards"] == [200, 400, 401, 403, 404, 408, 409, 410, 413, 421, 422, 429, 431, 500, 503]
    assert of["GET /readyz"] == [200, 400, 408, 413, 431, 500, 503]
    assert of["POST /v1/models/retrain"][0] == 202
    problem = found["components"]["responses"]["404"]["content"]["application/problem+json"]
    assert problem == {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/decisions", b"{", 400),
        ("POST", "/v1/decisions", b'{"user": ""}', 422),
        ("POST", "/v1/rewards", b'{"decision_id": "a", "reward": 1}', 404),
        ("POST", "/v1/rewards", b"x" * 5000, 413),
        ("GET", "/v1/users/nobody", b"", 404),
        ("GET", "/v1/items", b"", 200),
        ("GET", "/readyz", b"", 200),
    ],
)
def test_what_a_call_answers_is_what_the_page_says(tmp_path, method, path, body, status):
    async def ask() -> None:
        settings = Settings(store=str(tmp_path / "lcb.db"), limits=Limits(max_body=4000))
        async with inside(settings) as (_, client):
            answer = await client.request(method, path, content=body)
            assert answer.status_code == status
            schema = schemathesis.openapi.from_dict(json.loads((await client.get("/openapi.json")).content))
            operation = schema[path.replace("nobody", "{user}")][method]
            operation.validate_response(schemathesis.Response.from_httpx(answer, verify=False))

    asyncio.run(ask())
