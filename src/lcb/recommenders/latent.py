"""Latent Contextual Bandits: Algorithm 1 of Zhou & Brunskill 2016.

    phase 1   LinUCB (one for all, or one each) serves the first J users; the arms taken and their rewards are the
              data D
    phase 2   N latent models are learned from D, each gives a policy, and every new user gets a bandit B over these
              policies; D grows, and the models are relearned after every n users

A user keeps the model version that was current when they started (the paper's footnote on interleaved users), so users
may come in any order.  With `n_uniform_steps` (the paper's tau) the first steps of each user are uniform;
`train_on="uniform"` learns from these only.  If `models` are given there is no phase 1; with `retrain_every=None` they
are never replaced (the paper's LCB_GT).  A learner returns None if data are too few: phase 1 continues, or the last
models stay, until the next training is due.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Arms, Bandit, add_advice, choose_uniformly, count_decision, serve
from lcb.decision import Decision
from lcb.errors import InputError
from lcb.event_log import EventLog, LogBuilder
from lcb.models import LatentModels
from lcb.recommenders.recommender import Users
from lcb.recommenders.relearning import Schedule, build_warmup, select_taken_rows, serve_between_trainings
from lcb.stats import UserStats

Learn = Callable[[UserStats, np.random.Generator, LatentModels | None], LatentModels | None]
MakeBandit = Callable[[LatentModels], Bandit]
_WARMUP = -1


@dataclass(frozen=True)
class FromRows:
    """A learner that needs all rows, not only statistics, such as Spectral Experts; memory grows with the rows.

    Its log also has counts of clicks, so that `lcb.fit(log)` models 0/1 rewards as `lcb learn` does.
    """

    learn: Callable[[EventLog, np.random.Generator, LatentModels | None], LatentModels | None]


@dataclass(slots=True)
class _User:
    """One user: the model version they keep, the number of steps, the bandit's state (None in phase 1)."""

    version: int
    n_steps: int
    state: Floats | None


