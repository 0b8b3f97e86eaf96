"""What a bandit says of itself: what it is built on, and what its decisions and updates need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeGuard, runtime_checkable

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit
from lcb.decision import Decision
from lcb.models import LatentModels


@dataclass(frozen=True)
class Traits:
    """A class attribute `traits` of every bandit in `lcb.bandits.registry`."""

    built_on: Literal["models", "policies", "n_features", "nothing"]  # the first argument
    state: str  # numbers of a user's state: N classes or policies, K arms, d features
    cost: str  # operations of one decision
    fixed_arms: bool = False  # arms have no features: the context is one-hot
    needs_reward_range: bool = False  # takes a setting `reward_range`, and refuses rewards outside
    needs_propensity_of_chosen: bool = False  # weighs a reward by how probable its arm was
    needs_propensity_of_every_arm: bool = False  # by how probable every arm was
    keeps_posterior: bool = False  # the state is the log posterior over the classes

    @property
    def needs_classes(self) -> bool:
        """Whether it cannot decide during warm-up, before there are classes."""
        return self.built_on in ("models", "policies")


class DescribedBandit(Bandit, Protocol):
    """A bandit with traits."""

    traits: ClassVar[Traits]


class PosteriorBandit(DescribedBandit, Protocol):
    """A bandit whose traits say `keeps_posterior`."""

    @property
    def models(self) -> LatentModels: ...

    def weights(self, state: Floats) -> Floats: ...


@runtime_checkable
class Revisable(Protocol):
    """A bandit that can undo the effect of one reward on a state that has moved on since."""

    def revise(self, state: Floats, decision: Decision, before: float, after: float) -> Floats: ...


def keeps_posterior(bandit: DescribedBandit) -> TypeGuard[PosteriorBandit]:
    return bandit.traits.keeps_posterior
