"""A service in this process that starts from nothing and learns from its own decisions, in a world that is known.

What its learning process would do is done here, after every 50 users.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from lcb.arrays import Floats
from lcb.errors import TooFewRows
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.learn.job import Job
from lcb.serve.learn.worker import learn
from lcb.storage.store.open_store import open_store
from support.inside import Inside, sqlite

N_ITEMS, N_STEPS, EVERY = 12, 20, 50
CATEGORIES = ("sport", "arts", "science")
WORLDS = ("kinds", "alike", "unique", "appeal", "newcomer", "unlike")


def draw_rates(world: str, n_users: int, rng: np.random.Generator) -> Floats:
    """Return the rate of every item for every user, (users, items); the worlds are described in the benchmark."""
    n = len(CATEGORIES)
    own = rng.integers(0, n, n_users) if world != "alike" else np.zeros(n_users, int)
    by_category = np.where(np.arange(n) == own[:, None], 0.4, 0.1)
    if world == "unique":
        by_category = rng.uniform(0.05, 0.45, (n_users, n))
    if world == "unlike":
        by_category = rng.uniform(0.1, 0.45, (rng.integers(1, 4), n))
        by_category = by_category[rng.integers(0, len(by_category), n_users)]
    rates = by_category[:, np.arange(N_ITEMS) % n]
    if world in ("newcomer", "unlike"):
        late = np.arange(n_users) >= n_users // 2
        new = 2 * rates[:, :1] if world == "newcomer" else np.full((n_users, 1), rates.max() + 0.15)
        rates = np.concatenate([rates, late[:, None] * new], axis=1)
    return rates * rng.uniform(0.5, 1.5, N_ITEMS) if world == "appeal" else rates


def serve(spec: RecommenderSpec, rates: Floats, seed: int, folder: Path) -> tuple[Floats, list[str]]:
    """Return the mean rate of each user's items, (users,), and a line for every version."""
    rng = np.random.default_rng((seed, 7))
    n_users, found, lines = len(rates), np.zeros(len(rates)), []
    given = Settings(recommenders=(spec,), pages=False, categories=CATEGORIES, store=str(folder / "lcb.db"))
    items = [{"id": f"i{i}", "categories": [CATEGORIES[i % len(CATEGORIES)]]} for i in range(rates.shape[1])]
    with Inside(sqlite(folder / "lcb.db"), given) as inside:
        inside.items(*items[:N_ITEMS])
        for begin in range(0, n_users, EVERY):
            if len(items) > N_ITEMS and begin == n_users // 2 // EVERY * EVERY:
                inside.items(items[-1])
            users = list(range(begin, min(begin + EVERY, n_users)))
            for _ in range(N_STEPS):
                asked = [inside.begin_decide(f"u{u:05}") for u in users]
                made = [json.loads(inside.ended(one)) for one in asked]
                rate = rates[users, [int(one["arm"][1:]) for one in made]]
                found[users] += rate / N_STEPS
                clicks = rng.random(len(rate)) < rate
                sent = [inside.begin_reward(one["decision_id"], c) for one, c in zip(made, clicks, strict=True)]
                for answer in sent:
                    inside.ended(answer)
            if spec.over_classes:
                lines.append(learn_version(inside, given))
    return found, lines


def learn_version(inside: Inside, settings: Settings) -> str:
    """Learn from the log, add the version to the service, and return what it is."""
    service = inside.service
    seq, n_started = inside.done(service.begin_learning())
    job = Job(settings.store, seq, service.world.state.active, settings.learner, item_effects=True)
    store = open_store(settings.store, create=False)
    try:
        result = learn(job, store)
    except TooFewRows as error:
        return f"not yet: {error}"
    finally:
        store.close()
    version = inside.done(
        service.add_model(
            result.manifest,
            result.tensors,
            active=result.better,
            reason=result.reason,
            n_users=result.n_users,
            score=result.score,
            baseline=result.baseline,
            n_started=n_started,
            seen=job.seq,
        )
    )
    learner = json.loads(result.manifest)["provenance"]["learner"]
    return f"version {version}, {learner}: {result.reason}"
