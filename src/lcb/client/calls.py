"""The requests a client can send: each function builds a `Call`, which is plain data; the clients send it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from lcb import messages
from lcb.errors import InputError, ServiceError

Answer = TypeVar("Answer")
Arms = Mapping[str, Sequence[float]] | Iterable[str]


@dataclass(frozen=True)
class Reply:
    """An HTTP response of any status; `wrong` says why its body was not read, if so."""

    status: int
    body: bytes
    retry_after: str | None = None
    location: str | None = None
    wrong: str | None = None


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A request and the type of its answer.

    `also` is an error status whose body is nevertheless an answer.  If a repeated request gets the status `done`, an
    earlier attempt succeeded and its answer was lost; the answer is then `done_answer`.  The answer has to carry `id`
    as its decision_id, if that is given.
    """

    method: str
    path: str
    body: bytes | None
    answer: type[Answer]
    also: int | None = None
    done: int | None = None
    done_answer: Answer | None = None
    id: str | None = None

    def read(self, reply: Reply, *, again: bool = False) -> Answer:
        """Decode the answer; raise ServiceError if the reply is an error or not an answer of lcb.

        >>> retrain().read(Reply(202, b'{"running": true, "field of a newer service": 1}')).running
        True
        """
        if again and reply.status == self.done and self.done_answer is not None:
            return self.done_answer
        if not 200 <= reply.status < 300 and reply.status != self.also:
            raise read_problem(reply)
        if reply.wrong is not None:
            raise self.refuse(reply, reply.wrong)
        try:
            answer = msgspec.json.decode(reply.body, type=self.answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = f"{self.method} {self.path} got an answer that is not lcb's: {_quote_body(reply)}; check the url"
            raise ServiceError(reply.status, message) from None
        if self.id is not None:
            self.check_id(reply, answer, self.id)
        return answer

    def check_id(self, reply: Reply, answer: Any, id: str) -> None:
        """Raise ServiceError if an answer is that of another request than the one with this id."""
        if answer.decision_id != id:
            what = f"the answer of another request (decision_id {answer.decision_id!r:.80}, asked for {id!r:.80})"
            raise self.refuse(reply, what)

    def refuse(self, reply: Reply, what: str) -> ServiceError:
        """Return the error of a reply that the service cannot have sent."""
        return ServiceError(reply.status, f"{self.method} {self.path} got {what}; check the proxy in between")


def read_problem(reply: Reply) -> ServiceError:
    """Return the error in a problem+json reply; the error of a proxy is quoted."""
    if reply.wrong is not None:
        return ServiceError(reply.status, f"status {reply.status} came with {reply.wrong}; check the proxy in between")
    if 300 <= reply.status < 400 and reply.location is not None:
        where = f"status {reply.status} points to {reply.location!r:.200}, and redirects are not followed"
        return ServiceError(reply.status, f"{where}; give the url of the service itself")
    try:
        problem = json.loads(reply.body)
        detail, field = problem["detail"], problem.get("field")
    except (ValueError, TypeError, KeyError, RecursionError):
        message = f"status {reply.status} without problem+json: {_quote_body(reply)}; check the url"
        return ServiceError(reply.status, message)
    return ServiceError(reply.status, str(detail), field)


def decide(
    user: str,
    arms: Arms | None,
    decision_id: str,
    *,
    x: Sequence[float] | None,
    k: int | None,
    chosen: str | None,
    chosen_propensity: float | None,
    exclude: Iterable[str] | None = None,
    seen: str | None = None,
    at_most: int | None = None,
) -> Call[messages.DecisionAnswer]:
    body = build_decision(
        user, arms, decision_id, x=x, k=k, chosen=chosen, chosen_propensity=chosen_propensity,
        exclude=exclude, seen=seen, at_most=at_most,
    )  # fmt: skip
    return Call("POST", "/v1/decisions", encode(body), messages.DecisionAnswer, id=decision_id)


def build_decision(
    user: str,
    arms: Arms | None,
    decision_id: str,
    *,
    x: Sequence[float] | None = None,
    k: int | None = None,
    chosen: str | None = None,
    chosen_propensity: float | None = None,
    exclude: Iterable[str] | None = None,
    seen: str | None = None,
    at_most: int | None = None,
) -> dict[str, Any]:
    """Return the JSON of a decision."""
    return _drop_none(
        {
            "user": user,
            "arms": None if arms is None else convert_arms(arms),
            "x": None if x is None else _convert_vector(x),
            "k": k,
            "decision_id": decision_id,
            "chosen": chosen,
            "chosen_propensity": chosen_propensity,
            "exclude": None if exclude is None else _convert_list(exclude, "exclude", "ids"),
            "seen": seen,
            "at_most": at_most,
        }
    )


def reward(decision_id: str, reward: float, reward_id: str | None) -> Call[messages.RewardAnswer]:
    body = build_reward(decision_id, reward, reward_id)
    return Call("POST", "/v1/rewards", encode(body), messages.RewardAnswer, id=decision_id)


def build_reward(decision_id: str, reward: float, reward_id: str | None = None) -> dict[str, Any]:
    """Return the JSON of a reward."""
    return _drop_none({"decision_id": decision_id, "reward": float(reward), "reward_id": reward_id})


def put_items(
    items: Iterable[messages.Item | Mapping[str, Any]], replace: bool, remove: Iterable[str]
) -> Call[messages.ItemsAnswer]:
    body = {
        "items": [_convert_item(one) for one in items],
        "replace": replace,
        "remove": _convert_list(remove, "remove", "ids"),
    }
    return Call("PUT", "/v1/items", encode(body), messages.ItemsAnswer)


def items() -> Call[messages.ItemsList]:
    return Call("GET", "/v1/items", None, messages.ItemsList)


def user(user: str) -> Call[messages.UserAnswer]:
    return Call("GET", f"/v1/users/{_quote_user(user)}", None, messages.UserAnswer)


def erase(user: str) -> Call[messages.EraseAnswer]:
    """Erase a user; a repeated request gets 404 if the first erased them and its answer was lost."""
    path, nothing = f"/v1/users/{_quote_user(user)}", messages.EraseAnswer(0)
    return Call("DELETE", path, None, messages.EraseAnswer, done=404, done_answer=nothing)


def models() -> Call[messages.ModelsAnswer]:
    return Call("GET", "/v1/models", None, messages.ModelsAnswer)


def retrain() -> Call[messages.RetrainingAnswer]:
    return Call("POST", "/v1/models/retrain", None, messages.RetrainingAnswer)


def activate(version: int, reason: str | None) -> Call[messages.ActivateAnswer]:
    return Call("POST", f"/v1/models/{version:d}/activate", encode({"reason": reason}), messages.ActivateAnswer)


def trials() -> Call[messages.TrialAnswer]:
    return Call("GET", "/v1/trials", None, messages.TrialAnswer)


def health() -> Call[messages.Health]:
    return Call("GET", "/readyz", None, messages.Health, also=503)


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON, without fields that are None; raise InputError if JSON cannot hold it."""
    try:
        return json.dumps(_drop_none(body), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise InputError(f"the request cannot be sent ({error}); send finite numbers and plain text") from None


def convert_arms(arms: Arms) -> list[dict[str, Any]]:
    if isinstance(arms, str):
        raise InputError(f"arms is the text {arms!r}; give a mapping of ids to features, or a list of ids")
    if isinstance(arms, Mapping):
        return [{"id": id, "x": _convert_vector(x, f"arm {id!r}")} for id, x in arms.items()]
    found = _convert_list(arms, "arms", "ids")
    for i, id in enumerate(found):
        if not isinstance(id, str):
            raise InputError(f"arms[{i}] is {id!r:.60}; give a mapping of ids to features, or a list of ids")
    return [{"id": id} for id in found]


def _convert_item(given: messages.Item | Mapping[str, Any]) -> dict[str, Any]:
    try:
        item = given if isinstance(given, messages.Item) else messages.Item(**given)
    except TypeError as error:
        message = f"item {given!r} is not valid ({error}); give an lcb.client.Item, or a mapping with its fields"
        raise InputError(message) from None
    fields = {name: getattr(item, name) for name in messages.Item.__struct_fields__}
    if item.x is not None:
        fields["x"] = _convert_vector(item.x, f"item {item.id!r}")
    if item.categories is not None:
        fields["categories"] = _convert_list(item.categories, f"categories of item {item.id!r}", "names")
    return _drop_none(fields)


def _convert_list(given: Iterable[str], name: str, of: str) -> list[str]:
    """Return a list; a text would be taken for the list of its letters."""
    if isinstance(given, str):
        raise InputError(f"{name} is the text {given!r:.60}; give a list of {of}")
    try:
        return list(given)
    except TypeError:
        raise InputError(f"{name} is {given!r:.60}; give a list of {of}") from None


def _convert_vector(x: Sequence[float], name: str = "x") -> list[float]:
    if isinstance(x, str | bytes):
        raise InputError(f"{name} is the text {x!r:.60}; give a list of numbers")
    try:
        return [float(value) for value in x]
    except (TypeError, ValueError):
        raise InputError(f"{name} is {x!r:.60}; give a list of numbers") from None


def _drop_none(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _quote_user(user: str) -> str:
    """Quote a user for a path; `.` and `..` are quoted too, since they would be resolved as steps of the path."""
    try:
        name = quote(user, safe="")
    except UnicodeEncodeError as error:
        raise InputError(f"user {user!r} cannot be sent ({error.reason}); send plain text") from None
    return name.replace(".", "%2E") if name in (".", "..") else name


def _quote_body(reply: Reply) -> str:
    return repr(reply.body[:60].decode(errors="replace"))
