"""Drill 3: the power fails.  What was flushed stays; of what was written after that, any part may be on disk.

SQLite writes a commit to the end of its write-ahead log and flushes that before `append` returns.  So the log is cut at
every page and within pages, with rubbish after the cut, and opened as after a power failure: everything acknowledged
when the flushed part was that long must be there.  A checkpoint that was interrupted leaves a mix of old and new pages
in the database file, and the whole write-ahead log.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.config.settings import Settings
from lcb.storage.store.sqlite.store import SQLite
from support.crashing_stores import ARMS, RECOMMENDERS
from support.harness import LONG, arms, models_folder, serving
from support.inside import Inside, Unsynced, fold_log

PAGE, HEADER, FRAME = 4096, 32, 24


def session(path: Path, kind: type[SQLite], n: int = 30) -> list[tuple[int, str]]:
    """Return what was acknowledged, each with the number of bytes of the write-ahead log that were on disk by then."""
    wal, known = Path(f"{path}-wal"), []
    with Inside(
        lambda: kind(path), Settings(recommenders=RECOMMENDERS, reward_range=(0.0, 1.0), pages=False)
    ) as inside:
        (level,) = inside.store._writer.execute("pragma synchronous").fetchone()  # type: ignore[attr-defined]
        for i in range(n):
            asked = [inside.begin_decide(f"u{i % 7}", arms=ARMS, decision_id=f"d{i}.{j}") for j in range(i % 4 + 1)]
            inside.write()
            ids = [json.loads(one.result())["decision_id"] for one in asked]
            inside.reward(ids[0], 1.0)
            flushed = wal.stat().st_size if level >= 2 else 0  # FULL: a commit is flushed before it returns
            known += [(flushed, id) for id in (*ids, f"r/{ids[0]}")]
        for part in ("", "-wal"):
            shutil.copy(f"{path}{part}", path.with_name(f"kept.db{part}"))
    return known


def cuts(size: int, chance: random.Random) -> list[int]:
    """Return the sizes to cut the write-ahead log to: the end of every page, and random places within pages."""
    whole = list(range(HEADER, size + 1, PAGE + FRAME))
    torn = [min(size, one + chance.randrange(1, PAGE + FRAME)) for one in whole]
    places = [0, 17, *whole, *torn, size]
    return places if LONG else chance.sample(places, 20)


def drill(folder: Path, kind: type[SQLite] = SQLite) -> int:
    """Cut the write-ahead log at each place and check the store; return the number of incomplete commits found."""
    known = session(folder / "lcb.db", kind)
    database, wal = (folder / "kept.db").read_bytes(), (folder / "kept.db-wal").read_bytes()
    chance, n_torn = random.Random(0), 0
    for cut in cuts(len(wal), chance):
        place = folder / f"{cut}.db"
        rest = random.Random(cut).randbytes(len(wal) - cut) if cut % 2 else b""
        place.write_bytes(database)
        Path(f"{place}-wal").write_bytes(wal[:cut] + rest)
        store = SQLite(place, serve=True)
        try:
            n_torn += store.discarded > 0
            ids = {row.id for row in store.events(0)}
            lost = [id for flushed, id in known if flushed <= cut and id not in ids]
            assert not lost, f"acknowledged and lost, with {cut} of {len(wal)} bytes: {lost[:3]}"
            check(store)
        finally:
            store.close()
        place.unlink()
    return n_torn


def check(store: SQLite) -> None:
    """Check that the log is complete and that events can be appended."""
    assert store._read("pragma integrity_check") == [("ok",)]
    if store.head():
        assert verify(store).differences == []
    with Inside(
        lambda: SQLite(store.path), Settings(recommenders=RECOMMENDERS, reward_range=(0.0, 1.0), pages=False)
    ) as on:
        on.reward(on.decide("new", arms=ARMS)["decision_id"], 1.0)
        assert compare_worlds(on.service.world, fold_log(on.store)) == []


def test_what_was_flushed_survives_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    assert drill(tmp_path) > 5


def test_a_store_that_does_not_flush_loses_what_it_acknowledged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        drill(tmp_path, Unsynced)


def test_a_checkpoint_that_was_broken_off_loses_nothing(tmp_path: Path) -> None:
    known = session(tmp_path / "lcb.db", SQLite)
    before, wal = (tmp_path / "kept.db").read_bytes(), (tmp_path / "kept.db-wal").read_bytes()
    done = SQLite(tmp_path / "kept.db")
    done.close()  # a clean end checkpoints everything
    after = (tmp_path / "kept.db").read_bytes()
    assert not (tmp_path / "kept.db-wal").exists()
    assert len(after) > len(before)
    chance = random.Random(1)
    for i in range(50 if LONG else 5):
        pages = [(before if chance.random() < 0.5 else after)[p : p + PAGE] for p in range(0, len(after), PAGE)]
        pages = [page or after[k * PAGE : (k + 1) * PAGE] for k, page in enumerate(pages)]
        place = tmp_path / f"mixed{i}.db"
        place.write_bytes(b"".join(pages))
        Path(f"{place}-wal").write_bytes(wal)
        store = SQLite(place)
        ids = {row.id for row in store.events(0)}
        assert ids >= {id for _, id in known}
        check(store)
        store.close()


def test_a_torn_end_is_told_in_one_line(tmp_path: Path) -> None:
    given: dict[str, Any] = {"models": models_folder(tmp_path), "log_format": "json"}
    with serving(tmp_path, **given) as server:
        with server.client() as http:
            for i in range(5):
                body = {"user": "ann", "arms": arms(np.random.default_rng(i)), "decision_id": f"d{i}"}
                assert http.post("/v1/decisions", json=body).status_code == 200
        server.kill()
    wal = tmp_path / "lcb.db-wal"
    wal.write_bytes(wal.read_bytes()[:-1000])  # the last commit is broken off
    with serving(tmp_path, **given) as server:
        lines = [line for line in server.output.read_text().splitlines() if "unfinished commit discarded" in line]
        assert len(lines) == 1
        with server.client() as http:
            assert http.post("/v1/decisions", json=body).status_code == 200
        assert server.stop() == 0
    store = SQLite(tmp_path / "lcb.db", serve=True)
    assert store.discarded == 0
    store.close()
