"""Drill 4: the disk is full.  Writes are refused with 503, nothing is half written, reads work; with space, writes too.

The disk is a tmpfs of 3 MB in the service's own mount namespace.  If the system allows no such namespace, the size of
files is limited to 3 MB, on which writes fail in the same way.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from lcb.serve.audit.verify import verify
from lcb.storage.store.sqlite.store import SQLite
from support.harness import LONG, Server, arms, models_folder, start

SIZE = 3 << 20
MOST = 20_000  # requests before 3 MB must be full
PATIENCE = 5.0  # seconds of room


def namespaces() -> bool:
    """Whether a process may create its own mount namespace."""
    try:
        return subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Disk:
    """A small disk; `folder` is its path for other processes."""

    def __init__(self, server: Server, folder: Path, *, limited: bool) -> None:
        self.server, self.folder, self.limited = server, folder, limited
        if limited:
            self._limit(SIZE)
        else:
            (folder / "ballast").write_bytes(b"x" * (1 << 20))

    def make_room(self) -> None:
        if self.limited:
            self._limit(4 * SIZE)
        else:
            (self.folder / "ballast").unlink()

    def _limit(self, size: int) -> None:
        _, most = resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE, (size, most))


@contextmanager
def small_disk(folder: Path, without: tuple[str, ...] = ()) -> Iterator[Disk]:
    place, limited = folder / "small", not namespaces()
    place.mkdir()
    mount = f"mount -t tmpfs -o size={SIZE} tmpfs '{place}' && exec \"$@\""
    within = () if limited else ("unshare", "-Urm", "sh", "-c", mount, "sh")
    server = start(folder, without=without, within=within, models=models_folder(folder), store=str(place / "lcb.db"))
    try:
        seen = place if limited else Path(f"/proc/{server.process.pid}/root{place}")
        yield Disk(server, seen, limited=limited)
    finally:
        server.kill()


def drill(folder: Path, without: tuple[str, ...] = ()) -> None:
    rng, known = np.random.default_rng(0), []

    def decide(http: httpx.Client) -> httpx.Response:
        body = {"user": f"u{rng.integers(20)}", "arms": arms(rng), "decision_id": f"d{len(known)}.{rng.integers(1e9)}"}
        answer = http.post("/v1/decisions", json=body)
        if answer.status_code == 200:
            known.append(answer.json()["decision_id"])
        return answer

    with small_disk(folder, without) as disk, disk.server.client() as http:
        refused = fill(http, decide)
        assert refused is not None, "3 MB are never full"
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert "free space" in refused.json()["detail"]
        for _ in range(20):
            assert decide(http).status_code in (200, 503)
        assert http.get("/healthz").status_code == 200
        assert http.get(f"/v1/users/u{rng.integers(20)}").status_code == 200
        for _ in range(15):  # three test writes
            assert http.get("/readyz").status_code == 503, "ready with a full disk"
            time.sleep(0.1)
        check(disk, folder / "full.db", known)
        disk.make_room()
        wait_until_ready(http)
        assert decide(http).status_code == 200
        assert http.get("/readyz").status_code == 200
        check(disk, folder / "after.db", known)


def wait_until_ready(http: httpx.Client) -> None:
    """Wait as a load balancer does, which sends no decisions to a service that is not ready."""
    began, most = time.monotonic(), PATIENCE if LONG else 12 * PATIENCE
    while http.get("/readyz").status_code != 200:
        assert time.monotonic() - began < most, f"not ready after {most} s of room"
        time.sleep(0.05)


def fill(http: httpx.Client, decide) -> httpx.Response | None:
    """Send decisions until one is refused; return that answer."""
    for _ in range(MOST):
        answer = decide(http)
        if answer.status_code != 200:
            return answer
    return None


def check(disk: Disk, copy: Path, known: list[str]) -> None:
    """Check that every acknowledged event is on the disk and that the log is complete; nothing may be writing."""
    for part in ("", "-wal"):
        shutil.copyfile(f"{disk.folder}/lcb.db{part}", f"{copy}{part}")
    store = SQLite(copy)
    try:
        assert store._read("pragma integrity_check") == [("ok",)]
        ids = [row.id for row in store.events(0) if row.kind == "decision"]
        assert set(known) <= set(ids), "an acknowledged decision is lost"
        assert verify(store).differences == []
    finally:
        store.close()


def test_a_full_disk_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    drill(tmp_path)


def test_a_service_that_goes_on_as_if_loses_what_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "MOST", 700)
    with pytest.raises(AssertionError):
        drill(tmp_path, ("refusal",))


def test_a_service_that_waits_for_a_request_is_never_ready_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PATIENCE", 2.0 / (1 if LONG else 12))
    with pytest.raises(AssertionError, match="not ready after"):
        drill(tmp_path, ("test writes",))


def test_a_limit_on_the_size_of_files_is_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "namespaces", lambda: False)
    drill(tmp_path)
