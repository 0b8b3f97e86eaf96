"""The routes of /v1, and what is behind each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol
from urllib.parse import unquote_to_bytes

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcb import messages
from lcb.serve.audit import trials
from lcb.serve.decide.validation import check_user
from lcb.serve.errors import Problem
from lcb.serve.learn import versions
from lcb.serve.learn.supervisor import Retraining
from lcb.serve.observe.metrics import Metrics
from lcb.serve.observe.redaction import redact
from lcb.serve.service import Service
from lcb.serve.state.service_state import policy_name
from lcb.serve.strict_json import decode
from lcb.serve.web.endpoint import (
    Ask,
    Call,
    Endpoint,
    Receive,
    Reply,
    Scope,
    Send,
    json_reply,
    problem_reply,
    refuse_other_sites,
    respond,
)
from lcb.serve.web.gauges import read_gauges
from lcb.serve.web.keys import Keyring
from lcb.serve.web.openapi import PROBES, document
from lcb.serve.web.rate_limits import Rates

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ACTIVATE = msgspec.json.Decoder(messages.ActivateRequest)
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)


class Extension(Protocol):
    """Routes beside the API, such as the web pages; started and stopped with the application."""

    def routes(self) -> Iterable[Call]: ...

    def start(self) -> None:
        """Called inside the event loop, after the service has started."""

    async def stop(self) -> None: ...

    def check_session(self, scope: Scope, needed: str) -> str | None:
        """Return the name of the key behind the request's session cookie; None without a valid session.

        Raises Problem 403 if that key lacks the scope `needed`.
        """


class App:
    """The ASGI application: the routes of the API and, if `pages` is given, those that `pages(app)` adds."""

    def __init__(self, service: Service, keyring: Keyring, pages: Callable[[App], Extension] | None = None) -> None:
        self.service, self.keyring = service, keyring
        self.metrics = Metrics(partial(read_gauges, service))
        self.retraining = Retraining(service, self.metrics)
        self.max_body = service.settings.limits.max_body
        self.rates = Rates(service.settings.limits.rate)
        self.draining = False  # asked to end: answers go on, /readyz says 503
        self.log = structlog.get_logger("lcb.serve")
        self.debug = service.settings.log_level == "debug"
        self.pages = None if pages is None else pages(self)
        calls = self.calls = [*self.routes(), *(self.pages.routes() if self.pages is not None else ())]
        self._openapi = {open: msgspec.json.encode(document(calls, open=open)) for open in (False, True)}
        routes = [
            Route(call.path, Endpoint(self, f"{call.method} {call.path}", call.handler, call.needed),
                  methods=[call.method])
            for call in calls
        ]  # fmt: skip
        self._exact = {
            (method, route.path): route.endpoint
            for route in routes for method in route.methods or () if "{" not in route.path
        }  # fmt: skip
        self._router = Starlette(routes=routes, exception_handlers={HTTPException: self.told})
        self._router.router.redirect_slashes = False

    def start(self) -> None:
        """From inside the event loop."""
        self.service.start()
        for number, version in self.service.world.state.versions.items():
            if not version.readable:
                self.log.error("a model version cannot be read", version=number, error=version.damaged)
        self.retraining.start()
        if self.pages is not None:
            self.pages.start()

    async def stop(self) -> None:
        """What runs in the background ends, what waits is written."""
        await self.retraining.stop()
        if self.pages is not None:
            await self.pages.stop()
        await self.service.stop()

    def routes(self) -> Iterable[Call]:
        """The whole table."""
        m = messages
        return [
            Call("POST", "/v1/decisions", self.decide, "writer", "Decide which arm a user is shown.",
                 m.DecisionRequest, m.DecisionAnswer, then={
                     "reward": {"decision_id": "$response.body#/decision_id"},
                     "get_user": {"user": "$request.body#/user"},
                     "delete_user": {"user": "$request.body#/user"}}),
            Call("POST", "/v1/rewards", self.reward, "writer", "Say what came of a decision.",
                 m.RewardRequest, m.RewardAnswer, (404, 409)),
            Call("PUT", "/v1/items", self.put_items, "writer", "Add, change and remove items of the catalogue.",
                 m.ItemsRequest, m.ItemsAnswer),
            Call("GET", "/v1/items", self.get_items, "reader", "The catalogue.", None, m.ItemsList),
            Call("GET", "/v1/users/{user:path}", self.get_user, "reader", "What is known of a user.",
                 None, m.UserAnswer, (404,)),
            Call("DELETE", "/v1/users/{user:path}", self.delete_user, "admin", "Erase a person.",
                 None, m.EraseAnswer, (404,)),
            Call("GET", "/v1/models", self.get_models, "reader", "The model versions, and how training goes.",
                 None, m.ModelsAnswer),
            Call("POST", "/v1/models/retrain", self.retrain, "admin", "Learn from the whole log, in the background.",
                 None, m.RetrainingAnswer, (409,), good=202),
            Call("POST", "/v1/models/{version}/activate", self.activate, "admin", "Give newcomers this version.",
                 m.ActivateRequest, m.ActivateAnswer, (404, 409), bare=True),
            Call("GET", "/v1/trials", self.get_trials, "reader", "The recommenders side by side.", None, m.TrialAnswer),
            Call("GET", "/v1/trials/{recommender:path}", self.get_trial, "reader", "One of them.",
                 None, m.TrialAnswer, (404,)),
            Call("GET", "/healthz", self.health, "", "Whether the process answers.", None, m.Health),
            Call("GET", "/readyz", self.ready, "", "Whether requests will be answered; 503 with the reason if not.",
                 None, m.Health),
            Call("GET", "/metrics", self.measurements, "reader", "Measurements for Prometheus.",
                 None, "text/plain; version=0.0.4"),
            Call("GET", "/openapi.json", self.openapi, "", "This page.", None, "application/json"),
        ]  # fmt: skip

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._router(scope, receive, send)
        endpoint = self._exact.get((scope["method"], scope["path"]))
        if endpoint is not None:
            return endpoint(scope, receive, send)
        if not _readable(scope):
            words = "the path has bytes that are not UTF-8; encode it as UTF-8, then by percent signs"
            return respond(send, problem_reply(Problem(400, words, field="path")))
        if "\n" in scope["path"]:  # a last one would pass the end of a route's pattern
            return respond(send, problem_reply(_no_route(scope["path"])))
        return self._router(scope, receive, send)

    # Around every endpoint

    def admit(self, scope: Scope, needed: str) -> None:
        who = None
        if needed and not self.keyring.open:
            authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
            if authorization is None and self.pages is not None:
                who = self.pages.check_session(scope, needed)
            who = who or self.keyring.check(authorization, needed)
        elif needed:
            refuse_other_sites(scope)
        if scope["path"] not in PROBES:
            self.rates.take(who or (scope.get("client") or ("",))[0])

    def observe(self, route: str, status: int, seconds: float, request: str | None = None) -> None:
        self.metrics.observe(route, status, seconds)
        if self.debug:
            self.log.debug("answered", route=route, status=status, ms=round(seconds * 1000, 3), request=request)

    def unforeseen(self, route: str, error: Exception, request: str) -> None:
        self.metrics.n_unforeseen += 1
        words = f"{type(error).__name__}: {error}"
        self.log.error("unforeseen", route=route, request=request, error=words, exc_info=error)

    # Routes

    async def decide(self, ask: Ask) -> Reply:
        return Reply(await self.service.decide(decode(_DECISION, ask.body)))

    async def reward(self, ask: Ask) -> Reply:
        return Reply(await self.service.reward(decode(_REWARD, ask.body)))

    async def put_items(self, ask: Ask) -> Reply:
        return Reply(await self.service.items(decode(_ITEMS, ask.body)))

    async def get_items(self, ask: Ask) -> Reply:
        items = tuple(self.service.world.state.catalogue.items.values())
        return json_reply(messages.ItemsList(items, len(items)))

    async def get_user(self, ask: Ask) -> Reply:
        name, world = _user(ask), self.service.world
        user = await self.service.user(name)
        if user is None:
            raise Problem(404, f"no user {name!r}; check the id", field="user")
        spec, posterior = world.state.recommenders[user.recommender], world.fold.posterior(user)
        return json_reply(
            messages.UserAnswer(
                name, user.recommender, user.model,
                policy_name(spec, user.model), user.n_decisions, user.n_rewards,
                user.reward_sum, None if posterior is None else tuple(posterior.tolist()), user.seq,
            )
        )  # fmt: skip

    async def delete_user(self, ask: Ask) -> Reply:
        return json_reply(messages.EraseAnswer(await self.service.erase(_user(ask))))

    async def get_models(self, ask: Ask) -> Reply:
        return json_reply(versions.list_versions(self.service.world, self.retraining))

    async def retrain(self, ask: Ask) -> Reply:
        await self.retraining.ask()
        return json_reply(self.retraining.answer(), 202)

    async def activate(self, ask: Ask) -> Reply:
        request = decode(_ACTIVATE, ask.body) if ask.body else messages.ActivateRequest()
        version = ask.path["version"]
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise Problem(404, f"no model version {version[:100]!r}; versions are whole numbers", field="version")
        await self.service.activate(int(version), request.reason)
        return json_reply(messages.ActivateAnswer(self.service.world.state.active))

    async def get_trials(self, ask: Ask) -> Reply:
        return json_reply(trials.compare_all(self.service))

    async def get_trial(self, ask: Ask) -> Reply:
        return json_reply(trials.compare_one(self.service, ask.path["recommender"]))

    async def health(self, ask: Ask) -> Reply:
        return json_reply(messages.Health("ok"))

    async def ready(self, ask: Ask) -> Reply:
        journal = self.service.journal
        trouble = journal.broken or journal.trouble
        if self.draining:
            return json_reply(messages.Health("draining", "asked to end; requests that come are still answered"), 503)
        if trouble is not None:
            return json_reply(
                messages.Health("trouble", redact(trouble).replace(self.service.store.url, "the store")), 503
            )
        return json_reply(messages.Health("ok"))

    async def openapi(self, ask: Ask) -> Reply:
        return Reply(self._openapi[self.keyring.open])

    async def measurements(self, ask: Ask) -> Reply:
        return Reply(self.metrics.exposition(), type=b"text/plain; version=0.0.4; charset=utf-8")

    async def told(self, request: Request, error: Exception) -> Response:
        """Routes that do not exist, in the same form as everything else."""
        assert isinstance(error, HTTPException)
        path, method = request.scope["path"], request.method[:20]
        problem, headers = _no_route(path), {}
        if error.status_code != 404:
            routes = [one for one in request.app.routes if isinstance(one, Route) and one.path_regex.match(path)]
            allowed = ", ".join(sorted({name for route in routes for name in route.methods or ()}))
            problem = Problem(error.status_code, f"{method!r} is not a method of {path[:200]!r}; it has {allowed}")
            headers = {"allow": allowed}
        reply = problem_reply(problem)
        self.observe("none", reply.status, 0.0)
        return Response(reply.body, reply.status, headers, reply.type.decode())


def _user(ask: Ask) -> str:
    name: str = ask.path["user"]
    check_user(name)
    return name


def _readable(scope: Scope) -> bool:
    """Whether the path is text: what is not would be read as somebody else's name."""
    try:
        unquote_to_bytes(scope.get("raw_path") or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _no_route(path: str) -> Problem:
    return Problem(404, f"no such route: {path[:200]!r}; /openapi.json lists them")
