"""/openapi.json, made of the table of routes and of the types that validate what comes: OpenAPI 3.1.

Nothing here is written twice.  A route's line says what it takes and gives; msgspec turns those types into JSON
Schema; which statuses an answer may have follows from whether there is a key to check and a body to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from lcb.serve.web.endpoint import Call
from lcb.serve.web.keys import SCOPES
from lcb.version import __version__

PROBES = frozenset({"/healthz", "/readyz"})  # never one too many
_OF_ANY = (400, 408, 413, 429, 431, 500, 503)  # of any call: by limits on connections, headers, bodies and rates
_OF_KEYS = (401, 403)
_OF_BODIES = (422,)
_HEADERS = {
    401: ("WWW-Authenticate", "Bearer."),
    429: ("Retry-After", "Seconds to wait."),
    503: ("Retry-After", "Seconds to wait."),
}


class ProblemAnswer(Struct, omit_defaults=True):
    """RFC 9457: what came, what was wanted and what to do next; `field` names the place in the request."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


def document(calls: Iterable[Call], *, open: bool = False) -> dict[str, Any]:
    """The whole page as JSON values; `open` where there are no keys, so that none is asked for.

    Calls without words are of our own pages, and no part of it.
    """
    calls = [call for call in calls if call.words]
    types = {kind for call in calls for kind in (call.takes, call.gives, *call.query.values()) if _is_type(kind)}
    wanted = [*sorted(types, key=str), ProblemAnswer]
    schemas, components = msgspec.json.schema_components(wanted, ref_template="#/components/schemas/{name}")
    shape = dict(zip(wanted, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(plain(call.path), {})[call.method.lower()] = _operation(call, shape, calls, open)
    failures = sorted({status for call in calls for status in statuses(call)[1:]})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lcb",
            "version": __version__,
            "description": "Decisions for people a system has never met. A key opens what its scope allows; "
            f"scopes are steps: {', '.join(SCOPES)}. Without any key everything is open.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _failure(status, shape) for status in failures},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "lcb_..."}},
        },
    }


def plain(path: str) -> str:
    """A path as OpenAPI writes it.

    >>> plain("/v1/users/{user:path}")
    '/v1/users/{user}'
    """
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def statuses(call: Call) -> list[int]:
    """Every status a call may answer, the good one first."""
    found = {*_OF_ANY, *call.fails}
    if call.needed:
        found |= set(_OF_KEYS)
    if call.path in PROBES:
        found.discard(429)
    if call.takes is not None or call.query or "{" in call.path:
        found |= set(_OF_BODIES)
    return [call.good, *sorted(found)]


def _is_type(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


def _operation(call: Call, shape: Mapping[Any, Any], calls: list[Call], open: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": call.handler.__name__, "summary": call.words}
    if call.needed:
        made["security"] = [{}] if open else [{"key": []}]
        made["description"] = f"Needs a key of scope {call.needed}, where there are keys."
    text = {"type": "string", "minLength": 1, "maxLength": 256}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _parameter(kind, text)}
        for name, kind in re.findall(r"\{(\w+)(?::(\w+))?\}", call.path)
    ] + [{"name": name, "in": "query", "schema": shape[kind]} for name, kind in call.query.items()]
    if parameters:
        made["parameters"] = parameters
    if call.takes is not None:
        made["requestBody"] = {
            "required": not call.bare,
            "content": {"application/json": {"schema": shape[call.takes]}},
        }
    made["responses"] = {str(status): _response(call, status, shape, calls) for status in statuses(call)}
    return made


def _parameter(kind: str, text: dict[str, Any]) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0} if kind == "int" else text


def _failure(status: int, shape: Mapping[Any, Any]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": shape[ProblemAnswer]}}
    made: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": content}
    if status in _HEADERS:
        name, words = _HEADERS[status]
        made["headers"] = {name: {"description": words, "schema": {"type": "string"}}}
    return made


def _response(call: Call, status: int, shape: Mapping[Any, Any], calls: list[Call]) -> dict[str, Any]:
    if status != call.good and not (status == 503 and call.path == "/readyz"):
        return {"$ref": f"#/components/responses/{status}"}
    content = {call.gives: {}} if isinstance(call.gives, str) else {"application/json": {"schema": shape[call.gives]}}
    made: dict[str, Any] = {"description": call.words, "content": content}
    if status == 503:  # of the limit on connections, not of the route
        made["content"] = content | {"application/problem+json": {"schema": shape[ProblemAnswer]}}
    elif call.then:
        made["links"] = {name: _link(name, given, calls) for name, given in call.then.items()}
    return made


def _link(name: str, given: Mapping[str, str], calls: list[Call]) -> dict[str, Any]:
    """What of this answer the call `name` wants: in its path, or in its body."""
    target = next(call for call in calls if call.handler.__name__ == name)
    in_path = set(re.findall(r"\{(\w+)", target.path))
    made: dict[str, Any] = {"operationId": name}
    if parameters := {key: value for key, value in given.items() if key in in_path}:
        made["parameters"] = parameters
    if body := {key: value for key, value in given.items() if key not in in_path}:
        made["requestBody"] = body
    return made
