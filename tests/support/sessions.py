"""A session with every kind of event, for tests of what can be done with its log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.models.folder import pack_models
from support.harness import classes
from support.inside import Inside, sqlite

RECOMMENDERS = (
    RecommenderSpec("lcb", "thompson", settings={"gamma": 0.1}),
    RecommenderSpec("exp4", "exp4"),
    RecommenderSpec("epochs", "epoch-greedy"),
    RecommenderSpec("population", "linucb", scope="everyone"),
    RecommenderSpec("own", "lints"),
    RecommenderSpec("any", "uniform"),
)


def vectors(chance: random.Random, n_arms: int = 4, n_features: int = 3) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "x": [chance.gauss(0, 1) for _ in range(n_features)]} for i in range(n_arms)]


def run_session(path: Path, *, seed: int = 0, n: int = 120, erase: bool = True, **more: Any) -> Inside:
    """Run a session: new users before and after there are models, lists, items, user features, late and changed
    rewards, erasures.
    """
    given = {"recommenders": RECOMMENDERS, "rewards": "once", "reward_range": (0.0, 1.0), **more}
    inside = Inside(sqlite(path), Settings(pages=False, **given))
    chance = random.Random(seed)
    waiting: list[tuple[str, str]] = []
    inside.items(*({"id": f"i{j}", "x": [chance.gauss(0, 1) for _ in range(3)]} for j in range(5)))
    for i in range(n):
        if i in (n // 4, n // 2):
            manifest, tensors = pack_models(classes(seed=i, n_classes=2 + i % 3, n_features=3))
            inside.done(inside.service.add_model(manifest, tensors, active=True, reason="a test", n_users=i))
        if i == 2 * n // 3:
            inside.done(inside.service.activate(1, "back"))
        if i % 10 == 5:
            inside.items({"id": f"i{i % 7}", "x": [chance.gauss(0, 1) for _ in range(3)]}, remove=[f"i{i % 3}"])
        items = [{"id": id} for id in inside.service.world.state.catalogue.ids]
        request: dict[str, Any] = [
            {"arms": vectors(chance)}, {}, {"arms": items[:3]},
            {"arms": [{"id": f"b{j}", "x": [chance.gauss(0, 1)]} for j in range(3)], "x": [chance.random(), 0.5]},
        ][chance.randrange(4)]  # fmt: skip
        if chance.random() < 0.2:
            request["k"] = 2
        elif chance.random() < 0.2:
            shown = (
                request["arms"]
                if request.get("arms")
                else [{"id": id} for id in inside.service.world.state.catalogue.ids]
            )
            request |= {"chosen": shown[0]["id"]} | ({"chosen_propensity": 0.25} if chance.random() < 0.5 else {})
        if chance.random() < 0.5:
            request["decision_id"] = f"d{i}"
        name = f"u{chance.randrange(max(2, n // 8))}"
        answer = inside.decide(name, **request)
        slots = answer.get("slots") or [{"reward_id": answer["decision_id"]}]
        waiting += [(name, slot["reward_id"]) for slot in slots]
        chance.shuffle(waiting)
        while waiting and chance.random() < 0.5:
            inside.reward(waiting.pop()[1], float(chance.random() < 0.5))
        if i == n // 2:
            inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())
        if erase and i == 3 * n // 4:
            inside.erase("u1")
            waiting = [one for one in waiting if one[0] != "u1"]
    return inside
