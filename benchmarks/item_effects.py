"""A new item among 170, and what item effects cost a decision.

    python benchmarks/item_effects.py [--seeds 8] [--first 0] [--shown 20] [--horizon 1e5] [--only shares|cost|memory]

The world has two kinds of readers and 170 items in 5 categories with effects a_i ~ N(0.10, 0.04^2); readers like two
categories and dislike two others by 0.08.  A reader gets 20 items (`--shown`), each the best of those not shown yet.
The newcomer has the effect 0.20.  One service knows every effect; the other knows all but the newcomer's, which it
learns (a version knows 300 rewards of every other item).  Shares are of 300 readers after 300 offers of the newcomer;
the share is 0 if it does not get 300 offers from 3,000 readers.  `--horizon 0` is the rule before there was a horizon.

The cost is CPU time with and without effects in turn, medians over blocks of 100 decisions: of a bandit of the
library, of computing a decision in a service, and of a whole decision without HTTP, stored by 16 in one commit and
applied.  The memory is that of the effects of 1,000,000 items, without the texts of their ids.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcb import LearnedClasses, messages
from lcb.models import LatentModels
from lcb.models.item_effects import ITEM_HORIZON, ArmEffects, ItemEffects
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.items import ItemState
from lcb.storage.models.folder import pack_models
from support.inside import Inside, sqlite

N_ITEMS, N_CATEGORIES, N_OFFERS = 170, 5, 300
MOST_READERS, N_AFTER = 3000, 300
A0, SPREAD, NEW = 0.10, 0.04, 0.20
NOISE = 0.1
BETA = 0.08 * np.array([[1, 1, 0, -1, -1], [-1, -1, 0, 1, 1]])


def build(folder: str, effects: ItemEffects | None, horizon: float = ITEM_HORIZON) -> Inside:
    spec = RecommenderSpec("lcb", "learned-classes", settings={"item_horizon": horizon})
    inside = Inside(sqlite(Path(folder) / "lcb.db"), Settings(recommenders=(spec,), pages=False))
    x = np.eye(N_CATEGORIES)
    items = [{"id": f"i{i}", "x": x[i % N_CATEGORIES].tolist()} for i in range(N_ITEMS)]
    inside.items(*items, {"id": "new", "x": x[0].tolist()})
    models = LatentModels([0.5, 0.5], BETA, np.full(2, NOISE), item_effects=effects)
    manifest, tensors = pack_models(models)
    inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a benchmark", n_users=1))
    return inside


def measure_share(seed: int, n_steps: int, horizon: float, *, known: bool) -> tuple[float, int, float]:
    """Return the newcomer's share after its first 300 offers, how many readers these took, and the reward per offer."""
    rng = np.random.default_rng(seed)
    truth = dict(zip((f"i{i}" for i in range(N_ITEMS)), rng.normal(A0, SPREAD, N_ITEMS), strict=True)) | {"new": NEW}
    ids = [id for id in truth if known or id != "new"]
    variance = np.full(len(ids), 1e-9 if known else 1 / (1 / SPREAD**2 + 300 / NOISE))
    told = np.array([truth[id] for id in ids])
    if not known:
        told = told + rng.normal(0, np.sqrt(variance))
    effects = ItemEffects(
        tuple(ids), told, variance, np.full(len(ids), 300.0), prior_mean=A0, prior_variance=SPREAD**2, noise=NOISE
    )
    offers: list[bool] = []  # by reader: was the newcomer shown?
    expected = 0.0
    with tempfile.TemporaryDirectory() as folder, build(folder, effects, horizon) as inside:
        after = 0 if known else MOST_READERS
        while len(offers) < min(MOST_READERS, after + N_AFTER):
            reader, left = len(offers), list(truth)
            for _ in range(n_steps):
                answer = inside.decide(f"u{reader}", arms=[{"id": id} for id in left])
                id = answer["arm"]
                left.remove(id)
                category = 0 if id == "new" else int(id[1:]) % N_CATEGORIES
                rate = truth[id] + BETA[reader % 2, category]
                expected += rate
                inside.reward(answer["decision_id"], float(rng.random() < rate))
            offers.append("new" not in left)
            if after == MOST_READERS and sum(offers) == N_OFFERS:
                after = len(offers)
    share = sum(offers[-N_AFTER:]) / (N_AFTER * n_steps) if after < MOST_READERS else 0.0
    return share, after, expected / (len(offers) * n_steps)


