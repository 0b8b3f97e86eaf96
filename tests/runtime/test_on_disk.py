"""Arrays in files: the same numbers, no file left, and a full disk refused before anything is lost."""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
import pytest

from lcb.errors import InputError
from lcb.runtime.on_disk import allocate
from lcb.stats import StatsBuilder


def is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_statistics_in_files_are_those_in_memory(tmp_path, dtype):
    rng = np.random.default_rng(0)
    user, x, reward = rng.integers(20_000, size=50_000), rng.standard_normal((50_000, 2)), rng.random(50_000)
    found = []
    for folder in (None, tmp_path):
        builder = StatsBuilder(2, folder=folder)
        for rows in np.array_split(np.arange(len(user)), 3):  # the files grow
            builder.add_at(user[rows], x[rows], reward[rows])
        found.append(builder.build(dtype, users=()))
        assert is_mapped(found[-1].packed) == (folder is not None)
    np.testing.assert_array_equal(found[0].packed, found[1].packed)
    assert found[1].packed.flags.c_contiguous
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    def refuse(descriptor, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(InputError, match=r"cannot hold 8 GB of statistics \(No space left on device\); make room"):
        allocate((1000, 10**6), np.float64, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"cannot hold .* \(No such file or directory\)"):
        allocate((1, 1), np.float64, tmp_path / "none")
