"""The routes under /v1: decisions, rewards, items, users, models, trials."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lcb import messages
from lcb.serve.audit import trials
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
    """The handlers of the API; the name of a handler is its operation id in OpenAPI."""

    def __init__(self, service: Service, retraining: Retraining) -> None:
        self.service, self.retraining = service, retraining

    def routes(self) -> Iterable[Call]:
        yield Call(
            "POST",
            "/v1/decisions",
            self.decide,
            "writer",
            "Decide which arm to show to a user.",
            request=messages.DecisionRequest,
            response=messages.DecisionAnswer,
            links={
                "reward": {"decision_id": "$response.body#/decision_id"},
                "get_user": {"user": "$request.body#/user"},
                "delete_user": {"user": "$request.body#/user"},
            },
        )
        yield Call(
            "POST",
            "/v1/rewards",
            self.reward,
            "writer",
            "Report the reward of a decision.",
            request=messages.RewardRequest,
            response=messages.RewardAnswer,
            failures=(404, 409),
        )
        yield Call(
            "PUT",
            "/v1/items",
            self.put_items,
            "writer",
            "Add, change and remove items of the catalogue.",
            request=messages.ItemsRequest,
            response=messages.ItemsAnswer,
        )
        yield Call("GET", "/v1/items", self.get_items, "reader", "List the catalogue.", response=messages.ItemsList)
        yield Call(
            "GET",
            "/v1/users/{user:path}",
            self.get_user,
            "reader",
            "Get the recommender, counts and class probabilities of a user.",
            response=messages.UserAnswer,
            failures=(404,),
        )
        yield Call(
            "DELETE",
            "/v1/users/{user:path}",
            self.delete_user,
            "admin",
            "Erase all events of a user.",
            response=messages.EraseAnswer,
            failures=(404,),
        )
        yield Call(
            "GET",
            "/v1/models",
            self.get_models,
            "reader",
            "List the model versions, and the progress of learning.",
            response=messages.ModelsAnswer,
        )
        yield Call(
            "POST",
            "/v1/models/retrain",
            self.retrain,
            "admin",
            "Learn a new model version from the log, in the background.",
            response=messages.RetrainingAnswer,
            failures=(409,),
            status=202,
        )
        yield Call(
            "POST",
            "/v1/models/{version}/activate",
            self.activate,
            "admin",
            "Serve this model version to new users.",
            request=messages.ActivateRequest,
            response=messages.ActivateAnswer,
            failures=(404, 409),
            body_optional=True,
        )
        yield Call(
            "GET", "/v1/trials", self.get_trials, "reader", "Compare all recommenders.", response=messages.TrialAnswer
        )
        yield Call(
            "GET",
            "/v1/trials/{recommender:path}",
            self.get_trial,
            "reader",
            "Compare one recommender with the others.",
            response=messages.TrialAnswer,
            failures=(404,),
        )

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
        name, world = _read_user(ask), self.service.world
        user = await self.service.user(name)
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
        return json_reply(messages.EraseAnswer(await self.service.erase(_read_user(ask))))

    async def get_models(self, ask: Ask) -> Reply:
        return json_reply(versions.list_versions(self.service.world, self.retraining))

    async def retrain(self, ask: Ask) -> Reply:
        await self.retraining.ask()
        return json_reply(self.retraining.answer(), 202)

    async def activate(self, ask: Ask) -> Reply:
        request = decode(_ACTIVATE, ask.body) if ask.body else messages.ActivateRequest()
        version = ask.path["version"]
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            raise Problem(404, f"no model version {version[:100]!r}; versions are numbers", field="version")
        await self.service.activate(int(version), request.reason)
        return json_reply(messages.ActivateAnswer(self.service.world.state.active))

    async def get_trials(self, ask: Ask) -> Reply:
        return json_reply(trials.compare_all(self.service))

    async def get_trial(self, ask: Ask) -> Reply:
        return json_reply(trials.compare_one(self.service, ask.path["recommender"]))


def _read_user(ask: Ask) -> str:
    name: str = ask.path["user"]
    check_user(name)
    return name
