"""/openapi.json (OpenAPI 3.1), built from the routes and from the types that validate their requests.

msgspec turns the types of a route's request and response into JSON Schema; the statuses it may answer follow from
whether it needs a key and reads a body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from lcb.serve.web.endpoint import Call, is_of_api
from lcb.serve.web.keys import SCOPES
from lcb.version import __version__

PROBES = frozenset({"/healthz", "/readyz"})  # not rate limited, and asked by any host name
SESSION_COOKIE = "lcb_session"  # of the operator's pages
_ANY_ROUTE = (400, 408, 413, 421, 429, 431, 500, 503)  # host names; limits on connections, headers, bodies and rates
_WITH_KEY = (401, 403)
_WITH_INPUT = (422,)
_HEADERS = {
    401: ("WWW-Authenticate", "Bearer."),
    429: ("Retry-After", "Seconds to wait."),
    503: ("Retry-After", "Seconds to wait."),
}


_SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "bearerFormat": "lcb_..."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "A session of the operator's pages, begun by POST /page/login; it has the scope of its key. "
        "If the host has a port, the name of the cookie ends with it: lcb_session_8000.",
    },
}


class ProblemAnswer(Struct, omit_defaults=True):
    """An error (RFC 9457): `detail` says what is wrong and what to do next, `field` names the place in the request."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None


def build_document(calls: Iterable[Call], *, open: bool = False) -> dict[str, Any]:
    """Return the document as JSON values; with `open` (there are no keys) no route asks for a key."""
    calls = list(calls)
    types = {kind for call in calls for kind in (call.request, call.response, *call.query.values()) if _is_type(kind)}
    shape, components = _describe_types((*sorted(types, key=str), ProblemAnswer))
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        operation = _describe_operation(call, shape, calls, open)
        paths.setdefault(strip_converters(call.path), {})[call.method.lower()] = operation
    failures = sorted({status for call in calls for status in list_statuses(call)[1:]})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lcb",
            "version": __version__,
            "description": "Decisions for users a system has never met. Each scope of a key includes those before it: "
            f"{', '.join(SCOPES)}. Without any key all routes are open.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _describe_failure(status, shape) for status in failures},
            "securitySchemes": {name: _SECURITY[name] for name in _list_schemes(calls)},
        },
    }


@cache
def _describe_types(kinds: tuple[Any, ...]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of each type and what schemas refer to; kept, because msgspec takes 5 ms to find them."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return dict(zip(kinds, schemas, strict=True)), components


def _list_schemes(calls: Iterable[Call]) -> list[str]:
    """List how a caller may be known: by a key, and by the cookie of a session where there are pages."""
    return ["key", "session"] if any(call.is_page for call in calls) else ["key"]


def strip_converters(path: str) -> str:
    """Return a Starlette path as OpenAPI writes it.

    >>> strip_converters("/v1/users/{user:path}")
    '/v1/users/{user}'
    """
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def list_statuses(call: Call) -> list[int]:
    """List every status that a call may answer, that of success first."""
    found = {*_ANY_ROUTE, *call.failures}
    if call.scope:
        found |= set(_WITH_KEY)
    if call.path in PROBES:
        found -= {421, 429}
    if call.request is not None or call.query or is_of_api(call) or "{" in call.path:
        found |= set(_WITH_INPUT)
    return [call.status, *sorted(found)]


def _summarise(call: Call) -> str:
    return (call.handler.__doc__ or "").partition("\n")[0]


def _get_operation_id(call: Call) -> str:
    """Return the handler's name for a route of the API, method and path for a route of the pages."""
    if not call.is_page:
        return call.handler.__name__
    return "_".join(re.findall(r"\w+", f"{call.method.lower()} {strip_converters(call.path)}"))


def _is_type(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


def _describe_operation(call: Call, shape: Mapping[Any, Any], calls: list[Call], open: bool) -> dict[str, Any]:
    built: dict[str, Any] = {"operationId": _get_operation_id(call), "summary": _summarise(call)}
    if call.is_page:
        built["tags"] = ["pages"]
    if call.scope:
        built["security"] = [{}] if open else [{name: []} for name in _list_schemes(calls)]
        built["description"] = f"Needs a key of scope {call.scope}, if there are keys."
    text, integer = {"type": "string", "minLength": 1, "maxLength": 256}, {"type": "integer", "minimum": 0}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": integer if kind == "int" else text}
        for name, kind in re.findall(r"\{(\w+)(?::(\w+))?\}", call.path)
    ] + [{"name": name, "in": "query", "schema": shape[kind]} for name, kind in call.query.items()]
    if parameters:
        built["parameters"] = parameters
    if call.request is not None:
        content = {"application/json": {"schema": shape[call.request]}}
        built["requestBody"] = {"required": not call.body_optional, "content": content}
    built["responses"] = {str(one): _describe_response(call, one, shape, calls) for one in list_statuses(call)}
    return built


def _describe_failure(status: int, shape: Mapping[Any, Any]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": shape[ProblemAnswer]}}
    built: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": content}
    if status in _HEADERS:
        name, text = _HEADERS[status]
        built["headers"] = {name: {"description": text, "schema": {"type": "string"}}}
    return built


def _describe_response(call: Call, status: int, shape: Mapping[Any, Any], calls: list[Call]) -> dict[str, Any]:
    if status != call.status and not (status == 503 and call.path == "/readyz"):
        return {"$ref": f"#/components/responses/{status}"}
    if status == 204:
        return {"description": _summarise(call)}
    is_media = isinstance(call.response, str)
    content = {call.response: {}} if is_media else {"application/json": {"schema": shape[call.response]}}
    built: dict[str, Any] = {"description": _summarise(call), "content": content}
    if status == 503:  # sent by the limit on connections, not by the route
        built["content"] = content | {"application/problem+json": {"schema": shape[ProblemAnswer]}}
    elif call.links:
        built["links"] = {name: _describe_link(name, given, calls) for name, given in call.links.items()}
    return built


def _describe_link(name: str, given: Mapping[str, str], calls: list[Call]) -> dict[str, Any]:
    """Return an OpenAPI link to the operation `name`: which of its parameters and body fields come from this call."""
    target = next(call for call in calls if call.handler.__name__ == name)
    in_path = set(re.findall(r"\{(\w+)", target.path))
    built: dict[str, Any] = {"operationId": name}
    if parameters := {key: value for key, value in given.items() if key in in_path}:
        built["parameters"] = parameters
    if body := {key: value for key, value in given.items() if key not in in_path}:
        built["requestBody"] = body
    return built
