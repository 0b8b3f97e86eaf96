"""Chooses every arm with the same probability, 1 / K: a baseline, and a way to collect unbiased logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, draw_uniform_arms
from lcb.bandits.traits import Traits
from lcb.decision import Decision, to_context


@dataclass(frozen=True)
class Uniform:
    """No settings; the state is empty."""

    traits: ClassVar[Traits] = Traits("nothing", state="0", cost="K")

    def start(self) -> Floats:
        return np.empty(0)

    def choose(self, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        context = to_context(context)
        return Decision.uniform(context, rng.random())

    def update(self, state: Floats, decision: Decision, reward: float) -> Floats:
        return state

    def revise(self, state: Floats, decision: Decision, before: float, after: float) -> Floats:
        return state

    def serve(self, states: Floats, contexts: Floats, rewards: Floats, uniforms: Floats, n_uniform: int) -> Arms:
        return draw_uniform_arms(uniforms, contexts.shape[2], uniforms.shape[1])
