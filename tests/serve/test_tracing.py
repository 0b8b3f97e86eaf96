"""Traces of requests, decisions, commits and learning."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from lcb.errors import InputError, MissingExtra
from lcb.serve.config.settings import Settings
from lcb.serve.tracing import build_provider, trace
from support.http_inside import inside

ARMS = [{"id": "a secret item", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def run(folder: Path, ask: Any, *, learn: Any = None) -> dict[str, list[ReadableSpan]]:
    """Trace a service while `ask(client)` runs; return the spans by name."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def drive() -> None:
        async with inside(Settings(store=str(folder / "lcb.db"), pages=False)) as (app, client):
            if learn is not None:
                app.retraining._learn = learn
            trace(app, provider)
            await ask(client)
            if learn is not None:
                async with asyncio.timeout(60):
                    while app.retraining.running:
                        await asyncio.sleep(0.01)

    asyncio.run(drive())
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def test_a_decision_is_part_of_its_request_and_the_request_of_its_caller(tmp_path: Path) -> None:
    async def ask(client: Any) -> None:
        body = {"user": "a secret person", "arms": ARMS, "decision_id": "d"}
        await client.post("/v1/decisions", json=body, headers={"traceparent": CALLER})
        await client.post("/v1/rewards", json={"decision_id": "nothing", "reward": 1})

    spans = run(tmp_path, ask)
    (request,), (decision,) = spans["POST /v1/decisions"], spans["decision"]
    assert request.kind == SpanKind.SERVER
    assert f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
    assert decision.parent.span_id == request.context.span_id
    assert decision.attributes == {"lcb.recommender": "lcb", "lcb.model": 0, "lcb.arms": 2}
    assert request.attributes["http.response.status_code"] == 200
    (refused,) = spans["POST /v1/rewards"]
    assert refused.attributes["http.response.status_code"] == 404
    assert refused.status.is_ok or refused.status.is_unset
    (commit,) = spans["commit"]
    assert commit.attributes == {"lcb.events": 1}
    assert "secret" not in "".join(span.to_json() for some in spans.values() for span in some)


def test_the_decisions_of_a_batch_and_learning_are_traced(tmp_path: Path) -> None:
    async def learn() -> None:
        await asyncio.sleep(0)

    async def ask(client: Any) -> None:
        await client.post("/v1/decisions", json={"user": "ann", "arms": ARMS, "decision_id": "d"})
        await client.post("/v1/rewards", json={"decision_id": "d", "reward": 1})
        await client.post("/v1/decisions:batch", json={"arms": ARMS, "decisions": [{"user": "ann"}, {"user": "bob"}]})
        await client.post("/v1/models/retrain")

    spans = run(tmp_path, ask, learn=learn)
    (batch,) = spans["POST /v1/decisions:batch"]
    (together,) = spans["decisions"]
    assert (together.parent.span_id, together.attributes["lcb.decisions"]) == (batch.context.span_id, 2)
    assert spans["learning"][0].attributes == {"lcb.users": 2}


def test_without_the_setting_no_package_of_opentelemetry_is_imported() -> None:
    code = "import lcb.serve.server, sys; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_exporter_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"choose from otlp, .*console"):
        build_provider("carrier pigeon")
    monkeypatch.setattr("lcb.serve.tracing.entry_points", lambda group: [])
    with pytest.raises(MissingExtra, match=r"pip install '.\[otel\]'"):
        build_provider("otlp")