class Latent:
    """Settings, the model versions so far, the users, and the statistics of all rewards.

    `learn(stats, rng, last_models)` runs a learner, as does `FromRows(learn)` with `learn(log, rng, last_models)`;
    `make_bandit(models)` builds a bandit over class policies.
    """

    why: tuple[str, ...] = ()  # how the models were chosen, if they were

    def __init__(
        self,
        n_features: int,
        make_bandit: MakeBandit,
        learn: Learn | FromRows | None = None,
        *,
        rng: np.random.Generator | int,
        n_warmup_users: int = 50,
        warmup: Literal["pooled", "individual"] = "pooled",
        warmup_bandit: Bandit | None = None,
        retrain_every: int | None = 50,
        n_uniform_steps: int = 0,
        train_on: Literal["all", "uniform"] = "all",
        models: LatentModels | None = None,
    ) -> None:
        _check(n_uniform_steps, train_on, retrain_every, learn, models)
        if models is not None and models.n_features != n_features:
            raise InputError(f"models have {models.n_features} features, n_features={n_features}; give the same number")
        self.make_bandit, self.learn, self.rng = make_bandit, learn, np.random.default_rng(rng)
        self.schedule = Schedule(n_warmup_users, retrain_every, trained=models is not None)
        self.n_uniform_steps, self.train_on = n_uniform_steps, train_on
        self.warmup = build_warmup(warmup, warmup_bandit, n_features)
        self.versions: list[LatentModels] = []
        self._bandits: list[Bandit] = []
        self._users: dict[Hashable, _User] = {}
        from_rows = isinstance(learn, FromRows)
        self._data = LogBuilder(n_features, count=from_rows, keep_rows=from_rows)
        self._rewards: set[float] = set()  # different rewards, at most 3
        if models is not None:
            self._add_version(models)

    @property
    def n_users(self) -> int:
        return len(self._users)

    @property
    def stats(self) -> UserStats:
        """D, the statistics for the next training; empty without a learner."""
        return self._data.build().stats

    def version_of(self, user: Hashable) -> int | None:
        """Return the model version that serves this user; None in phase 1."""
        version = self._get_user(user).version
        return None if version == _WARMUP else version

    def state_of(self, user: Hashable) -> Floats | None:
        """Return the bandit's state for this user; None in phase 1."""
        return self._get_user(user).state

    def start(self, user: Hashable) -> None:
        if user in self._users:
            return
        self._train_if_due()
        if not self.versions:
            self.warmup.start(user)
            self._users[user] = _User(_WARMUP, 0, None)
        else:
            self._users[user] = _User(len(self.versions) - 1, 0, self._bandits[-1].start())

    def choose(self, user: Hashable, context: Floats, rng: np.random.Generator) -> Decision:
        self.start(user)
        known = self._users[user]
        known.n_steps += 1
        at_random = known.n_steps <= self.n_uniform_steps
        if known.state is None:
            if not at_random:
                return self.warmup.choose(user, context, rng)
            decision = choose_uniformly(self.warmup.bandit, context, rng.random())
            self.warmup.count_decision(user, decision)
            return decision
        bandit, state = self._bandits[known.version], known.state
        decision = choose_uniformly(bandit, context, rng.random()) if at_random else bandit.choose(state, context, rng)
        known.state = count_decision(bandit, state, decision)
        return decision

    def add_advice(self, user: Hashable, decision: Decision, context: Floats) -> Decision:
        known = self._get_user(user)
        bandit = self.warmup.bandit if known.state is None else self._bandits[known.version]
        return add_advice(bandit, decision, context)

    def update(self, user: Hashable, decision: Decision, reward: float) -> None:
        known = self._get_user(user)
        if known.state is None:
            self.warmup.update(user, decision, reward)
        else:
            known.state = self._bandits[known.version].update(known.state, decision, reward)
        if self.learn is not None and (self.train_on == "all" or decision.at_random):
            self._add_rows([user], np.array(decision.x, float)[None], np.array([reward], float))

    def serve(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve new users one after another, each through all steps; compiled if the bandit is."""
        return serve_between_trainings(self._serve_version, self._train_if_due, users, contexts, rewards, rng)

    def _serve_version(self, users: Users, contexts: Floats, rewards: Floats, rng: np.random.Generator) -> Arms:
        """Serve users who all get the same model version."""
        n_steps = contexts.shape[1]
        if not self.versions:
            arms = self.warmup.serve(users, contexts, rewards, rng, self.n_uniform_steps)
            self._users.update((user, _User(_WARMUP, n_steps, None)) for user in users)
        else:
            states = np.tile(self._bandits[-1].start(), (len(users), 1))
            states, arms = serve(self._bandits[-1], states, contexts, rewards, rng, self.n_uniform_steps)
            own = (_User(len(self.versions) - 1, n_steps, state) for state in states)
            self._users.update(zip(users, own, strict=True))
        if self.learn is None:
            return arms
        n_kept = n_steps if self.train_on == "all" else min(self.n_uniform_steps, n_steps)
        self._add_rows(*select_taken_rows(users, contexts, rewards, arms[:, :n_kept]))
        return arms

    def _add_rows(self, users: Sequence[Hashable], x: Floats, rewards: Floats) -> None:
        self._data.add(users, x, rewards)
        if len(self._rewards) < 3:
            self._rewards.update(np.unique(rewards)[:3].tolist())

    def _get_user(self, user: Hashable) -> _User:
        if user not in self._users:
            raise InputError(f"user {user!r} has not started; choose for them first")
        return self._users[user]

    def _train_if_due(self) -> int:
        """Learn if training is due; return the number of users that may start before it can be due again."""
        if self.schedule.is_due(self.n_users, self._data.n_users):
            models = self._learn(self.versions[-1] if self.versions else None)
            if models is not None:
                self._add_version(models)
            self.schedule.plan_next(self.n_users, succeeded=bool(self.versions))
        return self.schedule.n_users_until_due(self.n_users)

    def _learn(self, last: LatentModels | None) -> LatentModels | None:
        assert self.learn is not None
        log = self._data.build()
        if isinstance(self.learn, FromRows):
            return self.learn.learn(log, self.rng, last)
        return self.learn(replace(log.stats, of_clicks=self._rewards == {0.0, 1.0}), self.rng, last)

    def _add_version(self, models: LatentModels) -> None:
        self.versions.append(models)
        self._bandits.append(self.make_bandit(models))


def _check(
    n_uniform_steps: int,
    train_on: str,
    retrain_every: int | None,
    learn: Learn | FromRows | None,
    models: LatentModels | None,
) -> None:
    if train_on not in ("all", "uniform"):
        raise InputError(f"train_on={train_on!r}; it is 'all' or 'uniform' (the uniform first steps only)")
    if n_uniform_steps < 0 or (train_on == "uniform" and n_uniform_steps == 0):
        raise InputError(
            f"n_uniform_steps={n_uniform_steps} with train_on={train_on!r}; give at least 1 uniform step to learn from"
        )
    if learn is None and (models is None or retrain_every is not None):
        raise InputError("there is no learner; give `learn`, or `models` with retrain_every=None")
