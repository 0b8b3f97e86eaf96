"""The routes under /v1: decisions, rewards, items, users, models, trials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from lcb import messages
from lcb.serve.audit import trials
from lcb.serve.decide.large import LARGE_BODY, decode_decision, decode_items
from lcb.serve.decide.validation import check_user, refuse_answers_of_visitors, refuse_visitors
from lcb.serve.errors import Problem
from lcb.serve.learn import versions
from lcb.serve.learn.supervisor import Retraining
from lcb.serve.service import Service
from lcb.serve.state.service_state import policy_name
from lcb.serve.strict_json import decode
from lcb.serve.threads import Threads
from lcb.serve.web.batches import Batches
from lcb.serve.web.endpoint import Ask, Call, Reply, json_reply
from lcb.serve.web.limits.caller_turns import CallerTurns

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ACTIVATE = msgspec.json.Decoder(messages.ActivateRequest)
_NO_FIELDS = msgspec.json.Decoder(msgspec.defstruct("NoFields", [], forbid_unknown_fields=True))
_ENCODER = msgspec.json.Encoder()
_LARGE_LIST = 50_000  # features of all items; encoding less takes under 10 ms
_PER_ITEM = 25  # what an item takes besides its features, in features
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)


class Api:
    """The handlers of the API; in OpenAPI a handler's name is the operation id and its docstring the summary."""

    def __init__(
        self,
        service: Service,
        retraining: Retraining,
        count: Callable[[Ask, int], None],
        turns: CallerTurns | None = None,
    ) -> None:
        self.service, self.retraining = service, retraining
        self.batches = Batches(service, count, turns)
        self.lists = Threads("lists")  # of large catalogues
        self._listed: tuple[int, bytes] = -1, b""  # the last list of the catalogue, and the change that it shows
        self._listing: asyncio.Future[None] | None = None

    def routes(self) -> Iterable[Call]:
        m = messages
        follow_up = {
            "reward": {"decision_id": "$response.body#/decision_id"},
            "get_user": {"user": "$request.body#/user"},
            "delete_user": {"user": "$request.body#/user"},
        }
        user, trial, version = "/v1/users/{user:path}", "/v1/trials/{recommender:path}", "/v1/models/{version}/activate"
        decide = Call("POST", "/v1/decisions", self.decide, "writer", m.DecisionRequest, m.DecisionAnswer, (410,))
        put_items = Call("PUT", "/v1/items", self.put_items, "writer", m.ItemsRequest, m.ItemsAnswer)
        batch = Call("POST", "/v1/decisions:batch", self.batches.decide_batch, "writer", m.DecisionsRequest)
        reward_batch = Call("POST", "/v1/rewards:batch", self.batches.reward_batch, "writer", m.RewardsRequest)
        activate = Call("POST", version, self.activate, "admin", m.ActivateRequest, m.ActivateAnswer, (404, 409))
        return [
            decide._replace(links=follow_up, large_body=True),
            Call("POST", "/v1/rewards", self.reward, "writer", m.RewardRequest, m.RewardAnswer, (404, 409, 410)),
            batch._replace(response=m.DecisionsAnswer, large_body=True),
            reward_batch._replace(response=m.RewardsAnswer, large_body=True),
            put_items._replace(large_body=True),
            Call("GET", "/v1/items", self.get_items, "reader", None, m.ItemsList),
            Call("GET", user, self.get_user, "reader", None, m.UserAnswer, (404,)),
            Call("DELETE", user, self.delete_user, "admin", None, m.EraseAnswer, (404,)),
            Call("GET", "/v1/models", self.get_models, "reader", None, m.ModelsAnswer),
            Call("POST", "/v1/models/retrain", self.retrain, "admin", None, m.RetrainingAnswer, (409,), status=202),
            activate._replace(body_optional=True),
            Call("GET", "/v1/trials", self.get_trials, "reader", None, m.TrialAnswer),
            Call("GET", trial, self.get_trial, "reader", None, m.TrialAnswer, (404,)),
        ]

    async def decide(self, ask: Ask) -> Reply:
        """Decide which arm to show to a user."""
        large = len(ask.body) > LARGE_BODY
        request = await self.service.large.run(decode_decision, ask.body) if large else decode(_DECISION, ask.body)
        refuse_visitors(request)
        return Reply(await self.service.decide(request, large=large))

    async def reward(self, ask: Ask) -> Reply:
        """Report the reward of a decision."""
        request = decode(_REWARD, ask.body)
        refuse_answers_of_visitors(request)
        return Reply(await self.service.reward(request))

    async def put_items(self, ask: Ask) -> Reply:
        """Add, change and remove items of the catalogue."""
        if len(ask.body) <= LARGE_BODY:
            return Reply(await self.service.put_items(decode(_ITEMS, ask.body)))
        request = await self.service.large.run(decode_items, ask.body)
        return Reply(await self.service.put_items(request, large=True))

    async def get_items(self, ask: Ask) -> Reply:
        """List the catalogue."""
        catalogue = self.service.world.state.catalogue
        wanted = catalogue.n_changes
        while self._listed[0] < wanted:
            if len(catalogue) * (_PER_ITEM + (catalogue.n_features or 0)) <= _LARGE_LIST:
                self._listed = wanted, _encode_items(catalogue.list_items())
            else:
                self._listing = self._listing or asyncio.ensure_future(self._list_in_thread())
                await asyncio.shield(self._listing)
        return Reply(self._listed[1])

    async def _list_in_thread(self) -> None:
        """Encode a large catalogue, once for all requests that come meanwhile."""
        catalogue = self.service.world.state.catalogue
        try:
            n_changes, items = catalogue.n_changes, catalogue.list_items()
            self._listed = n_changes, await self.lists.run(_encode_items, items)
        finally:
            self._listing = None

    async def get_user(self, ask: Ask) -> Reply:
        """Get the recommender, counts and class probabilities of a user."""
        name, world = _read_user(ask), self.service.world
        user = await self.service.get_user(name)
        if user is None:
            raise Problem(404, f"no user {name!r}; check the id", field="user")
        spec, posterior = world.state.recommenders[user.recommender], world.fold.posterior(user)
        answer = messages.UserAnswer(
            user=name,
            recommender=user.recommender,
            model=user.model,
            policy=policy_name(spec, user.model),
            n_decisions=user.n_decisions,
            n_rewards=user.n_rewards,
            reward_sum=user.reward_sum,
            posterior=None if posterior is None else tuple(posterior.tolist()),
            seq=user.seq,
        )
        return json_reply(answer)

    async def delete_user(self, ask: Ask) -> Reply:
        """Erase all events of a user."""
        _refuse_fields(ask.body)
        return json_reply(messages.EraseAnswer(await self.service.erase(_read_user(ask), ask.actor)))

    async def get_models(self, ask: Ask) -> Reply:
        """List the model versions, and the progress of learning."""
        return json_reply(versions.list_versions(self.service.world, self.retraining))

    async def retrain(self, ask: Ask) -> Reply:
        """Learn a new model version from the log, in the background."""
        _refuse_fields(ask.body)
        await self.retraining.ask(ask.actor)
        return json_reply(self.retraining.answer(), 202)

    async def activate(self, ask: Ask) -> Reply:
        """Serve this model version to new users."""
        request = decode(_ACTIVATE, ask.body) if ask.body else messages.ActivateRequest()
        version = ask.path["version"]
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise Problem(404, f"no model version {version[:100]!r}; versions are numbers", field="version")
        await self.service.activate(int(version), request.reason, ask.actor)
        return json_reply(messages.ActivateAnswer(self.service.world.state.active))

    async def get_trials(self, ask: Ask) -> Reply:
        """Compare all recommenders."""
        return json_reply(trials.compare_all(self.service))

    async def get_trial(self, ask: Ask) -> Reply:
        """Compare one recommender with the others."""
        return json_reply(trials.compare_one(self.service, ask.path["recommender"]))


def _encode_items(items: Iterable[messages.Item]) -> bytes:
    """Encode a `messages.ItemsList` item by item, so that a thread that does it lets others run."""
    encoded = [_ENCODER.encode(item) for item in items]
    return b'{"items":[%b],"n_items":%d}' % (b",".join(encoded), len(encoded))


def _refuse_fields(body: bytes) -> None:
    """Refuse the body of a route that takes none, unless it is an empty object."""
    if body:
        decode(_NO_FIELDS, body)


def _read_user(ask: Ask) -> str:
    name: str = ask.path["user"]
    check_user(name)
    return name
