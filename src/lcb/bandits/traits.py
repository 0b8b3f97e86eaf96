"""What a bandit declares about itself: what it is built on, and what its decisions and updates need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeGuard, runtime_checkable

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit
from lcb.decision import Decision
from lcb.models import LatentModels


@dataclass(frozen=True)
class Traits:
    """The class attribute `traits` of every bandit in `lcb.bandits.registry`."""

    built_on: Literal["models", "policies", "n_features", "nothing"]  # the first argument
    state: str  # size of a user's state; N classes or policies, K arms, d features
    cost: str  # operations of one decision
    fixed_arms: bool = False  # arms have no features: the context is one-hot
    needs_reward_range: bool = False  # has a setting `reward_range`, and refuses rewards outside it
    needs_propensity_of_chosen: bool = False  # weights a reward by the propensity of its arm
    needs_propensity_of_every_arm: bool = False  # weights a reward by the propensities of all arms
    keeps_posterior: bool = False  # has a method `weights`, the posterior over the classes
    takes_effects: bool = False  # `choose` takes `effects`, the item effects of the arms (`lcb.models.item_effects`)
    keeps_statistics: bool = False  # the state is the user's statistics, whatever the classes: any version can serve it
    seats_users: bool = False  # a service seats users who have left in classes, and serves the others by these

    @property
    def needs_classes(self) -> bool:
        """Whether it cannot decide during warm-up, before there are classes."""
        return self.built_on in ("models", "policies")


class DescribedBandit(Bandit, Protocol):
    """A bandit with traits."""

    traits: ClassVar[Traits]


class PosteriorBandit(DescribedBandit, Protocol):
    """A bandit with the trait `keeps_posterior`."""

    @property
    def models(self) -> LatentModels: ...

    def weights(self, state: Floats) -> Floats: ...


class LogPosteriorBandit(PosteriorBandit, Protocol):
    """One whose state is the log posterior over the classes."""

    def update_many(self, states: Floats, x: Floats, rewards: Floats, effects: Floats) -> Floats: ...


class StatisticsBandit(PosteriorBandit, Protocol):
    """One with the trait `keeps_statistics`."""

    def weights_of_many(self, states: Floats) -> Floats: ...


@runtime_checkable
class Revisable(Protocol):
    """A bandit that can change a reward that its state already includes, even if others came after it."""

    def revise(self, state: Floats, decision: Decision, before: float, after: float) -> Floats: ...


def keeps_posterior(bandit: DescribedBandit) -> TypeGuard[PosteriorBandit]:
    return bandit.traits.keeps_posterior
