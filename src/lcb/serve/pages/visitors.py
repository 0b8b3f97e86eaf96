"""The routes of the visitors' page and the study: twenty headlines, one at a time, each chosen from about 170.

A visitor is a user named `reader-...` or `study-...`, identified by a random cookie.  All that a page shows is read
from the log, so a reload or a restart of the server continues where the visitor was.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from lcb import messages
from lcb.arrays import Floats
from lcb.bandits.linear.lints import LinTS
from lcb.bandits.linear.linucb import LinUCB
from lcb.serve import events
from lcb.serve.audit.story import SCORED, StoryStep, read_story
from lcb.serve.chance import draw_number
from lcb.serve.config.settings import READER
from lcb.serve.errors import Problem
from lcb.serve.pages import words
from lcb.serve.pages.cookies import name_cookie, name_of, new_visitor_cookie, read_cookies, set_cookie
from lcb.serve.pages.open_visits import OpenVisits
from lcb.serve.service import Service
from lcb.serve.state.users import User
from lcb.serve.strict_json import decode
from lcb.serve.web.endpoint import Ask, Reply, counted_address, json_reply
from lcb.serve.web.limits.rate_limits import RateLimits
from lcb.storage.store.base import Row

N_STEPS, N_OFFERED = 20, 170
_YEAR = 365 * 24 * 3600
ROLES = ("reader", "study")


class VisitRequest(Struct, forbid_unknown_fields=True):
    study: bool = False
    again: bool = False


class AnswerRequest(Struct, forbid_unknown_fields=True):
    decision_id: messages.DecisionId
    opened: bool


_VISIT = msgspec.json.Decoder(VisitRequest)
_ANSWER = msgspec.json.Decoder(AnswerRequest)


class Visitors:
    """The handlers and texts for visitors."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._words: dict[int, list[list[str]]] = {}
        limits = service.settings.limits
        self.rates = RateLimits(limits.visitor_rate, "limits.visitor_rate")
        self.open_visits = OpenVisits(limits.open_visits)

    # Routes

    async def get_progress(self, ask: Ask) -> Reply:
        """The progress of the study's visitor that the cookie names, if any; creates no visitor."""
        name = self.read_visitor(ask, "study")
        n_ways = sum(share > 0 for share in self.service.settings.share.values())
        if name is None or not await self.read_rows(name):
            return json_reply({"visitor": None, "n_ways": n_ways})
        return json_reply({**await self.build_view(name), "n_ways": n_ways})

    async def visit(self, ask: Ask) -> Reply:
        """Begin a visit, or continue the one that the cookie names."""
        request, address = decode(_VISIT, ask.body), counted_address(ask.scope)
        self.rates.take(address)
        role = ROLES[request.study]
        name = None if request.again else self.read_visitor(ask, role)
        if name is not None and await self.has_events(name):  # else the service did not issue this cookie
            return json_reply(await self.build_view(name, address))
        cookie = new_visitor_cookie(self.service.now())
        name = name_of(role, cookie)
        assert name is not None
        reply = json_reply(await self.build_view(name, address))
        reply.headers.append(set_cookie(_name_visitor(ask, role), cookie, max_age=_YEAR, secure=ask.by_tls))
        return reply

    async def answer(self, ask: Ask) -> Reply:
        """Open or pass the headline that is offered."""
        request = decode(_ANSWER, ask.body)
        self.rates.take(counted_address(ask.scope))
        name = request.decision_id.rpartition(".")[0]
        if name not in {self.read_visitor(ask, role) for role in ROLES} - {None}:
            raise Problem(404, "this headline was not offered to you; reload the page", field="decision_id")
        try:
            await self.service.reward(messages.RewardRequest(request.decision_id, float(request.opened)))
        except Problem as problem:
            if problem.status != 409:  # already answered, in another tab: continue from there
                raise
        return json_reply(await self.build_view(name))

    def read_visitor(self, ask: Ask, role: str) -> str | None:
        return name_of(role, read_cookies(ask.header(b"cookie")).get(_name_visitor(ask, role)))

    # Steps

    async def build_view(self, name: str, address: str | None = None) -> dict[str, Any]:
        """Return what the page shows; decides on the next headline if no headline waits for an answer.

        A visit that begins counts against the budget of open visits if it comes from an `address`.
        """
        steps = await self._read_steps(name)
        left = self._list_unread(steps)
        if not steps and left and address is not None:
            self.open_visits.begin(name, address)
        if len(steps) < N_STEPS and left and all(step.reward is not None for step in steps):
            await self.offer_next(name, len(steps), left)
            steps = await self._read_steps(name)
        if not steps:
            raise Problem(409, "there is nothing to read yet; the operator must fill the catalogue (PUT /v1/items)")
        last = steps[-1]
        is_open = last.reward is None
        if not is_open:
            self.open_visits.end(name)
        past = [self._describe_past(step) for step in steps if step.reward is not None]
        blind = name.startswith("study-")
        if blind:
            past = [_hide_recommender(step) for step in past]
        offer = self._describe_offer(last) if is_open else None
        return {
            "visitor": name,
            "step": len(past),
            "n_steps": min(N_STEPS, len(steps) + len(self._list_unread(steps))),
            "done": not is_open,
            "offer": _hide_recommender(offer) if blind and offer else offer,
            "past": past,
            "beliefs": None if blind else await self._describe_beliefs(name, steps),
        }

    def _list_unread(self, steps: list[StoryStep]) -> list[str]:
        """List the items of the catalogue that were not shown yet."""
        shown = {step.taken.id for step in steps}
        return [id for id in self.service.world.state.catalogue.ids if id not in shown]

    async def offer_next(self, name: str, step: int, left: list[str]) -> None:
        """Decide on the next headline among `left`, the items that this visitor has not seen."""
        rng = np.random.default_rng(int(draw_number(self.service.world.state.seed, f"arms/{name}.{step}") * 2**53))
        chosen = np.sort(rng.permutation(len(left))[:N_OFFERED])
        await self.service.decide(
            messages.DecisionRequest(name, [messages.Arm(left[i]) for i in chosen], decision_id=f"{name}.{step}"),
            READER if name.startswith("reader-") else None,
        )

    async def _read_steps(self, name: str) -> list[StoryStep]:
        return read_story(self.service.world, await self.read_rows(name))

    async def has_events(self, name: str) -> bool:
        """Whether the log has this visitor: the cookie of a visitor is sent after the first headline is stored."""
        return bool(await self.read_rows(name))

    async def read_rows(self, name: str) -> list[Row]:
        """Return the events of a visitor; none if some are archived: that visit is over, and the next is a new one."""
        store, upto = self.service.store, self.service.world.seq
        if store.inline:
            rows = store.events_of(name, 0, upto)
        else:
            rows = await asyncio.to_thread(store.events_of, name, 0, upto)
        return [] if any(row.kind == "base" for row in rows) else rows

    # Texts

    def _get_item(self, id: str) -> messages.Item:
        return self.service.world.state.catalogue.items.get(id) or messages.Item(id, title=id)

    def _describe_offer(self, step: StoryStep) -> dict[str, Any]:
        item = self._get_item(step.taken.id)
        return {
            "decision_id": step.decision_id,
            "id": item.id,
            "title": item.title or item.id,
            "summary": item.summary or "",
            "categories": item.categories or [],
            "propensity": step.taken.propensity,
            "n_arms": step.body.n_arms,
        }

    def _describe_past(self, step: StoryStep) -> dict[str, Any]:
        posterior = None if step.posterior is None else step.posterior.tolist()
        return self._describe_offer(step) | {"opened": bool(step.reward), "posterior": posterior}

    async def _describe_beliefs(self, name: str, steps: list[StoryStep]) -> dict[str, Any]:
        world = self.service.world
        user = await self.service.get_user(name)
        if user is None:
            raise Problem(409, "this visitor was erased while the page was read; reload the page")
        last = steps[-1]
        posterior = world.fold.posterior(user)
        if posterior is None:
            return self._describe_shared(user, last)
        models, likes = world.state.versions[user.model].models(), self.describe_classes(user.model)
        why = ""
        if last.reward is None:
            draw, n_answers = (last.taken.propensity, last.body.n_arms), len(steps) - 1
            if isinstance(world.state.bandit(user.recommender, user.model)[0], SCORED):
                why = words.explain_score(posterior, likes, last.reason, *draw, n_answers=n_answers, parts=last.parts)
            else:
                backed = words.find_backers(posterior, models.beta, self._rebuild_context(last.body), last.taken.arm)
                why = words.explain_choice(posterior, likes, *draw, n_answers=n_answers, backed=backed)
        start = models.pi.tolist()
        classes = [{"share": share, "likes": like} for share, like in zip(start, likes, strict=True)]
        shown = {"recommender": user.recommender, "posterior": posterior.tolist(), "start": start}
        return shown | {"classes": classes, "why": why}

    def _describe_shared(self, user: User, last: StoryStep) -> dict[str, Any]:
        world = self.service.world
        bandit, shared = world.state.bandit(user.recommender, user.model)
        weights: list[tuple[str, float]] = []
        on_top = True
        if isinstance(bandit, LinUCB | LinTS):
            state = user.state if shared is None else world.shared.get(shared, bandit)
            assert state is not None
            theta = bandit.theta(state)
            rewards, names = self._sum_by_category(theta[None])
            weights = words.list_category_rewards(rewards[0], names)
            scores = self._rebuild_context(last.body) @ theta
            on_top = bool(scores[last.taken.arm] >= scores.max() - 1e-12)
        categories = self._get_item(last.taken.id).categories or ()
        propensity, n_arms = last.taken.propensity, last.body.n_arms
        why = words.explain_shared(weights, categories, propensity, n_arms, on_top=on_top)
        unknown: dict[str, Any] = {"posterior": None, "start": None, "classes": []}
        why = why if last.reward is None else ""
        return unknown | {"recommender": user.recommender, "weights": weights, "why": why}

    def _sum_by_category(self, beta: Floats) -> tuple[Floats, tuple[str, ...]]:
        """Return the expected rewards of categories (n, C) under weights of features (n, d), and their names."""
        features = self.service.world.state.feature_map
        if features is not None:
            return beta @ features.arms.T, features.categories
        service = self.service.world.state.settings
        kept = service.features if service is not None else None
        return beta, tuple(kept or (f"feature {i + 1}" for i in range(beta.shape[1])))

    def describe_classes(self, version: int) -> list[list[str]]:
        """Return the words for what each class of a model version likes."""
        found = self._words.get(version)
        if found is None:
            beta, names = self._sum_by_category(self.service.world.state.versions[version].models().beta)
            found = self._words[version] = words.describe_classes(beta, names)
        return found

    def _rebuild_context(self, body: events.DecisionBody) -> Floats:
        """Return the features of the offered items; an item no longer in the catalogue gets those of the chosen one."""
        catalogue = self.service.world.state.catalogue
        ids = [id if id in catalogue.items else body.taken[0].id for id in body.arms or catalogue.ids]
        try:
            return catalogue.x(ids)
        except KeyError:
            return np.tile(events.floats(body.taken[0].x), (body.n_arms, 1))


def _name_visitor(ask: Ask, role: str) -> str:
    return name_cookie(f"lcb_{role}", ask.header(b"host"))


def _hide_recommender(shown: dict[str, Any]) -> dict[str, Any]:
    """Remove fields that would reveal the recommender to a visitor of the study."""
    return {name: value for name, value in shown.items() if name not in ("propensity", "posterior")}
