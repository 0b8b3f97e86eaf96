"""One mixture from the first decision on: no warm-up, no phases, classes that appear, drift and fade.

    arm        argmax_a  mean_a + bonus sd_a  of the expected reward, over the classes and a new class
    a user     is their own statistics; what the mixture learns serves them at once
    leaving    seats the user in a class, old or new; coming back takes them out first
    refit      after each user up to 20, then when users of a quarter of the total weight have left since

See `lcb.learners.mixture` for the model and docs/algorithms/mixture.md for what it reaches.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, serve
from lcb.bandits.over_classes._kept_normals import KeptNormals
from lcb.bandits.over_classes.personal_classes import PersonalClasses
from lcb.decision import Decision, check_context
from lcb.errors import InputError
from lcb.learners.mixture.seats import Seats
from lcb.models import LatentModels
from lcb.models.first_models import first_models
from lcb.recommenders.recommender import Users

_EVERY_USER = 20  # users after each of whom there is a refit
_MORE = 0.25  # share of the weight of all users that leaves between later refits


class Mixture:
    """Users leave when another comes (`one_at_a_time`), or by `leave`; `rng` draws the seats.

    `memory` and `share_memory` are numbers of users: one who left that many users ago has weight 1/e in the weights of
    their class, and in its share.  Infinity: nothing is forgotten.  With `models` of the learner `mixture`, it goes on
    from their classes, whose users keep their seats.

    >>> mixture, rng = Mixture(2, rng=np.random.default_rng(0)), np.random.default_rng(1)
    >>> for user in range(30):
    ...     for _ in range(4):
    ...         decision = mixture.choose(user, np.eye(2), rng)
    ...         mixture.update(user, decision, float(decision.arm == user % 2) + 0.1 * rng.standard_normal())
    >>> mixture.choose("a new user", np.eye(2), rng).arm in (0, 1), mixture.n_users
    (True, 31)
    """

    def __init__(
        self,
        n_features: int,
        *,
        rng: np.random.Generator | int,
        bonus: float = 0.5,
        n_samples: int = 8,
        n_sweeps: int = 16,
        memory: float = 2000.0,
        share_memory: float = 200.0,
        concentration: float | None = None,
        one_at_a_time: bool = True,
        models: LatentModels | None = None,
    ) -> None:
        if not 0 <= bonus < np.inf:
            raise InputError(f"bonus={bonus}; it must be a finite number, at least 0")
        if not (memory > 1 and share_memory > 1):
            raise InputError(f"memory={memory}, share_memory={share_memory}; each is a number of users above 1")
        if n_samples < 1 or n_sweeps < 1 or not (concentration is None or 0 < concentration < np.inf):
            raise InputError(
                f"n_samples={n_samples}, n_sweeps={n_sweeps}, concentration={concentration}; "
                "give at least 1 sample and 1 sweep, and a positive finite concentration or none"
            )
        self.n_features, self.bonus, self.one_at_a_time = n_features, bonus, one_at_a_time
        self.seats = Seats(
            n_features,
            rng=np.random.default_rng(rng),
            n_samples=n_samples,
            n_sweeps=n_sweeps,
            concentration=concentration,
            memory=memory,
            share_memory=share_memory,
        )
        if models is not None:
            self.seats.continue_from(models)
        self._position: dict[Hashable, int] = {}
        self._present: set[Hashable] = set()  # users who have not left
        self._n_at_refit = 0.0
        self._bandit: PersonalClasses | None = None  # None: to be built from the seats
        self._kept: tuple[Hashable, KeptNormals] | None = None  # the user of the last decision

    @property
    def n_users(self) -> int:
        return len(self._position)

    def start(self, user: Hashable) -> None:
        if user not in self._position:
            self._position[user] = self.seats.add_user()
        self._come(user)
        if self.one_at_a_time and len(self._present) > 1:
            for other in sorted(self._present - {user}, key=self._position.__getitem__):  # not in order of rewards
                self.leave(other)

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        self.start(user)
        state = self.state_of(user)
        bandit = self._bandit_for(state)
        if not self.seats.samples:
            return bandit.choose(state, context, rng)
        context = check_context(context, self.n_features)
        if not np.isfinite(context.sum()):
            raise InputError("the context contains NaN or infinity; give finite features")
        if self._kept is None or self._kept[0] != user or self._kept[1].bandit is not bandit:
            self._kept = user, KeptNormals(bandit, state)
        return Decision.best(self._kept[1].score(context), context, rng.random())

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        state = self.state_of(user)
        self._come(user)
        self._set(user, self._bandit_for(state).update(state, decision, reward))
        if (
            self._kept is not None
            and self._kept[0] == user
            and not self._kept[1].add(decision.x, reward - decision.effect)
        ):
            self._kept = None

    def leave(self, user: Hashable) -> None:
        """Seat a user whose visit is over, and refit if it is time."""
        if user not in self._present:
            return
        self._present.remove(user)
        seats = self.seats
        seats.seat(self._position[user])
        self._bandit = None
        since = seats.n_left - self._n_at_refit
        if since and (seats.n_left <= _EVERY_USER or since >= _MORE * seats.weight):
            self.refit()

    def refit(self) -> None:
        """Draw the classes of all past users again, and learn the hyperparameters."""
        self.seats.refit()
        self._n_at_refit = self.seats.n_left
        self._bandit = None

    def state_of(self, user: Hashable) -> Floats:
        """Return the user's statistics, as `UserStats` packs them."""
        if user not in self._position:
            raise InputError(f"user {user!r} has not started; choose for them first")
        return self.seats.rows[self._position[user]].copy()

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve users one after another, each through all steps; compiled once the first has left."""
        arms = np.empty(contexts.shape[:2], np.int64)
        for u, user in enumerate(users):
            self.start(user)
            state = self.state_of(user)
            if self.seats.samples:
                states, arms[u : u + 1] = serve(
                    self._bandit_for(state), state[None], contexts[u : u + 1], rewards[u : u + 1], rng
                )
                self._set(user, states[0])
                self._kept = None
                continue
            for t, context in enumerate(contexts[u]):
                decision = self.choose(user, context, rng)
                arms[u, t] = decision.arm
                self.update(user, decision, rewards[u, t, decision.arm])
        return arms

    def _come(self, user: Hashable) -> None:
        """Take a user who comes back out of their class."""
        if user not in self._present:
            self._present.add(user)
            if self.seats.is_seated(self._position[user]):
                self.seats.unseat(self._position[user])
                self._bandit = None

    def _set(self, user: Hashable, state: Floats) -> None:
        self.seats.rows[self._position[user]] = state

    def _bandit_for(self, state: Floats) -> PersonalClasses:
        if not self.seats.samples:
            return PersonalClasses(first_models(state, self.n_features), self.bonus)
        if self._bandit is None:
            self._bandit = PersonalClasses(self.seats.models(), self.bonus)
        return self._bandit
