"""Bandit states shared by all users of a recommender: scope "everyone", and the LinUCB of the warm-up."""

from __future__ import annotations

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit
from lcb.bandits.traits import Revisable
from lcb.serve import events
from lcb.serve.events import to_decision
from lcb.serve.state.per_user.user_fold import count_decisions
from lcb.serve.state.service_state import ServiceState


class SharedStates:
    """The shared states by name; a state that was never updated is the bandit's start state."""

    def __init__(self, state: ServiceState) -> None:
        self._service = state
        self.states: dict[str, Floats] = {}

    def get(self, name: str, bandit: Bandit) -> Floats:
        state = self.states.get(name)
        return bandit.start() if state is None else state

    def count_decisions(self, recommender: str, model: int, arms: list[events.ChosenArm]) -> None:
        bandit, name = self._service.bandit(recommender, model)
        assert name is not None
        self.states[name] = count_decisions(bandit, self.get(name, bandit), arms)

    def update(self, recommender: str, model: int, body: events.RewardBody | events.ErasedReward) -> None:
        """Update with a reward; if it changes an earlier reward, revise that update."""
        bandit, name = self._service.bandit(recommender, model)
        assert name is not None
        state, decision = self.get(name, bandit), to_decision(body)
        if body.before is None:
            self.states[name] = bandit.update(state, decision, body.reward)
        elif isinstance(bandit, Revisable):
            self.states[name] = bandit.revise(state, decision, body.before, body.reward)
