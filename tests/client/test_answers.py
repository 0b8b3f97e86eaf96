"""The client's answers are the service's: the same fields, and nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from lcb import messages
from lcb.client import answers

NAMES = [name for name, kind in vars(answers).items() if dataclasses.is_dataclass(kind)]
SLOT = messages.Slot("a", 0.5, "d/0")
MODEL = messages.ModelAnswer(1, True, "active", 5, 6, 9, "now", 0.5, None, "given", {"seed": [1, 2]})
TRIAL = messages.TrialRecommender("lcb", "thompson", 0.5, 3, 4, 5, 2.5, 0.5, None)
EXAMPLES: dict[str, Any] = {
    "Slot": SLOT,
    "DecisionAnswer": messages.DecisionAnswer("d", "a", 0.5, [0.5, 0.5], 1, "thompson", "lcb", [SLOT], "b"),
    "RewardAnswer": messages.RewardAnswer("d", 1.0),
    "Item": messages.Item("a", [1.0, 2.0], ["b"], "title", "summary"),
    "ItemsAnswer": messages.ItemsAnswer(3, None),
    "ItemsList": messages.ItemsList([messages.Item("a", [1.0])], 1),
    "UserAnswer": messages.UserAnswer("ann", "lcb", 1, "thompson", 3, 2, 1.5, [0.25, 0.75], 9),
    "EraseAnswer": messages.EraseAnswer(3),
    "ModelAnswer": MODEL,
    "RetrainingAnswer": messages.RetrainingAnswer(True, "learning", 1, 5, "now", "failed", 2),
    "ModelsAnswer": messages.ModelsAnswer(1, [MODEL], messages.RetrainingAnswer(False)),
    "ActivateAnswer": messages.ActivateAnswer(2),
    "Difference": messages.Difference("a", "b", 0.1, -0.1, 0.3),
    "TrialRecommender": TRIAL,
    "TrialAnswer": messages.TrialAnswer([TRIAL], [messages.Difference("a", "b", 0.1, -0.1, 0.3)]),
    "Health": messages.Health("ok", "fine"),
}


def test_every_answer_has_an_example():
    assert set(EXAMPLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_has_the_fields_of_the_services_message(name):
    assert [field.name for field in dataclasses.fields(getattr(answers, name))] == list(
        getattr(messages, name).__struct_fields__
    )


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_an_answer_is_lost(name):
    sent = msgspec.json.encode(EXAMPLES[name])
    read = answers.made(getattr(answers, name), json.loads(sent))
    assert msgspec.to_builtins(EXAMPLES[name]) == json.loads(json.dumps(dataclasses.asdict(read)))


@pytest.mark.parametrize("name", NAMES)
def test_fields_with_a_default_may_be_left_out(name):
    struct, kind = getattr(messages, name), getattr(answers, name)
    optional = set(struct.__struct_fields__[len(struct.__struct_fields__) - len(struct.__struct_defaults__) :])
    of_ours = {f.name for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}
    assert optional == of_ours
