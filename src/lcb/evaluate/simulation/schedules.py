"""Simulates the schedules of Theorems 1 and 2 (see `lcb.theory`), with several bandits on the same users.

    exp4p, exp3     Theorem 1   tau = sqrt(T_u), J = sqrt(L) or what the learner needs
    epoch-greedy    Theorem 2   tau = 3, J = L^2, or `most_warmup_users` if that is fewer

Phase 1 serves each user by their own LinUCB, and classes are learned from the uniform steps alone.  To save time,
all J users take only their uniform steps, and a sample of users takes all steps, to estimate the regret of phase 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.bandit import Bandit
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_policies.epoch_greedy import EpochGreedy
from lcb.bandits.over_policies.exp3 import EXP3
from lcb.bandits.over_policies.exp4p import EXP4P
from lcb.errors import ConvergenceWarning, InputError
from lcb.evaluate.worlds.paper import SimulatedUsers, SimulatedWorld
from lcb.learners.em import gaussian as em
from lcb.learners.spectral import experts as spectral
from lcb.learners.spectral.moments import Moments
from lcb.models import LatentModels
from lcb.policies import ClassPolicies
from lcb.recommenders.individual import Individual
from lcb.recommenders.latent import Latent, Learn
from lcb.stats import UserStats
from lcb.theory import TheoremSchedule, schedule_1, schedule_2

BanditName = Literal["exp4p", "exp3", "epoch-greedy"]
BANDITS: tuple[BanditName, ...] = ("exp4p", "exp3", "epoch-greedy")
Learner = Literal["em", "spectral"]

_AT_ONCE = 20_000  # steps drawn at a time
_SAMPLED = 40_000  # steps of the sample of users of phase 1 who take all steps; at least 4 users


@dataclass(frozen=True)
class ScheduleRun:
    """One run: every user has `n_steps` steps, and regret is measured after each number of `users` of phase 2.

    EM relearns after every `retrain_every` users of phase 2; Spectral Experts learns from phase 1 alone.
    """

    world: SimulatedWorld
    n_steps: int
    users: tuple[int, ...]
    seed: int
    run: int
    learner: Learner = "em"
    needed_per_class: int = 10  # users that the learner needs per class
    most_warmup_users: int = 10_000
    retrain_every: int = 50
    warmup_width: float = 0.25

    def __post_init__(self) -> None:
        if self.learner not in ("em", "spectral"):
            raise InputError(f"learner={self.learner!r}; choose 'em' or 'spectral'")
        if self.n_steps < 1 or min(self.users, default=0) < 1:
            raise InputError(f"n_steps={self.n_steps}, users={self.users}; give at least one user and one step")

    def schedule(self, bandit: BanditName) -> TheoremSchedule:
        """Return the schedule of the bandit's theorem, with J at most `most_warmup_users`."""
        needed = self.needed_per_class * self.world.models.n_classes
        if bandit != "epoch-greedy":
            return schedule_1(self.n_steps, None, needed, bandit)
        plan, most = schedule_2(self.n_steps, needed), self.most_warmup_users
        if plan.n_warmup_users <= most:
            return plan
        applied = f"J = {most} users, the most that are run (L^2 would be {plan.n_warmup_users})"
        return replace(plan, n_warmup_users=most, applied=applied)


def play_schedules(task: ScheduleRun) -> Floats:
    """Return, for each bandit and number of users, the regret of phase 2, the part of it that is the models' error, and
    the regret of phase 1: (bandits, 3, len(users)).
    """
    most = max(task.users)
    world_rng, *rngs = np.random.default_rng((task.seed, task.run, task.n_steps, most)).spawn(1 + 2 * len(BANDITS))
    started: dict[TheoremSchedule, tuple[LatentModels, Learn | None, float]] = {}
    recommenders, warmup = [], []
    for bandit, rng in zip(BANDITS, rngs[: len(BANDITS)], strict=True):
        plan = task.schedule(bandit)
        alike = replace(plan, bandit="exp4p")  # bandits with the same schedule share phase 1
        if alike not in started:
            started[alike] = _run_phase_1(task, plan, rng)
        models, learn, regret = started[alike]
        recommenders.append(_build_phase_2(task, bandit, plan, models, learn, rng))
        warmup.append(regret)
    lost = np.empty((len(BANDITS), 2, most))
    for names, users in _draw_blocks(task.world, most, task.n_steps, world_rng):
        rewards = users.rewards.clip(*task.world.reward_range)
        for i, recommender in enumerate(recommenders):
            arms = recommender.serve(names, users.contexts, rewards, rngs[len(BANDITS) + i])
            lost[i, 0, names.start : names.stop] = users.regret(arms)
            lost[i, 1, names.start : names.stop] = _compute_models_error(recommender, names, users)
    sums = lost.cumsum(axis=2)[:, :, np.array(task.users) - 1]
    phase_1 = np.broadcast_to(np.array(warmup)[:, None, None], (len(BANDITS), 1, len(task.users)))
    return np.concatenate([sums, phase_1], axis=1)


