"""Work that would not fit into memory is refused before it starts; the memory that is free is pretended."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lcb.errors import InputError
from lcb.evaluate.offline.labels import read_labels
from lcb.runtime.memory import need_memory, read_free_memory
from lcb.stats import StatsBuilder
from lcb.storage.importing.import_log import import_log
from lcb.storage.importing.table_source import Columns, table_source
from lcb.storage.logs.log import open_log


@pytest.fixture
def free(monkeypatch):
    """A function that sets the free memory, in bytes."""
    monkeypatch.setattr("lcb.runtime.memory._SMALL", 0)
    return lambda n_bytes: monkeypatch.setattr("lcb.runtime.memory.read_free_memory", lambda: n_bytes)


def test_a_tenth_of_what_is_free_is_left(free):
    free(1e9)
    need_memory(0.89e9, "numbers", "ask for fewer")
    with pytest.raises(InputError, match=r"numbers need about 0\.9 GB of memory, 1\.0 GB are free; ask for fewer"):
        need_memory(0.91e9, "numbers", "ask for fewer")


def test_what_is_free_is_found():
    assert 1e7 < read_free_memory() < 1e15


def test_statistics_that_grow_beyond_memory_are_refused_and_those_on_disk_are_not(free, tmp_path):
    free(2e6)
    user, x, reward = np.arange(2000), np.ones((2000, 20)), np.ones(2000)
    builder = StatsBuilder(20)
    with pytest.raises(InputError, match=r"statistics of 2,000 users or more over 20 features .*\(--on-disk\)"):
        builder.add_at(user, x, reward)
    on_disk = StatsBuilder(20, folder=tmp_path)
    on_disk.add_at(user, x, reward)
    assert on_disk.build().n_users == 2000


def test_numbers_kept_with_every_event_are_refused_by_an_import(free, tmp_path):
    columns = {"user": np.arange(500), "item": np.arange(500), "x": [[0.5] * 50] * 500}
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    source = table_source(tmp_path / "events.parquet", Columns(features=("x",)))
    free(2e5)
    with pytest.raises(InputError, match=r"500 rows at a time, with 50 numbers kept of each, .* --item-features"):
        import_log(source, tmp_path / "log")
    assert not (tmp_path / "log").exists()
    free(2e6)
    assert import_log(source, tmp_path / "log").n_events == 500


def test_labels_of_many_users_for_many_categories_are_refused(free, tmp_path):
    n = 300
    pq.write_table(
        pa.table({"user": np.arange(n), "item": np.arange(n), "reward": np.arange(n) % 2.0}),
        tmp_path / "events.parquet",
    )
    categories = [[f"c{i}"] for i in range(n)]
    pq.write_table(pa.table({"item": np.arange(n), "categories": categories}), tmp_path / "items.parquet")
    log = open_log(tmp_path)
    free(1e6)
    with pytest.raises(InputError, match=r"labels of 300 users for 300 categories need .*--arms items"):
        read_labels(log, "labels")
