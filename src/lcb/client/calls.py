"""What can be asked of the service: each verb makes a `Call`, which is data; whoever has a connection sends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic
from urllib.parse import quote

from lcb.client.answers import (
    ActivateAnswer,
    Answer,
    DecisionAnswer,
    EraseAnswer,
    Health,
    Item,
    ItemsAnswer,
    ItemsList,
    ModelsAnswer,
    RetrainingAnswer,
    RewardAnswer,
    TrialAnswer,
    UserAnswer,
    made,
)
from lcb.errors import InputError, ServiceError

Arms = Mapping[str, Sequence[float]] | Iterable[str]


@dataclass(frozen=True)
class Reply:
    """What came back, whatever it is."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A request and how its answer reads.

    `also` is a status that is an answer and no error.  `done` is the status that says it was carried out already, when
    it is sent again because the first answer was lost; `was` is then the answer.
    """

    method: str
    path: str
    body: bytes | None
    kind: type[Answer]
    also: int | None = None
    done: int | None = None
    was: Answer | None = None

    def read(self, reply: Reply, *, again: bool = False) -> Answer:
        """The answer, or ServiceError."""
        if again and reply.status == self.done and self.was is not None:
            return self.was
        if not 200 <= reply.status < 300 and reply.status != self.also:
            raise problem(reply)
        try:
            return made(self.kind, json.loads(reply.body))
        except (ValueError, TypeError):
            words = f"{self.method} {self.path} was not answered as by lcb ({_shown(reply)}); check the url"
            raise ServiceError(reply.status, words) from None


def problem(reply: Reply) -> ServiceError:
    """The error a reply tells of; a proxy's words where it is not the service's."""
    try:
        said = json.loads(reply.body)
        detail, field = said["detail"], said.get("field")
    except (ValueError, TypeError, KeyError):
        return ServiceError(reply.status, f"status {reply.status} and no problem+json: {_shown(reply)}; check the url")
    return ServiceError(reply.status, str(detail), field)


def decide(
    user: str, arms: Arms | None, x: Sequence[float] | None, k: int | None, chosen: str | None,
    chosen_propensity: float | None, decision_id: str,
) -> Call[DecisionAnswer]:  # fmt: skip
    body = {
        "user": user, "arms": None if arms is None else _arms(arms), "x": None if x is None else _vector(x), "k": k,
        "decision_id": decision_id, "chosen": chosen, "chosen_propensity": chosen_propensity,
    }  # fmt: skip
    return Call("POST", "/v1/decisions", _json(body), DecisionAnswer)


def reward(decision_id: str, reward: float, reward_id: str | None) -> Call[RewardAnswer]:
    body = {"decision_id": decision_id, "reward": float(reward), "reward_id": reward_id}
    return Call("POST", "/v1/rewards", _json(body), RewardAnswer)


def put_items(items: Iterable[Item | Mapping[str, Any]], replace: bool, remove: Iterable[str]) -> Call[ItemsAnswer]:
    sent = [
        _there({
            "id": one.id, "x": None if one.x is None else _vector(one.x, f"item {one.id!r}"),
            "categories": None if one.categories is None else list(one.categories),
            "title": one.title, "summary": one.summary,
        })
        for one in map(_item, items)
    ]  # fmt: skip
    body = {"items": sent, "replace": replace, "remove": list(remove)}
    return Call("PUT", "/v1/items", _json(body), ItemsAnswer)


def _item(given: Item | Mapping[str, Any]) -> Item:
    try:
        return given if isinstance(given, Item) else Item(**given)
    except TypeError as error:
        raise InputError(f"an item {given!r} ({error}); give lcb.client.Item, or a mapping with its fields") from None


def items() -> Call[ItemsList]:
    return Call("GET", "/v1/items", None, ItemsList)


def user(user: str) -> Call[UserAnswer]:
    return Call("GET", f"/v1/users/{_segment(user)}", None, UserAnswer)


def erase(user: str) -> Call[EraseAnswer]:
    """Who was erased is not there: so says the answer to the second try where that to the first was lost."""
    return Call("DELETE", f"/v1/users/{_segment(user)}", None, EraseAnswer, done=404, was=EraseAnswer(0))


def models() -> Call[ModelsAnswer]:
    return Call("GET", "/v1/models", None, ModelsAnswer)


def retrain() -> Call[RetrainingAnswer]:
    return Call("POST", "/v1/models/retrain", None, RetrainingAnswer)


def activate(version: int, reason: str | None) -> Call[ActivateAnswer]:
    return Call("POST", f"/v1/models/{version:d}/activate", _json({"reason": reason}), ActivateAnswer)


def trials() -> Call[TrialAnswer]:
    return Call("GET", "/v1/trials", None, TrialAnswer)


def health() -> Call[Health]:
    return Call("GET", "/readyz", None, Health, also=503)


def _arms(arms: Arms) -> list[dict[str, Any]]:
    if isinstance(arms, str):
        raise InputError(f"arms is the text {arms!r}; give a mapping of ids to features, or a list of ids")
    if isinstance(arms, Mapping):
        return [{"id": id, "x": _vector(x, f"arm {id!r}")} for id, x in arms.items()]
    return [{"id": id} for id in arms]


def _vector(x: Sequence[float], name: str = "x") -> list[float]:
    try:
        return [float(value) for value in x]
    except (TypeError, ValueError):
        raise InputError(f"{name} is {x!r:.60}; give a list of numbers") from None


def _there(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(_there(body), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise InputError(f"the request cannot be sent ({error}); send finite numbers and plain text") from None


def _segment(user: str) -> str:
    """A user in a path; `.` and `..` must not be taken for steps in it."""
    try:
        name = quote(user, safe="")
    except UnicodeEncodeError as error:
        raise InputError(f"user {user!r} cannot be sent ({error.reason}); send plain text") from None
    return name.replace(".", "%2E") if name in (".", "..") else name


def _shown(reply: Reply) -> str:
    return repr(reply.body[:60].decode(errors="replace"))
