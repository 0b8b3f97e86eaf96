"""A learned version as a canary, through HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lcb.evaluate.worlds.paper import SimulatedWorld, paper_classes
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning
from lcb.serve.learn import supervisor
from lcb.serve.learn.schedule import next_training_at
from lcb.storage.models.folder import save_models
from support.learning import learn_here
from support.running import running

WORLD = SimulatedWorld(paper_classes(n_classes=3, n_features=6), n_arms=8)


def test_a_better_version_goes_to_a_share_of_newcomers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "run_job", learn_here)
    one = SimulatedWorld(paper_classes(n_classes=1, n_features=6), n_arms=8).models
    save_models(one, tmp_path / "one")
    learning = Learning(retrain_every=5, n_classes=3, canary=0.5, canary_users=2)

    async def drive() -> None:
        given = {"models": str(tmp_path / "one"), "recommenders": (RecommenderSpec("lcb", "thompson"),)}
        async with running(tmp_path, **given, learning=replace(learning, retrain_every=None)) as service:
            await service.visits("u", WORLD.draw(40, 6, np.random.default_rng(0)))
            assert (await service.http.post("/v1/models/retrain")).status_code == 202
            answer = await service.learned()
            assert answer["active"] == 1
            first = answer["versions"][0]
            assert (first["version"], first["status"]) == (2, "canary")
            assert first["reason"].startswith("canary for 0.5 of new users: 0 of 2 users with a reward so far; ")
            assert "lcb_canary_version 2.0" in (await service.http.get("/metrics")).text
            assert next_training_at(service.world, service.app.service.settings, learning, 0) is None  # not meanwhile
            for i in range(100):
                if service.world.state.canary is None:
                    break
                await service.visits(f"new{i}-", WORLD.draw(1, 2, np.random.default_rng(i)))
            assert (await service.models())["versions"][0]["status"] in ("active", "withdrawn")
            assert "lcb_canaries_total{outcome=" in (await service.http.get("/metrics")).text

    asyncio.run(drive())
