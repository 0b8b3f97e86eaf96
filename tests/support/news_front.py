"""The news front in this process: its settings, and a visitor who answers headlines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from lcb.demo.readers import CATEGORIES, reader_classes
from lcb.features import fit_features
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Limits, Settings
from lcb.storage.models.folder import save_models

RECOMMENDERS = (RecommenderSpec("lcb"), RecommenderSpec("population", "linucb", scope="everyone"))


def front(folder: Path, store: str = "", **more: Any) -> Settings:
    models = folder / "models"
    if not models.exists():
        kinds = replace(reader_classes(), likelihood="bernoulli", levels=(0.0, 1.0))
        save_models(kinds, models, feature_map=fit_features("one-hot", CATEGORIES, []))
    limits = Limits(visitor_rate=0, open_visits=10**6, failures=0)
    given = {"models": str(models), "items": "headlines", "recommenders": RECOMMENDERS, "limits": limits, **more}
    return Settings(store=store or str(folder / "lcb.db"), learning=Learning(retrain_every=None), **given)


async def read(
    client: httpx.AsyncClient, liked: Collection[str] = (), n: int = 20, *, study: bool = False, again: bool = True
) -> dict[str, Any]:
    """Answer `n` headlines as one visitor; return the last state that the page got."""
    seen = (await client.post("/page/visit", json={"study": study, "again": again})).json()
    while seen["step"] < n:
        opened = bool(set(seen["offer"]["categories"]) & set(liked))
        body = {"decision_id": seen["offer"]["decision_id"], "opened": opened}
        answered = await client.post("/page/answer", json=body)
        assert answered.status_code == 200, answered.text
        seen = answered.json()
    return seen
