"""The decision service seen from Python.

    with Client("http://127.0.0.1:8000") as service:
        decision = service.decide("ann", {"news": [1.0, 0.0], "sport": [0.0, 1.0]})
        service.reward(decision.decision_id, 1.0)

`AsyncClient` has the same verbs to be awaited.  Both make the id of a decision themselves, so that one asked for again
after its answer was lost is the same decision.
"""

from __future__ import annotations

from lcb.client.answers import (
    ActivateAnswer,
    DecisionAnswer,
    Difference,
    EraseAnswer,
    Health,
    Item,
    ItemsAnswer,
    ItemsList,
    ModelAnswer,
    ModelsAnswer,
    RetrainingAnswer,
    RewardAnswer,
    Slot,
    TrialAnswer,
    TrialRecommender,
    UserAnswer,
)
from lcb.client.clients import AsyncClient, Client
from lcb.errors import ServiceError, Unreachable

__all__ = [
    "ActivateAnswer",
    "AsyncClient",
    "Client",
    "DecisionAnswer",
    "Difference",
    "EraseAnswer",
    "Health",
    "Item",
    "ItemsAnswer",
    "ItemsList",
    "ModelAnswer",
    "ModelsAnswer",
    "RetrainingAnswer",
    "RewardAnswer",
    "ServiceError",
    "Slot",
    "TrialAnswer",
    "TrialRecommender",
    "Unreachable",
    "UserAnswer",
]