def _run_phase_1(
    task: ScheduleRun, plan: TheoremSchedule, rng: np.random.Generator
) -> tuple[LatentModels, Learn | None, float]:
    """Return models learned from the J users' uniform steps, a learner for phase 2, and the regret of the J users."""
    world, n_warmup, n_classes = task.world, plan.n_warmup_users, task.world.models.n_classes
    rows = []
    for names, users in _draw_blocks(world, n_warmup, plan.n_uniform_steps, rng):
        arms = rng.integers(world.n_arms, size=(len(names), plan.n_uniform_steps, 1))
        x = np.take_along_axis(users.contexts, arms[..., None], axis=2)[:, :, 0]
        reward = np.take_along_axis(users.rewards.clip(*world.reward_range), arms, axis=2)
        owner = np.repeat(np.array(names), plan.n_uniform_steps)
        rows.append((owner, x.reshape(len(owner), -1), reward.ravel()))
    owner, x, reward = (np.concatenate(column) for column in zip(*rows, strict=True))
    regret = n_warmup * _estimate_linucb_regret(task, plan, rng)
    if task.learner == "spectral":
        with _ignore_unconverged():
            return spectral.fit(Moments.from_rows(owner, x, reward), n_classes, rng=rng).models, None, regret
    first = UserStats.from_rows([("phase 1", int(u)) for u in owner], x, reward)

    def learn(stats: UserStats | None, rng: np.random.Generator, last: LatentModels | None) -> LatentModels:
        with _ignore_unconverged():
            known = first if stats is None else first + stats
            return em.fit(known, n_classes, rng=rng, start=last, n_threads=1).models

    return learn(None, rng, None), learn, regret


def _estimate_linucb_regret(task: ScheduleRun, plan: TheoremSchedule, rng: np.random.Generator) -> float:
    """Return the mean regret of a user of phase 1, estimated from a sample."""
    n_users = min(plan.n_warmup_users, max(4, _SAMPLED // task.n_steps))
    linucb, lost = Individual(LinUCB(task.world.models.n_features, task.warmup_width)), 0.0
    for names, users in _draw_blocks(task.world, n_users, task.n_steps, rng):
        rewards = users.rewards.clip(*task.world.reward_range)
        lost += users.regret(linucb.serve(names, users.contexts, rewards, rng, plan.n_uniform_steps)).sum()
    return lost / n_users


def _build_phase_2(
    task: ScheduleRun,
    bandit: str,
    plan: TheoremSchedule,
    models: LatentModels,
    learn: Learn | None,
    rng: np.random.Generator,
) -> Latent:
    def make_bandit(models: LatentModels) -> Bandit:
        policies, reward_range = ClassPolicies(models), task.world.reward_range
        if bandit == "exp4p":
            return EXP4P(policies, reward_range, horizon=task.n_steps)
        if bandit == "exp3":
            return EXP3(policies, reward_range, horizon=task.n_steps)
        return EpochGreedy(policies, schedule="bound", reward_range=reward_range)

    return Latent(
        models.n_features,
        make_bandit,
        learn,
        rng=rng,
        models=models,
        retrain_every=None if learn is None else task.retrain_every,
        **plan.settings(),
    )


def _compute_models_error(recommender: Latent, names: Sequence[int], users: SimulatedUsers) -> Floats:
    """Return the regret that the best policy of the models serving each user would have, (B,)."""
    lost = np.empty(len(names))
    for i, name in enumerate(names):
        version = recommender.version_of(name)
        assert version is not None
        arms = (users.contexts[i] @ recommender.versions[version].beta.T).argmax(axis=1)  # (T, N)
        taken = np.take_along_axis(users.means[i], arms, axis=1)
        lost[i] = (users.means[i].max(axis=1)[:, None] - taken).sum(axis=0).min()
    return lost


def _draw_blocks(
    world: SimulatedWorld, n_users: int, n_steps: int, rng: np.random.Generator
) -> Iterator[tuple[range, SimulatedUsers]]:
    """Draw users in blocks that fit into memory."""
    size = max(1, _AT_ONCE // n_steps)
    for start in range(0, n_users, size):
        names = range(start, min(start + size, n_users))
        yield names, world.draw(len(names), n_steps, rng)


@contextmanager
def _ignore_unconverged() -> Iterator[None]:
    """Suppress ConvergenceWarning: models that have not converged are used as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
