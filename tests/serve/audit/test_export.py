"""The table that a log is exported to."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lcb.serve.audit.catalogue_history import CatalogueHistory
from lcb.serve.audit.export import export
from lcb.serve.events import ItemsBody
from lcb.serve.state.catalogue import Catalogue
from support.inside import Inside
from support.sessions import run_session


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    made = run_session(tmp_path / "lcb.db")
    yield made
    made.close()


def test_memory_does_not_grow_with_the_events_of_an_export(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows leave in groups; the file is the same whatever their size."""
    export(inside.store, tmp_path / "one.parquet", missing=None)
    monkeypatch.setattr("lcb.serve.audit.export._GROUP", 7)
    export(inside.store, tmp_path / "many.parquet", missing=None)
    one, many = (pq.ParquetFile(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    assert one.read().equals(many.read())
    assert one.num_row_groups == 1
    assert many.num_row_groups == -(-many.metadata.num_rows // 7)


def test_the_history_of_a_catalogue_is_the_catalogue_at_every_moment() -> None:
    chance, catalogue, history, then = random.Random(0), Catalogue(), CatalogueHistory(), {}
    for seq in range(1, 200, 2):
        some = [(f"i{j}", b"", ["c"], None, None) for j in chance.sample(range(8), chance.randrange(4))]
        body = ItemsBody(0.0, some, [f"i{j}" for j in chance.sample(range(8), 2)], chance.random() < 0.1)
        for one in (body, ItemsBody(0.0, some, [], replace=True)) if seq == 99 else (body,):
            catalogue.apply(one)
            history.apply(seq, one)
        then[seq] = then[seq + 1] = list(catalogue.items)
    same = ItemsBody(0.0, [(id, b"", ["c"], None, None) for id in catalogue.items], [], replace=True)
    history.apply(201, same)
    assert {seq: history.ids_at(seq) for seq in then} == then
    assert history.final_ids == then[200]
    assert history.is_final(200), "the same items once more are no change"
    assert all(then[seq] == then[200] for seq in then if history.is_final(seq))


def test_only_the_owner_may_read_an_export(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / f".events.parquet.{os.getpid()}.tmp").write_bytes(b"left by an export that was killed")
    before = os.umask(0)
    try:
        done = export(inside.store, tmp_path / "events.parquet")
    finally:
        os.umask(before)
    assert len(done.files) > 1
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in done.files} == {0o600}
