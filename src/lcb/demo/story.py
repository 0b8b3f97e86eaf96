"""What `lcb demo` shows: a log of past readers -> classes -> new readers served -> click-through rates.

Past readers were offered articles at random.  Their log gives the classes; new readers are served by a bandit over
them, and for comparison by one LinUCB for all readers that learned from the same log and continues to learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats
from lcb.bandits.linear.linucb import LinUCB
from lcb.bandits.over_classes.learned_classes import LearnedClasses
from lcb.bandits.uniform import Uniform
from lcb.demo.readers import NewsFront, draw_articles
from lcb.evaluate.choice.choose import choose, learn_chosen
from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.event_log import EventLog
from lcb.models import Fit, LatentModels
from lcb.progress import Progress, silent
from lcb.recommenders.latent import Latent
from lcb.recommenders.pooled import Pooled
from lcb.recommenders.recommender import Recommender
from lcb.stats import UserStats

N_PAST, N_STEPS, N_ARTICLES = 4000, 20, 200
_N_TRIED = 1000  # past readers on whom kind and number of classes are chosen, in a quarter of the time of all
_BLOCK = 100


@dataclass(frozen=True, eq=False)
class ReaderStep:
    """One step of one reader: the article shown, whether it was clicked, and the posterior after it."""

    categories: list[str]
    propensity: float
    clicked: bool
    posterior: Floats = field(repr=False)


def simulate_past_log(world: NewsFront, n_users: int, rng: np.random.Generator) -> EventLog:
    """Draw the log of past readers who were offered articles at random."""
    users = world.draw(n_users, N_STEPS, rng)
    arms = rng.integers(world.n_arms, size=(n_users, N_STEPS, 1))
    x = np.take_along_axis(users.contexts, arms[..., None], axis=2)[:, :, 0]
    reward = np.take_along_axis(users.rewards, arms, axis=2)[..., 0]
    names = np.repeat(np.arange(n_users), N_STEPS)
    return EventLog.from_rows(names, x.reshape(len(names), -1), reward.ravel(), features=world.models.features)


def fit_classes(log: EventLog, rng: np.random.Generator, progress: Progress = silent) -> Fit:
    """Learn the classes; their kind and number and the bonus are chosen by serving past readers."""
    choice = choose(log.take(np.arange(min(_N_TRIED, log.n_users))), rng=rng, progress=progress)
    return learn_chosen(log, choice, rng=rng, progress=progress)


def serve_reader(world: NewsFront, models: LatentModels, rng: np.random.Generator) -> tuple[int, Iterator[ReaderStep]]:
    """Return the kind of one new reader, and an iterator that serves the reader step by step."""
    users = world.draw(1, N_STEPS, rng)
    return int(users.label[0]), _iterate_steps(users, models, rng)


def _iterate_steps(users: SimulatedUsers, models: LatentModels, rng: np.random.Generator) -> Iterator[ReaderStep]:
    bandit = LearnedClasses(models)
    state = bandit.start()
    for context, rewards in zip(users.contexts[0], users.rewards[0], strict=True):
        decision = bandit.choose(state, context, rng)
        state = bandit.update(state, decision, rewards[decision.arm])
        categories = [models.features[j] for j in np.flatnonzero(decision.x)]
        yield ReaderStep(categories, float(decision.propensity), bool(rewards[decision.arm]), bandit.weights(state))


def measure_clicks(
    world: NewsFront, models: LatentModels, stats: UserStats, n_users: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Return the click-through rate of each new reader under each recommender, on the same readers and articles."""
    linucb = LinUCB(models.n_features)
    population = Pooled(linucb)
    population.state = linucb.train(stats)
    d = models.n_features
    recommenders: dict[str, Recommender] = {
        "lcb": Latent(d, LearnedClasses, rng=rng, models=models, retrain_every=None),
        "linucb-population": population,
        "random": Pooled(Uniform()),
    }
    rates: dict[str, list[Floats]] = {name: [] for name in recommenders}
    for start in range(0, n_users, _BLOCK):
        names = range(start, min(start + _BLOCK, n_users))
        users = world.draw(len(names), N_STEPS, rng)
        for name, recommender in recommenders.items():
            arms = recommender.serve(names, users.contexts, users.rewards, rng)
            rates[name].append(np.take_along_axis(users.rewards, arms[..., None], axis=2)[..., 0].mean(axis=1))
    return {name: np.concatenate(parts) for name, parts in rates.items()}


def build_world(rng: np.random.Generator) -> NewsFront:
    return NewsFront(draw_articles(N_ARTICLES, rng))
