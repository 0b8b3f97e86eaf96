"""Write src/types.ts: the message types of the HTTP API as TypeScript, from the service's own /openapi.json.

scripts/write-typescript-types
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lcb.serve.config.settings import Settings
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.web.keys import Keyring
from lcb.serve.web.openapi import build_document
from lcb.storage.store.open_store import open_store

HEADER = "// Written by scripts/write-typescript-types from /openapi.json; the check compares.\n"
_SIMPLE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def read_document() -> dict[str, Any]:
    """Return /openapi.json of a new service without pages."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Settings(store=f"{folder}/lcb.db", pages=False), open_store(f"{folder}/lcb.db"))
        document = build_document(build_app(service, Keyring(())).calls)
        service.store.close()
    return document


def format_types(document: Mapping[str, Any]) -> str:
    """Return one interface for each schema of the document, in alphabetical order."""
    schemas = document["components"]["schemas"]
    return "\n".join([HEADER, *("\n".join(_format_interface(name, schemas[name])) + "\n" for name in sorted(schemas))])


def _format_interface(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if text := schema.get("description"):
        yield from _format_comment(text, "")
    yield f"export interface {name} {{"
    for field, kind in schema["properties"].items():
        if text := _find_description(kind):
            yield from _format_comment(text, "  ")
        optional = "" if field in schema.get("required", ()) else "?"
        yield f"  {field}{optional}: {_format_kind(kind)};"
    yield "}"


def _format_comment(text: str, indent: str) -> Iterator[str]:
    lines = [" ".join(part.split()) for part in text.split("\n\n")]
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
        return
    yield f"{indent}/**"
    yield from (f"{indent} * {line}".rstrip() for line in "\n\n".join(lines).split("\n"))
    yield f"{indent} */"


def _find_description(kind: Mapping[str, Any]) -> str | None:
    parts = (kind, *kind.get("anyOf", ()))
    return next((part["description"] for part in parts if "description" in part), None)


def _format_kind(kind: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " | ".join(_format_kind(one) for one in kind["anyOf"])
    if "enum" in kind:
        return " | ".join(json.dumps(one) for one in kind["enum"])
    if kind.get("type") == "array":
        inner = _format_kind(kind.get("items", {}))
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind.get("type") == "object":
        inner = kind.get("additionalProperties", {})
        return f"Record<string, {_format_kind(inner) if isinstance(inner, Mapping) else 'unknown'}>"
    return _SIMPLE[kind["type"]] if "type" in kind else "unknown"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(format_types(read_document()))
