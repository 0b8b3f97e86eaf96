"""Drill 14: learning is killed, raises, runs out of memory, hangs or sends rubbish; the old version is still served."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lcb.serve.config.settings import Learning
from lcb.serve.learn.supervisor import Retraining
from support.faulty_learning import OF_FRAMES, OF_MODELS, OF_PHASES, PHASES
from support.harness import LONG, arms, models_folder, serving
from support.learning import build_command
from support.running import Running, arms_of, running

ALL = [
    *((fault, phase) for fault in OF_PHASES for phase in PHASES),
    *((fault, "reading") for fault in (*OF_MODELS, *OF_FRAMES)),
]
FAULTS = ALL if LONG else [
    ("kill", "reading"), ("memory", "scoring"), ("hang", "reading"), ("nan", "reading"), ("truncated", "reading"),
    ("garbage", "reading"),
]  # fmt: skip
_SCRIPT = str(Path(__file__).parents[1] / "support" / "faulty_learning.py")


def faulty(fault: str, phase: str) -> list[str]:
    return [sys.executable, _SCRIPT, fault, phase]


async def drill(folder: Path, faults: list[tuple[str, str]]) -> None:
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    learning = Learning(retrain_every=None, n_classes=2, max_seconds=600)
    async with running(folder, models=models_folder(folder), learning=learning, pages=False) as service:
        await some_rewards(service)
        files = sorted(path.name for path in folder.iterdir())
        for n, (fault, phase) in enumerate(faults, start=1):
            service.app.retraining.command = lambda fault=fault, phase=phase: faulty(fault, phase)
            service.app.retraining.settings = Learning(
                retrain_every=None, n_classes=2, max_seconds=1.0 if fault == "hang" else 600
            )
            assert (await service.http.post("/v1/models/retrain")).status_code == 202
            pid = await serves_on(service, f"{fault} {phase}")
            answer = await service.models()
            assert answer["active"] == 1, (fault, phase)
            assert [version["version"] for version in answer["versions"]] == [1], (fault, phase)
            said = answer["retraining"]
            assert (said["n_failed"], said["running"]) == (n, False), (fault, phase, said)
            assert said["error"], (fault, phase)
            assert pid is None or not Path(f"/proc/{pid}").exists(), "a process is left behind"
            assert sorted(path.name for path in folder.iterdir()) == files
            assert list(temporary.iterdir()) == [], "a file is left behind"
        metrics = (await service.http.get("/metrics")).text
        assert f"lcb_failed_trainings_total {len(faults)}.0" in metrics
        service.app.retraining.command = build_command
        service.app.retraining.settings = learning
        assert (await service.http.post("/v1/models/retrain")).status_code == 202
        answer = await service.learned()
        assert len(answer["versions"]) == 2, "it does not recover"
        assert answer["retraining"]["error"] is None


async def some_rewards(service: Running) -> None:
    rng = np.random.default_rng(0)
    for i in range(60):
        made = await service.decide(f"u{i // 2}", arms_of(rng.normal(size=(4, 6))))
        await service.reward(made["decision_id"], float(rng.normal()))


async def serves_on(service: Running, words: str) -> int | None:
    """Send requests until learning has failed and check that the old version answers; return the learning process."""
    pid, i = None, 0
    rng = np.random.default_rng(1)
    while service.app.retraining.running:
        pid = pid or (service.app.retraining.process and service.app.retraining.process.pid)
        made = await service.decide(f"{words} {i}", arms_of(rng.normal(size=(4, 6))))
        assert made["model"] == 1, words
        await service.reward(made["decision_id"], 0.0)
        await asyncio.sleep(0.02)
        i += 1
    return pid


def test_the_old_version_serves_on_whatever_becomes_of_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "")
    asyncio.run(drill(tmp_path, FAULTS))


@pytest.mark.parametrize("fault", ["nan", "wider"])
def test_a_service_that_takes_what_it_gets_does_not_stand_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.setattr(Retraining, "_check", lambda self, learned: None)
    with pytest.raises(AssertionError):
        asyncio.run(drill(tmp_path, [(fault, "reading")]))


def test_what_libraries_print_while_they_learn_does_no_harm(tmp_path: Path) -> None:
    async def drive() -> None:
        learning = Learning(retrain_every=None, n_classes=2)
        async with running(tmp_path, models=models_folder(tmp_path), learning=learning, pages=False) as service:
            await some_rewards(service)
            service.app.retraining.command = lambda: faulty("chatter", "-")
            assert (await service.http.post("/v1/models/retrain")).status_code == 202
            answer = await service.learned()
            assert answer["retraining"]["error"] is None
            assert len(answer["versions"]) == 2

    asyncio.run(drive())


def test_a_failure_is_not_tried_again_until_as_many_new_users_have_come(tmp_path: Path) -> None:
    async def drive() -> None:
        learning = Learning(n_warmup_users=10, retrain_every=5, n_classes=2)
        async with running(tmp_path, learning=learning, pages=False) as service:
            service.app.retraining.command = lambda: ["false"]
            await some_rewards(service)
            while service.app.retraining.running:
                await asyncio.sleep(0.01)
            failed = service.app.metrics.n_failed_trainings
            assert 1 <= failed <= 1 + 20 // 5
            assert "ended with exit code 1" in (await service.models())["retraining"]["error"]
            for i in range(20):
                made = await service.decide("u0", arms_of(np.eye(6)[: 2 + i % 3]))
                await service.reward(made["decision_id"], 1.0)
            assert service.app.metrics.n_failed_trainings == failed

    asyncio.run(drive())


def orphan_drill(folder: Path, fault: str) -> None:
    """Kill the service while it learns, and check that the learning process ends too."""
    learning = {"n_warmup_users": 2, "n_classes": 1, "retrain_every": None}
    child = None
    with serving(folder, without=(f"learning:{fault}",), learning=learning) as server:
        with server.client() as http:
            for i in range(3):
                made = http.post("/v1/decisions", json={"user": f"u{i}", "arms": arms(np.random.default_rng(i))}).json()
                http.post("/v1/rewards", json={"decision_id": made["decision_id"], "reward": 1.0})
            until = time.monotonic() + 60
            while not http.get("/v1/models").json()["retraining"]["phase"] and time.monotonic() < until:
                time.sleep(0.02)
        children = Path(f"/proc/{server.process.pid}/task").glob("*/children")
        (child,) = {int(word) for path in children for word in path.read_text().split()}
        server.kill()
        until = time.monotonic() + (60 if fault == "hang" else 1)
        while alive(child) and time.monotonic() < until:
            time.sleep(0.02)
    try:
        assert not alive(child), "the learning process lives on"
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_learning_ends_when_the_service_is_killed(tmp_path: Path) -> None:
    orphan_drill(tmp_path, "hang")


def test_a_process_that_does_not_watch_its_parent_lives_on(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lives on"):
        orphan_drill(tmp_path, "orphan")
