"""People of known tastes who are served by a service in this process, which is then exported and evaluated.

A request offers the whole catalogue or some of its items, those that people like least most often; halfway an item
leaves the catalogue and another comes.  So a policy that is asked over all items is not the one that is served.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lcb.serve.audit.export import export
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from support.inside import Inside, sqlite

N_ITEMS, N_OFFERED, N_STEPS = 9, 4, 20
CATEGORIES = tuple(f"c{i}" for i in range(N_ITEMS))
LIKES = np.array([np.linspace(0.05, 0.75, N_ITEMS), np.roll(np.linspace(0.05, 0.75, N_ITEMS), 2)])  # of two classes
_OFTEN = np.linspace(4, 1, N_ITEMS)  # how often an item is on offer, in proportion


def serve_people(
    folder: Path, spec: RecommenderSpec, n_people: int, seed: int, models: str | None = None
) -> tuple[Path, float]:
    """Serve people `N_STEPS` times each; return the exported log and their mean reward."""
    rng = np.random.default_rng((seed, 0x10))
    kind, total = rng.integers(0, 2, n_people), 0.0
    known = {"categories": CATEGORIES} if models is None else {"models": models}
    given = Settings(recommenders=(spec,), pages=False, **known)
    folder.mkdir(parents=True)
    with Inside(sqlite(folder / "lcb.db"), given) as inside:
        service = inside.service
        items = [{"id": name, "categories": [name]} for name in CATEGORIES]
        inside.items(*items[:-1])
        for t in range(N_STEPS):
            if t == N_STEPS // 2:
                inside.items(items[-1], remove=[CATEGORIES[1]])
            ids = service.world.state.catalogue.ids
            asked = [
                inside.begin_decide(f"u{u:04}", **_draw_offer(ids, rng, whole=u % 2 == 0)) for u in range(n_people)
            ]
            made = [json.loads(inside.ended(one)) for one in asked]
            clicks = rng.random(n_people) < LIKES[kind, [CATEGORIES.index(one["arm"]) for one in made]]
            sent = [inside.begin_reward(one["decision_id"], click) for one, click in zip(made, clicks, strict=True)]
            for one in sent:
                inside.ended(one)
            total += clicks.sum()
        export(inside.store, folder / "exported")
    return folder / "exported", total / (n_people * N_STEPS)


def _draw_offer(ids: list[str], rng: np.random.Generator, *, whole: bool) -> dict[str, Any]:
    """Return the arms of a request; none, for the whole catalogue."""
    often = _OFTEN[[CATEGORIES.index(id) for id in ids]]
    chosen = rng.choice(len(ids), N_OFFERED, replace=False, p=often / often.sum())
    return {} if whole else {"arms": [{"id": ids[i]} for i in chosen]}


def read_interval(told: dict[str, Any], algorithm: str) -> tuple[float, float]:
    """Return the 95 % interval of the mean reward of an algorithm, from the JSON of `lcb evaluate`."""
    row = next(one for one in told["results"] if one["algorithm"] == algorithm)
    middle, half = row["relative_ctr"], 1.96 * row["se"]
    rate = told["settings"]["logged_rate"]
    return (middle - half) * rate, (middle + half) * rate
