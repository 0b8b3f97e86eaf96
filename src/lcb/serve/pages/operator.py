"""The routes of the dashboard and of a user's story: sign in, event stream, charts, retrain, activate, verify.

An operator's key is exchanged for the cookie of a session (`sessions`).  Requests may also carry the key itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.runtime.memory import give_back_memory
from lcb.serve.audit.report import Report
from lcb.serve.audit.story import StoryStep, read_story
from lcb.serve.audit.verify import verify
from lcb.serve.errors import Problem
from lcb.serve.events import Actor
from lcb.serve.pages.bundle import load_bundle
from lcb.serve.pages.cookies import name_cookie, read_cookies, set_cookie
from lcb.serve.pages.live import Live
from lcb.serve.pages.sessions import DAY, Sessions
from lcb.serve.pages.specs import live_specs, posterior_spec
from lcb.serve.pages.visitors import Visitors
from lcb.serve.pages.words import describe_rules
from lcb.serve.state.mixtures import View
from lcb.serve.state.service_state import policy_name
from lcb.serve.strict_json import decode
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Ask, Reply, Scope, address_of, counted_address, find_header, json_reply
from lcb.serve.web.keys import Keyring, check_scope, sha256
from lcb.serve.web.openapi import SESSION_COOKIE
from lcb.storage.store.base import Key

_EVERY = 1.0  # seconds between two events of the stream
_MOST_ARMS = 200  # of one decision that a story names


class LoginRequest(Struct, forbid_unknown_fields=True):
    key: str


class ActivateVersion(Struct, forbid_unknown_fields=True):
    version: int


_LOGIN = msgspec.json.Decoder(LoginRequest)
_ACTIVATE = msgspec.json.Decoder(ActivateVersion)


class Operator:
    """The handlers behind /dashboard and /users/{id}."""

    def __init__(self, app: App, visitors: Visitors) -> None:
        self.app, self.service, self.visitors = app, app.service, visitors
        self.live = Live(app, visitors)
        self.sessions = Sessions(app.service, app.keyring)
        self._charts: bytes | None = None
        self._streams: Counter[str] = Counter()  # open event streams by name of the key, or by address

    @property
    def keyring(self) -> Keyring:
        return self.app.keyring

    # Sessions

    async def session(self, ask: Ask) -> Reply:
        """Say whether the caller is signed in, and with which scope."""
        key = self._find_key(ask.scope)
        role = "admin" if self.keyring.open else "reader" if key is None or key.scope == "reader" else key.scope
        needs = not self.keyring.open and key is None
        return json_reply({"needs_key": needs, "role": role, "signed_in": key is not None})

    async def login(self, ask: Ask) -> Reply:
        """Exchange a key for the cookie of a session."""
        secret = decode(_LOGIN, ask.body).key
        name = self.keyring.check(f"Bearer {secret}".encode("latin-1", "replace"), "reader")
        if name is None:
            return Reply(b"", 204)
        key = self.keyring.find(sha256(secret.strip()))
        assert key is not None
        before = _read_session(ask.scope)
        session = await self.sessions.begin(key, Actor(name, address_of(ask.scope)), before)
        return Reply(b"", 204, headers=[set_cookie(_name_session(ask.scope), session, max_age=DAY, secure=ask.by_tls)])

    async def logout(self, ask: Ask) -> Reply:
        """End the session."""
        key, session = self._find_key(ask.scope), _read_session(ask.scope)
        if session is not None:
            await self.sessions.end(session, Actor(None if key is None else key.name, address_of(ask.scope)))
        return Reply(b"", 204, headers=[set_cookie(_name_session(ask.scope), "", max_age=0, secure=ask.by_tls)])

    def check_session(self, scope: Scope, needed: str) -> str | None:
        """Return the name of the key that the session was started with; None without a valid session."""
        key = self._find_key(scope)
        return None if key is None else check_scope(key, needed)

    def _find_key(self, scope: Scope) -> Key | None:
        return self.sessions.find(_read_session(scope))

    def is_allowed(self, ask: Ask, needed: str) -> bool:
        """Whether the request has a key or a session of this scope."""
        try:
            if self.check_session(ask.scope, needed) is None:
                self.keyring.check(ask.header(b"authorization"), needed)
        except Problem:
            return False
        return True

    # Reading

    async def vega(self, ask: Ask) -> Reply:
        """The JavaScript module that draws the charts."""
        made = await asyncio.to_thread(load_bundle)
        headers = [(b"etag", made.etag.encode()), (b"vary", b"accept-encoding")]
        reply = Reply(made.script, 200, b"text/javascript", headers, cache=b"max-age=86400")
        if ask.header(b"if-none-match") == made.etag.encode():
            reply.body, reply.status = b"", 304
        elif b"gzip" in (ask.header(b"accept-encoding") or b""):
            reply.body = made.gzipped
            headers.append((b"content-encoding", b"gzip"))
        return reply

    async def charts(self, ask: Ask) -> Reply:
        """Return the charts of the dashboard, without data."""
        if self._charts is None:
            self._charts = msgspec.json.encode({"charts": await asyncio.to_thread(live_specs)})
        return Reply(self._charts)

    async def events(self, ask: Ask) -> Reply:
        """Server-sent events: the state once a second; after the first, only the fields that changed."""
        who, most = _identify(ask), self.service.settings.limits.streams
        self._streams = +self._streams  # forget who has none
        if self._streams[who] >= most:
            words = f"{who} has {most} event streams open; close a dashboard, or raise limits.streams"
            raise Problem(429, words, retry_after=10)
        headers = [(b"x-accel-buffering", b"no")]
        return Reply(b"retry: 2000\n\n", 200, b"text/event-stream", headers, stream=self._stream(ask))

    async def _stream(self, ask: Ask) -> AsyncGenerator[bytes]:
        sent: dict[str, bytes] = {}
        since, who = 0.0, _identify(ask)
        self._streams[who] += 1
        try:
            while not self.app.draining:
                await self.live.measure()
                state, now = self.live.read_state(since), self.live.clock()
                fields = []
                for name, value in state.items():
                    text = msgspec.json.encode(value)
                    if name == "seq" or (sent.get(name) != text and (value or name not in ("rates", "ctr"))):
                        fields.append(f'"{name}":'.encode() + text)
                        sent[name] = text
                yield b"event: state\ndata: {" + b",".join(fields) + b"}\n\n"
                since = float(int(now))
                await asyncio.sleep(_EVERY)
                if not self.is_allowed(ask, "reader"):  # the key has been revoked
                    return
        finally:
            self._streams[who] -= 1

    async def story(self, ask: Ask) -> Reply:
        """All decisions of one user, with rewards and class probabilities."""
        mixtures = self.service.world.mixtures
        views = {name: view for name in mixtures.mixtures if (view := mixtures.view(name)) is not None}
        found = await self.app.heavy.run(self._read_story, ask.path["user"], self.service.world.seq, views)
        return json_reply(found)

    def _read_story(self, name: str, upto: int, views: dict[str, View]) -> dict[str, Any]:
        """Read the log and describe the decisions; called in a thread, with the mixtures as they are now."""
        world = self.service.world
        steps = read_story(world, self.service.store.stream_of(name, 0, upto), views)
        if not steps:
            raise _archived(name) if self.service.store.newest_of(name) else _no_user(name)
        view = views.get(world.state.mixture_of(steps[0].body.recommender) or "")
        model = steps[-1].model
        words = [", ".join(likes) for likes in self.visitors.describe_classes(model)] if model else []
        paths = [step.posterior for step in steps if step.posterior is not None]
        chart = None
        if paths:
            if view is not None:
                words = [*(f"class {number + 1}" for number in view.numbers), "a new class"]
            start = world.state.versions[model].models().pi if view is None else view.bandit.models.pi
            chart = posterior_spec(np.array([start, *paths]), words, numbered=view is None)
        found = {"user": name, "recommender": steps[0].body.recommender, "model": model or None, "classes": words}
        return found | {"decisions": [self._describe_step(step) for step in steps], "chart": chart}

    def _describe_step(self, step: StoryStep) -> dict[str, Any]:
        world, body = self.service.world, step.body
        item = world.state.catalogue.items.get(step.taken.id)
        spec = world.state.recommenders[body.recommender]
        arms = (body.arms or [])[:_MOST_ARMS]
        return {
            "decision_id": step.reward_id,
            "seq": step.seq,
            "at": step.at,
            "arms": arms if step.taken.id in arms else [*arms, step.taken.id],
            "n_arms": body.n_arms,
            "rules": _describe_rules(step),
            "arm": step.taken.id,
            "arm_title": item.title if item is not None else None,
            "propensity": step.taken.propensity if body.own else None,
            "policy": policy_name(spec, step.model),
            "model": step.model or None,
            "reason": step.reason,
            "effect": step.taken.effect,
            "mean": step.taken.mean,
            "reward": step.reward,
            "posterior": None if step.posterior is None else step.posterior.tolist(),
        }

    async def verify(self, ask: Ask) -> Reply:
        """Recompute one user's decisions from the log."""
        found = await self.app.heavy.run(self._verify, ask.path["user"])
        counts = {"checked": found.n_decisions, "equal": found.n_decisions - found.n_differences}
        return json_reply(counts | {"erased": found.n_erased, "differences": list(map(str, found.differences))})

    def _verify(self, name: str) -> Report:
        """Recompute the decisions of a user; called in a thread."""
        if not self.service.store.newest_of(name):
            raise _no_user(name)
        try:
            return verify(self.service.store, self.app.heavy.check_wanted, user=name, log_alone=True)
        finally:
            give_back_memory()

    # Actions

    async def retrain(self, ask: Ask) -> Reply:
        """Learn a new model version from the log, in the background."""
        await self.app.retraining.ask(ask.actor)
        return json_reply({}, 202)

    async def activate(self, ask: Ask) -> Reply:
        """Serve a model version to new users."""
        version = decode(_ACTIVATE, ask.body).version
        await self.service.activate(version, "by the operator's page", ask.actor)
        return json_reply({"active": version})


def _identify(ask: Ask) -> str:
    """Return by whom event streams are counted: the name of the key, or the address where there are no keys."""
    return ask.who or counted_address(ask.scope)


def _describe_rules(step: StoryStep) -> str | None:
    rules = step.body.rules
    return None if rules is None or step.left is None else describe_rules(*step.left, rules.seen, rules.at_most)


def _no_user(name: str) -> Problem:
    return Problem(404, f"no user {name[:200]!r}; check the id", field="user")


def _archived(name: str) -> Problem:
    return Problem(404, f"all decisions of {name[:200]!r} are archived; see lcb log export --archive", field="user")


def _read_session(scope: Scope) -> str | None:
    header = find_header(scope, b"cookie")
    return None if header is None else read_cookies(header).get(_name_session(scope))


def _name_session(scope: Scope) -> str:
    return name_cookie(SESSION_COOKIE, find_header(scope, b"host"))
