"""What events do to their user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lcb.bandits.bandit import Bandit, count_decision
from lcb.bandits.traits import DescribedBandit, keeps_posterior
from lcb.events import Floats
from lcb.serve import events
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.events import to_decision
from lcb.serve.state.model_version import Damaged
from lcb.serve.state.service_state import Standing
from lcb.serve.state.users import LOST, WARMUP, User
from lcb.storage.store.base import Row

SETTLED = 0.9  # a class that holds this much is what a user is taken for
_LOG_SETTLED = math.log(SETTLED)


class Fold(Standing):
    """A user from their events; nothing is kept here, and nothing read."""

    def newcomer(self, recommender: str, model: int, seq: int, n_features: int | None = None) -> User:
        """Somebody at the door: the state every user of this recommender and these models starts from."""
        try:
            bandit, shared = self.bandit(recommender, model, n_features)
        except Damaged:
            return User(recommender, model, LOST, seq)
        return User(recommender, model, None if shared else bandit.start(), seq)

    def fold_user(self, rows: Iterable[Row]) -> User | None:
        """A user from all of their events; a reward that was changed counts where it first came."""
        bodies = [(row, events.decode(row.kind, row.body)) for row in rows]
        counts = {slot_of_reward(row.id): body.reward for row, body in bodies if row.kind == "reward"}
        user: User | None = None
        for row, body in bodies:
            if user is None:
                user = self.newcomer(body.recommender, row.model or WARMUP, row.seq)
            changed = row.kind == "reward" and body.before is not None
            if changed:
                user.seq = row.seq
            else:
                self.step(user, row, body, counts.get(slot_of_reward(row.id), 0.0))
        return user

    def walk(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Any, User]]:
        """A user's events one after another, each with what the user is after it."""
        user: User | None = None
        for i, row in enumerate(rows):
            body = events.decode(row.kind, row.body)
            if user is None:
                user = self.newcomer(body.recommender, row.model or WARMUP, row.seq)
            if row.kind == "reward" and body.before is not None:
                user = self.fold_user(rows[: i + 1])
                assert user is not None
            else:
                self.step(user, row, body, getattr(body, "reward", 0.0))
            yield row, body, user

    def step(self, user: User, row: Row, body: Any, reward: float) -> None:
        """What one event does to its user alone; `reward` is what counts for it."""
        user.seq = row.seq
        if row.kind == "decision":
            taken = body.shown
            user.n_decisions += len(taken)
            if (moving := self._moving(user, row, body)) is not None:
                user.state = after(*moving, taken)
            return
        user.n_rewards += 1
        user.reward_sum += reward
        if (moving := self._moving(user, row, body)) is not None:
            bandit, state = moving
            user.state = bandit.update(state, to_decision(body), _known(bandit, reward))
            if not user.settled and keeps_posterior(bandit) and max(user.state.tolist()) >= _LOG_SETTLED:
                user.settled = user.n_decisions

    def _moving(self, user: User, row: Row, body: Any) -> tuple[DescribedBandit, Floats] | None:
        """The bandit by which an event moves its user's own state, and that state.

        None where the state is shared or lost, and for what is not of the models that the user is pinned to.
        """
        if user.state is None or user.state is LOST or not user.is_own(row, body):
            return None
        try:
            return self.bandit(user.recommender, user.model)[0], user.state
        except Damaged:
            user.state = LOST
            return None

    def posterior(self, user: User) -> Floats | None:
        """The probability of each class for a user whose bandit knows it."""
        if user.state is None or user.state is LOST:
            return None
        try:
            bandit, _ = self.bandit(user.recommender, user.model)
        except Damaged:
            return None
        if not keeps_posterior(bandit):
            return None
        return bandit.weights(user.state)


def after(bandit: Bandit, state: Floats, taken: list[events.ChosenArm]) -> Floats:
    """The state after decisions, of a bandit that counts them."""
    if hasattr(bandit, "count_decision"):
        for one in taken:
            state = count_decision(bandit, state, to_decision(one))
    return state


def _known(bandit: DescribedBandit, reward: float) -> float:
    """A reward as models of two levels know it: what lies beyond a level says no more of the class than that level."""
    if keeps_posterior(bandit) and bandit.models.levels is not None:
        low, high = bandit.models.levels
        return min(max(reward, low), high)
    return reward
