"""Traces of a running service for OpenTelemetry: requests, decisions, commits and learning.

    POST /v1/decisions          a request; its parent is the caller's span, if a `traceparent` header came
      decision                  the choice of an arm
    POST /v1/decisions:batch
      decisions                 the choices that are made together; one that must wait has a `decision` of its own
    commit                      one transaction, of the events of many requests
    learning                    a new model version, in another process

`trace` wraps the parts of an application that has been built, so a service without tracing runs the same code as if
this module did not exist.  Spans have routes, statuses and counts, but no users, items, features or keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from lcb.errors import InputError, MissingExtra, need_extra
from lcb.serve.decide.decisions import Begun
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.together import Together
from lcb.serve.errors import Problem
from lcb.serve.log.waiting import list_entries
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Ask, Endpoint, Reply

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_EXPORTERS = "opentelemetry_traces_exporter"


def build_provider(exporter: str) -> TracerProvider:
    """Return a provider that sends spans with an installed exporter: otlp, console, or one of another package.

    Where to, how often and how many is up to OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    with need_extra("otel"):
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    wanted = "otlp_proto_http" if exporter == "otlp" else exporter
    known = {one.name: one for one in entry_points(group=_EXPORTERS)}
    if wanted not in known:
        if exporter == "otlp":
            raise MissingExtra("opentelemetry-exporter-otlp-proto-http", "otel")
        raise InputError(f"tracing is {exporter!r}; choose from otlp, {', '.join(sorted(known))}")
    provider = TracerProvider(resource=Resource.create({"service.name": "lcb"}))
    provider.add_span_processor(BatchSpanProcessor(known[wanted].load()()))
    return provider


def trace(app: App, provider: TracerProvider) -> None:
    """Make an application trace what it does from here on."""
    tracer = provider.get_tracer("lcb")
    for endpoint in app.endpoints:
        endpoint.handler = _trace_requests(tracer, endpoint)
    _trace_decisions(tracer, app)
    journal, retraining = app.service.journal, app.retraining
    commit, learn = journal._commit, retraining._learn

    def traced_commit(batch: list[Any]) -> None:
        with tracer.start_as_current_span("commit", attributes={"lcb.events": len(list_entries(batch))}):
            commit(batch)

    async def traced_learn() -> None:
        with tracer.start_as_current_span("learning", attributes={"lcb.users": app.service.world.n_started}):
            await learn()

    journal._commit = traced_commit  # type: ignore[method-assign]
    retraining._learn = traced_learn  # type: ignore[method-assign]


def _trace_requests(tracer: Tracer, endpoint: Endpoint) -> Callable[[Ask], Awaitable[Reply]]:
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind, Status, StatusCode

    handler, route = endpoint.handler, endpoint.route
    method, _, path = route.partition(" ")
    attributes = {"http.request.method": method, "http.route": path}

    async def handle(ask: Ask) -> Reply:
        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in ask.scope["headers"]}
        parent = extract({name: sent[name] for name in ("traceparent", "tracestate") if name in sent})
        given: dict[str, Any] = {"kind": SpanKind.SERVER, "attributes": attributes, "record_exception": False}
        with tracer.start_as_current_span(route, parent, set_status_on_exception=False, **given) as span:
            try:
                reply = await handler(ask)
            except Exception as error:
                status = error.status if isinstance(error, Problem) else 500
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise
            span.set_attribute("http.response.status_code", reply.status)
            return reply

    return handle


def _trace_decisions(tracer: Tracer, app: App) -> None:
    decisions, service = app.service.decisions, app.service
    decide, finish_many, finish = decisions.decide, decisions.finish_many, service._finish

    def traced_decide(*given: Any, **more: Any) -> Entry | bytes:
        with tracer.start_as_current_span("decision", record_exception=False) as span:
            made = decide(*given, **more)
            if isinstance(made, Entry):
                span.set_attributes(
                    {
                        "lcb.recommender": made.body.recommender,
                        "lcb.model": made.row.model or 0,
                        "lcb.arms": made.body.n_arms,
                    }
                )
            return made

    async def traced_finish(begun: Begun) -> bytes | None:
        """A decision over very many arms, which ends in another thread."""
        given: dict[str, Any] = {"lcb.recommender": begun.recommender, "lcb.model": begun.model}
        given["lcb.arms"] = len(begun.arms.ids)
        with tracer.start_as_current_span("decision", attributes=given):
            return await finish(begun)

    def traced_finish_many(together: Together, begun: Mapping[int, Begun]) -> dict[int, Entry | Problem]:
        """The decisions of a batch, most of which are drawn together."""
        with tracer.start_as_current_span("decisions") as span:
            made = finish_many(together, begun)
            span.set_attribute("lcb.decisions", len(made))
            return made

    decisions.decide = traced_decide  # type: ignore[method-assign]
    decisions.finish_many = traced_finish_many  # type: ignore[method-assign]
    service._finish = traced_finish  # type: ignore[method-assign]
