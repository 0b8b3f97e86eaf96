"""Python client of the decision service.

    with Client("http://127.0.0.1:8000") as service:
        decision = service.decide("ann", {"news": [1.0, 0.0], "sport": [0.0, 1.0]})
        service.reward(decision.decision_id, 1.0)

`AsyncClient` has the same methods, to be awaited.  Both create the id of a decision before they send it, so a decision
that is requested again because its answer was lost is the same decision.  Elements of a batch that find the service
busy are requested again, and outcomes have the ids of their decisions.
"""

from __future__ import annotations

from lcb.errors import ServiceError, Unreachable, need_extra

with need_extra("client"):
    from lcb.client.batches import DecisionOutcome, RewardOutcome
    from lcb.client.clients import AsyncClient, Client
    from lcb.messages import (
        ActivateAnswer,
        DecisionAnswer,
        DecisionsAnswer,
        EraseAnswer,
        Health,
        Item,
        ItemsAnswer,
        ItemsList,
        ModelAnswer,
        ModelsAnswer,
        RecommenderDifference,
        Refusal,
        RetrainingAnswer,
        RewardAnswer,
        RewardsAnswer,
        Slot,
        TrialAnswer,
        TrialRecommender,
        UserAnswer,
    )

__all__ = [
    "ActivateAnswer",
    "AsyncClient",
    "Client",
    "DecisionAnswer",
    "DecisionOutcome",
    "DecisionsAnswer",
    "EraseAnswer",
    "Health",
    "Item",
    "ItemsAnswer",
    "ItemsList",
    "ModelAnswer",
    "ModelsAnswer",
    "RecommenderDifference",
    "Refusal",
    "RetrainingAnswer",
    "RewardAnswer",
    "RewardOutcome",
    "RewardsAnswer",
    "ServiceError",
    "Slot",
    "TrialAnswer",
    "TrialRecommender",
    "Unreachable",
    "UserAnswer",
]
