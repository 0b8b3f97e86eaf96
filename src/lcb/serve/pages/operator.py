"""The routes of the dashboard and of a user's story: sign in, event stream, charts, retrain, activate, verify.

An operator's key is exchanged for the cookie of a session (`sessions`).  Requests may also carry the key itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb.serve.audit.story import StoryStep, read_story
from lcb.serve.audit.verify import verify
from lcb.serve.errors import Problem
from lcb.serve.events import Actor
from lcb.serve.pages.bundle import load_bundle
from lcb.serve.pages.cookies import read_cookies, set_cookie
from lcb.serve.pages.live import Live
from lcb.serve.pages.sessions import DAY, Sessions
from lcb.serve.pages.specs import live_specs, posterior_spec
from lcb.serve.pages.visitors import Visitors
from lcb.serve.state.service_state import policy_name
from lcb.serve.strict_json import decode
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Ask, Reply, Scope, address_of, json_reply
from lcb.serve.web.keys import Keyring, check_scope, sha256
from lcb.storage.store.base import Key

_COOKIE = "lcb_session"
_EVERY = 1.0  # seconds between two events of the stream


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
        session = await self.sessions.begin(key, Actor(name, address_of(ask.scope)))
        return Reply(b"", 204, headers=[set_cookie(_COOKIE, session, max_age=DAY, secure=ask.by_tls)])

    async def logout(self, ask: Ask) -> Reply:
        """End the session."""
        key, session = self._find_key(ask.scope), _read_session(ask.scope)
        if session is not None:
            await self.sessions.end(session, Actor(None if key is None else key.name, address_of(ask.scope)))
        return Reply(b"", 204, headers=[set_cookie(_COOKIE, "", max_age=0, secure=ask.by_tls)])

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
        headers = [(b"etag", made.etag.encode()), (b"cache-control", b"max-age=86400"), (b"vary", b"accept-encoding")]
        if ask.header(b"if-none-match") == made.etag.encode():
            return Reply(b"", 304, b"text/javascript", headers)
        if b"gzip" in (ask.header(b"accept-encoding") or b""):
            return Reply(made.gzipped, 200, b"text/javascript", [*headers, (b"content-encoding", b"gzip")])
        return Reply(made.script, 200, b"text/javascript", headers)

    async def charts(self, ask: Ask) -> Reply:
        """Return the charts of the dashboard, without data."""
        if self._charts is None:
            self._charts = msgspec.json.encode({"charts": await asyncio.to_thread(live_specs)})
        return Reply(self._charts)

    async def events(self, ask: Ask) -> Reply:
        """Server-sent events: the state once a second; after the first, only the fields that changed."""
        headers = [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        return Reply(b"retry: 2000\n\n", 200, b"text/event-stream", headers, stream=self._stream(ask))

    async def _stream(self, ask: Ask) -> AsyncIterator[bytes]:
        sent: dict[str, bytes] = {}
        since = 0.0
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

    async def story(self, ask: Ask) -> Reply:
        """All decisions of one user, with rewards and class probabilities."""
        found = await self.app.heavy.run(self._read_story, ask.path["user"], self.service.world.seq)
        return json_reply(found)

    def _read_story(self, name: str, upto: int) -> dict[str, Any]:
        """Read the log and describe the decisions; called in a thread."""
        world = self.service.world
        rows = self.service.store.events_of(name, 0, upto)
        if not rows:
            raise Problem(404, f"no user {name[:200]!r}; check the id", field="user")
        steps = read_story(world, rows)
        model = steps[-1].model
        words = [", ".join(likes) for likes in self.visitors.describe_classes(model)] if model else []
        paths = [step.posterior for step in steps if step.posterior is not None]
        chart = None
        if paths:
            start = world.state.versions[model].models().pi
            chart = posterior_spec(np.array([start, *paths]), words)
        found = {"user": name, "recommender": steps[0].body.recommender, "model": model or None, "classes": words}
        return found | {"decisions": [self._describe_step(step) for step in steps], "chart": chart}

    def _describe_step(self, step: StoryStep) -> dict[str, Any]:
        world, body = self.service.world, step.body
        item = world.state.catalogue.items.get(step.taken.id)
        spec = world.state.recommenders[body.recommender]
        return {
            "decision_id": step.reward_id,
            "seq": step.seq,
            "at": step.at,
            "arms": body.arms or [step.taken.id],
            "arm": step.taken.id,
            "arm_title": item.title if item is not None else None,
            "propensity": step.taken.propensity if body.own else None,
            "policy": policy_name(spec, step.model),
            "model": step.model or None,
            "reason": step.reason,
            "reward": step.reward,
            "posterior": None if step.posterior is None else step.posterior.tolist(),
        }

    async def verify(self, ask: Ask) -> Reply:
        """Recompute one user's decisions from the log."""
        heavy = self.app.heavy
        found = await heavy.run(verify, self.service.store, heavy.check_wanted, user=ask.path["user"])
        counts = {"checked": found.n_decisions, "equal": found.n_decisions - found.n_differences}
        return json_reply(counts | {"erased": found.n_erased, "differences": list(map(str, found.differences))})

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


def _read_session(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"cookie"), None)
    return read_cookies(header).get(_COOKIE)
