"""Which recommender a new user gets."""

from __future__ import annotations

from collections.abc import Mapping

from lcb.arrays import add_up
from lcb.serve.chance import draw_number
from lcb.serve.state.service_state import ServiceState


class Assignment:
    """Assigns users to recommenders at random in proportion to `shares`.

    The draw depends on the log's seed and the user's name only, so every replica assigns a user alike.
    """

    def __init__(self, state: ServiceState, shares: Mapping[str, float]) -> None:
        self.state, self.shares = state, dict(shares)

    def assign(self, user: str) -> str:
        point = draw_number(self.state.seed, f"share/{user}") * add_up(self.shares.values())
        for name, share in self.shares.items():
            point -= share
            if point < 0:
                return name
        return next(name for name in reversed(self.shares) if self.shares[name] > 0)