def measure_cost(n_blocks: int = 40, n: int = 100) -> dict[str, float]:
    """Return the ratio of the CPU time of a decision with effects to one without, by the form of its arms."""
    ids = tuple(f"i{i}" for i in range(N_ITEMS))
    alike = np.full(N_ITEMS, A0)
    effects = ItemEffects(ids, alike, alike**2, alike, prior_mean=A0, prior_variance=SPREAD**2, noise=NOISE)
    x = np.eye(N_CATEGORIES)
    vectors = [messages.Arm(f"i{i}", x[i % N_CATEGORIES].tolist()) for i in range(20)]
    others = [vectors[i:] + vectors[:i] for i in range(1, 20)]
    forms = {
        "catalogue of 171": [None],
        "170 by id": [[messages.Arm(id) for id in ids]],
        "20 with features": [vectors],
        "20 with features, others each time": others,
    }
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        services = [build(one, effects), build(two, None)]
        for name, arms in forms.items():
            times: list[list[float]] = [[], []]
            stored: list[list[float]] = [[], []]
            for block in range(n_blocks + 4):
                for which, inside in enumerate(services):
                    answer = inside.decide(f"{name}{block}", arms=[{"id": "i1"}])
                    inside.reward(answer["decision_id"], 0.0)
                    requests = [messages.DecisionRequest(f"{name}{block}", own) for own in arms]
                    many = [requests[i % len(requests)] for i in range(n)]
                    begin = time.process_time()
                    for request in many:
                        inside.service.decisions.decide(request)
                    middle = time.process_time()
                    for i in range(n // 16):
                        asked = [inside.ask(inside.service.decide(request)) for request in many[16 * i : 16 * i + 16]]
                        for one in asked:
                            inside.ended(one)
                    if block >= 4:
                        times[which].append((middle - begin) / n)
                        stored[which].append((time.process_time() - middle) / (n // 16 * 16))
            for what, of in (("computed", times), ("stored and applied", stored)):
                found[f"{name}, {what}"] = statistics.median(of[0]) / statistics.median(of[1])
                found[f"{name}, {what}, us without"] = 1e6 * statistics.median(of[1])
        for inside in services:
            inside.close()
    return found


def measure_bandits(n_blocks: int = 60, n: int = 50) -> dict[str, str]:
    """Return, by classes and arms, the CPU time of `LearnedClasses.choose` and its ratio with effects to without."""
    rng, found = np.random.default_rng(0), {}
    for n_classes, personal in ((10, True), (1, True), (1, False), (20, False)):
        for d, n_arms in ((5, 20), (20, 20), (5, 170), (20, 170)):
            covariance = np.tile(0.01 * np.eye(d), (n_classes, 1, 1)) if personal else None
            beta, pi = 0.1 * rng.normal(size=(n_classes, d)), np.full(n_classes, 1 / n_classes)
            models = LatentModels(pi, beta, np.full(n_classes, NOISE), covariance=covariance, personal=personal)
            bandit, x = LearnedClasses(models, item_bonus=1.0), rng.normal(size=(n_arms, d))
            effects, state = ArmEffects(rng.normal(size=n_arms), rng.random(n_arms)), bandit.start()
            for _ in range(5):
                state = bandit.update(state, bandit.choose(state, x, rng, effects), 1.0)
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(n_blocks):
                for own, given in zip(times, (None, effects), strict=True):
                    begin = time.process_time()
                    for _ in range(n):
                        bandit.choose(state, x, rng, given)
                    own.append((time.process_time() - begin) / n)
            without, with_effects = (statistics.median(own) for own in times)
            kind = "personal" if personal else "point"
            found[f"{n_classes} {kind}, {n_arms} arms of {d}"] = (
                f"{1e6 * without:.1f} us x {with_effects / without:.3f}"
            )
    return found


def measure_memory(n: int = 1_000_000) -> dict[str, float]:
    """Return the megabytes of effects of `n` items: alone, with the look-up by id, and in a service that uses all."""
    ids = tuple(f"item {i}" for i in range(n))
    found, values = {}, np.full(n, 0.01)
    tracemalloc.start()
    effects = ItemEffects(ids, values, values, values, prior_mean=A0, prior_variance=SPREAD**2, noise=NOISE)
    found["effects"] = tracemalloc.get_traced_memory()[0] / 1e6
    effects.of(ids[:1])
    found["with look-up by id"] = tracemalloc.get_traced_memory()[0] / 1e6
    state = ItemState(Catalogue())
    state.restore(state.sums, effects)
    for i in range(0, n, 10_000):
        state.of_arms(ids[i : i + 10_000])
    found["in a service"] = tracemalloc.get_traced_memory()[0] / 1e6
    for id in ids[: n // 10]:
        state.add(id, (1, 0.5))
    found["after rewards of a tenth of them"] = tracemalloc.get_traced_memory()[0] / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--shown", type=int, default=20, help="items that a reader gets")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--horizon", type=float, default=ITEM_HORIZON)
    parser.add_argument("--only", choices=["shares", "cost", "memory"])
    options = parser.parse_args()
    ratios = []
    for seed in range(options.first, options.first + options.seeds if options.only in (None, "shares") else 0):
        (target, *_), (share, readers, reward) = (
            measure_share(seed, options.shown, options.horizon, known=known) for known in (True, False)
        )
        ratios.append(share / target)
        row = {"seed": seed, "known": target, "learned": share, "ratio": share / target, "readers": readers}
        print(json.dumps(row | {"reward": reward}), flush=True)
    if ratios:
        print(json.dumps({"mean ratio": statistics.mean(ratios), "reached": sum(one >= 0.8 for one in ratios)}))
    if options.only in (None, "memory"):
        print(json.dumps({"megabytes": measure_memory()}))
    if options.only in (None, "cost"):
        print(json.dumps({"bandits": measure_bandits()}), flush=True)
        print(json.dumps({"service": measure_cost()}))


if __name__ == "__main__":
    main()
