"""Answers are read by clients that may be older or newer than the service that wrote them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lcb import client, messages

SLOT = messages.Slot("a", 0.5, "d/0")
MODEL = messages.ModelAnswer(1, True, "active", 5, 6, 9, "now", 0.5, None, "given", {"seed": [1, 2]})
TRIAL = messages.TrialRecommender("lcb", "thompson", 0.5, 3, 4, 5, 2.5, 0.5, None)
BETWEEN = messages.RecommenderDifference("a", "b", 0.1, -0.1, 0.3)
ITEM = messages.Item("a", (1.0, 2.0), ("b",), "title", "summary")
DECISION = messages.DecisionAnswer("d", "a", 0.5, (0.5, 0.5), 1, "thompson", "lcb", (SLOT,), "b")
REWARD = messages.RewardAnswer("d", 1.0)
DECIDED = messages.DecisionOutcome(200, DECISION)
REWARDED = messages.RewardOutcome(503, None, "the store is full", None, 60)
EXAMPLES = [
    SLOT,
    DECISION,
    REWARD,
    messages.Refusal(422, "k is 0; ask for more", "k"),
    DECIDED,
    REWARDED,
    messages.DecisionsAnswer((DECIDED,)),
    messages.RewardsAnswer((REWARDED,)),
    ITEM,
    messages.ItemsAnswer(3, None),
    messages.ItemsList((ITEM,), 1),
    messages.UserAnswer("ann", "lcb", 1, "thompson", 3, 2, 1.5, (0.25, 0.75), 9),
    messages.EraseAnswer(3),
    MODEL,
    messages.RetrainingAnswer(True, "learning", 1, 5, "now", "failed", 2),
    messages.ModelsAnswer(1, (MODEL,), messages.RetrainingAnswer(False)),
    messages.ActivateAnswer(2),
    BETWEEN,
    TRIAL,
    messages.TrialAnswer((TRIAL,), (BETWEEN,)),
    messages.Health("ok", "fine"),
]
every_answer = pytest.mark.parametrize("answer", EXAMPLES, ids=lambda answer: type(answer).__name__)


def extended(value: Any) -> Any:
    """The same JSON as a later service may send it: one more field in every object."""
    if isinstance(value, dict):
        return {**{name: extended(one) for name, one in value.items()}, "of a later version": 1}
    return [extended(one) for one in value] if isinstance(value, list) else value


def test_every_answer_has_an_example_and_is_a_name_of_the_client():
    kinds = {
        name for name, kind in vars(messages).items() if isinstance(kind, type) and kind.__module__ == "lcb.messages"
    }
    requests = {name for name in kinds if name.endswith("Request")} | {"Arm"}
    assert {type(answer).__name__ for answer in EXAMPLES} == kinds - requests
    assert kinds - requests <= set(client.__all__)


@every_answer
def test_an_answer_survives_the_wire(answer):
    assert msgspec.json.decode(msgspec.json.encode(answer), type=type(answer)) == answer


@every_answer
def test_fields_of_a_later_service_are_ignored(answer):
    sent = extended(json.loads(msgspec.json.encode(answer)))
    read = msgspec.json.decode(json.dumps(sent), type=type(answer))
    if type(answer) not in (messages.ModelAnswer, messages.ModelsAnswer):  # whose provenance may hold anything
        assert read == answer


@every_answer
def test_optional_fields_may_be_left_out(answer):
    required = [one.encode_name for one in msgspec.structs.fields(answer) if one.required]
    sent = {name: value for name, value in msgspec.to_builtins(answer).items() if name in required}
    read = msgspec.convert(sent, type(answer))
    for one in msgspec.structs.fields(answer):
        if not one.required:
            assert getattr(read, one.name) == one.default


@every_answer
def test_an_answer_cannot_be_changed(answer):
    with pytest.raises(AttributeError):
        setattr(answer, msgspec.structs.fields(answer)[0].name, None)


def test_a_status_that_a_later_service_adds_can_be_read():
    sent = msgspec.to_builtins(MODEL) | {"status": "paused"}
    assert msgspec.convert(sent, messages.ModelAnswer).status == "paused"


def test_requests_refuse_unknown_fields():
    for kind in (messages.ItemsRequest, messages.ItemRequest, messages.DecisionRequest, messages.RewardRequest):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert({"colour": "red"}, kind)
