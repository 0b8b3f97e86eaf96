"""The routes under /v1: decisions, rewards, items, users, models, trials."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lcb import messages
from lcb.serve.audit import trials
from lcb.serve.decide.large import LARGE_BODY, decode_large
from lcb.serve.decide.validation import check_user
from lcb.serve.errors import Problem
from lcb.serve.learn import versions
from lcb.serve.learn.supervisor import Retraining
from lcb.serve.service import Service
from lcb.serve.state.service_state import policy_name
from lcb.serve.strict_json import decode
from lcb.serve.web.endpoint import Ask, Call, Reply, json_reply

_DECISION = msgspec.json.Decoder(messages.DecisionRequest)
_REWARD = msgspec.json.Decoder(messages.RewardRequest)
_ACTIVATE = msgspec.json.Decoder(messages.ActivateRequest)
_ITEMS = msgspec.json.Decoder(messages.ItemsRequest)


class Api:
    """The handlers of the API; in OpenAPI a handler's name is the operation id and its docstring the summary."""

    def __init__(self, service: Service, retraining: Retraining) -> None:
        self.service, self.retraining = service, retraining

    def routes(self) -> Iterable[Call]:
        m = messages
        follow_up = {
            "reward": {"decision_id": "$response.body#/decision_id"},
            "get_user": {"user": "$request.body#/user"},
            "delete_user": {"user": "$request.body#/user"},
        }
        user, trial, version = "/v1/users/{user:path}", "/v1/trials/{recommender:path}", "/v1/models/{version}/activate"
        activate = Call("POST", version, self.activate, "admin", m.ActivateRequest, m.ActivateAnswer, (404, 409))
        return [
            Call("POST", "/v1/decisions", self.decide, "writer", m.DecisionRequest, m.DecisionAnswer, links=follow_up),
            Call("POST", "/v1/rewards", self.reward, "writer", m.RewardRequest, m.RewardAnswer, (404, 409)),
            Call("PUT", "/v1/items", self.put_items, "writer", m.ItemsRequest, m.ItemsAnswer),
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
        if len(ask.body) > LARGE_BODY:
            request = await self.service.large.run(decode_large, ask.body)
        else:
            request = decode(_DECISION, ask.body)
        return Reply(await self.service.decide(request))

    async def reward(self, ask: Ask) -> Reply:
        """Report the reward of a decision."""
        return Reply(await self.service.reward(decode(_REWARD, ask.body)))

    async def put_items(self, ask: Ask) -> Reply:
        """Add, change and remove items of the catalogue."""
        return Reply(await self.service.put_items(decode(_ITEMS, ask.body)))

    async def get_items(self, ask: Ask) -> Reply:
        """List the catalogue."""
        items = tuple(self.service.world.state.catalogue.items.values())
        return json_reply(messages.ItemsList(items, len(items)))

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
        return json_reply(messages.EraseAnswer(await self.service.erase(_read_user(ask), ask.actor)))

    async def get_models(self, ask: Ask) -> Reply:
        """List the model versions, and the progress of learning."""
        return json_reply(versions.list_versions(self.service.world, self.retraining))

    async def retrain(self, ask: Ask) -> Reply:
        """Learn a new model version from the log, in the background."""
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


def _read_user(ask: Ask) -> str:
    name: str = ask.path["user"]
    check_user(name)
    return name
