"""A service in this process without a socket, for tests that look inside it or replace a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.serve.config.settings import Settings
from lcb.serve.server import build_app
from lcb.serve.service import Service
from lcb.serve.web.app import App
from lcb.serve.web.keys import Keyring
from lcb.storage.store.open_store import open_store
from support.learning import build_command


class Running:
    """A running service and a client of it."""

    def __init__(self, app: App, http: httpx.AsyncClient) -> None:
        self.app, self.http, self.service, self.world = app, http, app.service, app.service.world

    async def decide(self, user: str, arms: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        answer = await self.http.post("/v1/decisions", json={"user": user, "arms": arms, **more})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def reward(self, decision_id: str, reward: float) -> None:
        answer = await self.http.post("/v1/rewards", json={"decision_id": decision_id, "reward": reward})
        assert answer.status_code == 200, answer.text

    async def models(self) -> dict[str, Any]:
        return dict((await self.http.get("/v1/models")).json())

    async def learned(self, seconds: float = 300) -> dict[str, Any]:
        """Wait until no learning runs."""
        async with asyncio.timeout(seconds):
            while self.app.retraining.running:
                await asyncio.sleep(0.02)
        return await self.models()

    async def visit(self, name: str, users: SimulatedUsers, i: int, n_steps: int | None = None) -> list[int]:
        """Serve one user of a generated world, step by step; return the arms that were shown."""
        shown = []
        for t, (context, rewards) in enumerate(
            zip(users.contexts[i][:n_steps], users.rewards[i][:n_steps], strict=True)
        ):
            made = await self.decide(name, arms_of(context), decision_id=f"{name}.{t}")  # the id seeds the draw
            arm = int(made["arm"])
            await self.reward(made["decision_id"], float(rewards[arm]))
            shown.append(arm)
        return shown

    async def visits(self, prefix: str, users: SimulatedUsers, at_once: int = 16, **more: Any) -> np.ndarray:
        """Serve all users, `at_once` at a time; return the arms that were shown, (B, T)."""
        room = asyncio.Semaphore(at_once)

        async def one(i: int) -> list[int]:
            async with room:
                return await self.visit(f"{prefix}{i}", users, i, **more)

        return np.array(await asyncio.gather(*map(one, range(len(users.label)))))


def arms_of(context: np.ndarray) -> list[dict[str, Any]]:
    return [{"id": str(a), "x": x.tolist()} for a, x in enumerate(context)]


@asynccontextmanager
async def running(
    folder: Path | str, *, keyring: Keyring | None = None, seed: bytes = b"0123456789abcdef", **settings: Any
) -> AsyncIterator[Running]:
    """Run a service with a store in a folder or at an address, and stop it at the end; `seed` is that of a new log.

    It takes rewards of any size, such as those of simulated users.
    """
    url = str(folder / "lcb.db") if isinstance(folder, Path) else folder
    made = Settings(store=url, **{"reward_range": (-1e9, 1e9)} | settings)
    store = open_store(url, serve=True)
    try:
        service = Service(made, store, seed=lambda: seed)
    except BaseException:
        store.close()
        raise
    app = build_app(service, keyring or Keyring())
    app.retraining.command = build_command
    service.start()
    app.retraining.start()
    app.canaries.start()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)  # type: ignore[arg-type]
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            yield Running(app, http)
    finally:
        await app.canaries.stop()
        await app.retraining.stop()
        await service.stop()
