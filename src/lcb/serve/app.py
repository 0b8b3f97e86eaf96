"""The routes of /v1, and what is behind each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lcb.serve import messages
from lcb.serve.http import Ask, Endpoint, Handler, Receive, Reply, Scope, Send, json_reply, problem_reply
from lcb.serve.keys import Keyring
from lcb.serve.metrics import Metrics
from lcb.serve.pages.routes import Pages
from lcb.serve.problems import Problem, decode
from lcb.serve.rates import Rates
from lcb.serve.service import Service

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)


class App:
    """An ASGI application around a service."""

    def __init__(self, service: Service, keyring: Keyring, metrics: Metrics | None = None) -> None:
        self.service, self.keyring = service, keyring
        self.metrics = metrics or Metrics(service)
        self.max_body = service.settings.limits.max_body
        self.rates = Rates(service.settings.limits.rate)
        self.ready_hooks: list[Callable[[], None]] = []
        self.log = structlog.get_logger("lcb.serve")
        self.pages = Pages(service) if service.settings.pages else None
        routes = [
            Route(path, Endpoint(self, f"{method} {path}", handler, needed), methods=[method])
            for method, path, handler, needed in (*self.routes(), *(self.pages.routes() if self.pages else ()))
        ]
        self._exact = {
            (method, route.path): route.endpoint
            for route in routes for method in route.methods or () if "{" not in route.path
        }  # fmt: skip
        self._router = Starlette(routes=routes, exception_handlers={HTTPException: _told})

    def routes(self) -> Iterable[tuple[str, str, Handler, str]]:
        """Method, path, function, the scope a key needs."""
        return [
            ("POST", "/v1/decisions", self.decide, "writer"),
            ("POST", "/v1/rewards", self.reward, "writer"),
            ("PUT", "/v1/items", self.put_items, "writer"),
            ("GET", "/v1/items", self.get_items, "reader"),
            ("GET", "/v1/users/{user:path}", self.get_user, "reader"),
            ("DELETE", "/v1/users/{user:path}", self.delete_user, "admin"),
            ("GET", "/healthz", self.health, ""),
            ("GET", "/readyz", self.ready, ""),
            ("GET", "/metrics", self.measurements, "reader"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        endpoint = self._exact.get((scope["method"], scope["path"]))
        await (self._router if endpoint is None else endpoint)(scope, receive, send)

    # Around every endpoint

    def admit(self, scope: Scope, needed: str) -> None:
        authorization = None
        if needed and not self.keyring.open:
            authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        who = self.keyring.check(authorization, needed)
        self.rates.take(who or (scope.get("client") or ("",))[0])

    def observe(self, route: str, status: int, seconds: float) -> None:
        self.metrics.observe(route, status, seconds)

    def unforeseen(self, route: str, error: Exception) -> None:
        self.metrics.n_unforeseen += 1
        self.log.error("unforeseen", route=route, error=f"{type(error).__name__}: {error}", exc_info=error)

    # Routes

    async def decide(self, ask: Ask) -> Reply:
        return Reply(await self.service.decide(decode(_DECISION, ask.body)))

    async def reward(self, ask: Ask) -> Reply:
        return Reply(await self.service.reward(decode(_REWARD, ask.body)))

    async def put_items(self, ask: Ask) -> Reply:
        return Reply(await self.service.items(decode(_ITEMS, ask.body)))

    async def get_items(self, ask: Ask) -> Reply:
        items = list(self.service.world.catalogue.items.values())
        return json_reply(messages.ItemsList(items, len(items)))

    async def get_user(self, ask: Ask) -> Reply:
        name, world = ask.path["user"], self.service.world
        user = await self.service.user(name)
        if user is None:
            raise Problem(404, f"no user {name!r}; check the id", field="user")
        spec, posterior = world.recommenders[user.recommender], world.posterior(user)
        return json_reply(
            messages.UserAnswer(
                name, user.recommender, user.model,
                "linucb" if spec.over_classes and user.model == 0 else spec.bandit, user.n_decisions, user.n_rewards,
                user.reward_sum, None if posterior is None else posterior.tolist(), user.seq,
            )
        )  # fmt: skip

    async def delete_user(self, ask: Ask) -> Reply:
        return json_reply(messages.EraseAnswer(await self.service.erase(ask.path["user"])))

    async def health(self, ask: Ask) -> Reply:
        return json_reply(messages.Health("ok"))

    async def ready(self, ask: Ask) -> Reply:
        journal = self.service.journal
        trouble = journal.broken or journal.trouble
        return json_reply(
            messages.Health("ok" if trouble is None else "trouble", trouble or ""), 503 if trouble else 200
        )

    async def measurements(self, ask: Ask) -> Reply:
        return Reply(self.metrics.exposition(), type=b"text/plain; version=0.0.4; charset=utf-8")


async def _told(request: Request, error: Exception) -> Response:
    """Routes that do not exist, in the same form as everything else."""
    assert isinstance(error, HTTPException)
    words = {404: f"no such route: {request.url.path[:200]}; /openapi.json lists them", 405: "not by this method"}
    reply = problem_reply(Problem(error.status_code, words.get(error.status_code, str(error.detail))))
    return Response(reply.body, reply.status, {**(error.headers or {})}, reply.type.decode())
