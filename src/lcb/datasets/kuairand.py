"""KuaiRand: short videos, some of them shown at random (Gao et al. 2022, CIKM, arXiv:2208.08696).

    log_random_*.csv             user_id,video_id,date,hourmin,time_ms,is_click,...,is_rand,tab
    log_standard_*.csv           the same, of the app's own policies
    video_features_basic_*.csv   video_id,...,tag; tag is a list such as 12,65

A random exposure is drawn uniformly from 7,583 videos, so its propensity is 1/7583.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from lcb.datasets.dataset import Dataset
from lcb.storage.importing.bad_rows import Problems
from lcb.storage.importing.items import read_item_table
from lcb.storage.importing.source import Chunk, Source
from lcb.storage.tables.formats.delimited import open_csv
from lcb.storage.tables.table import Kind

N_POOL = 7583
_RANDOM, _STANDARD = "log_random_*.csv", "log_standard_*.csv"
_PATTERNS = {"random": [_RANDOM], "standard": [_STANDARD], "all": [_RANDOM, _STANDARD]}
_VIDEOS = "video_features_basic_*.csv"
_COLUMNS = {"user": "user_id", "item": "video_id", "order": "time_ms", "reward": "is_click"}
_KINDS: dict[str, Kind] = {"user_id": "id", "video_id": "id", "time_ms": "text", "is_click": "number"}


def _open_source(folder: Path, part: str) -> Source:
    logs = [path for pattern in _PATTERNS[part] for path in _find_files(folder, pattern)]
    videos = _find_files(folder, _VIDEOS)[0]
    tables = [open_csv(str(path)) for path in logs]

    def chunks(problems: Problems) -> Iterator[Chunk]:
        for table in tables:
            for batch, rows in table.batches(_KINDS, problems.add_unread):
                columns: dict[str, Any] = {role: batch.column(name) for role, name in _COLUMNS.items()}
                if part == "random":
                    columns["propensity"] = pa.array([1 / N_POOL]).take(pa.nulls(len(rows), pa.int32()).fill_null(0))
                yield Chunk(table.path, columns, rows)

    items = read_item_table(open_csv(str(videos)), "video_id", "tag", None, ",", whole=True)
    name = f"KuaiRand ({part})"
    return Source(name, chunks, (*logs, videos), _COLUMNS, items=items, only_met=True, whole=("user", "item"))


def _find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files of the folder, or of the folder `data` in it."""
    return sorted(folder.glob(pattern)) or sorted((folder / "data").glob(pattern))


DATASET = Dataset(
    name="kuairand",
    title="KuaiRand",
    where="https://kuairand.com (https://zenodo.org/records/10439422)",
    licence="CC BY-SA 4.0",
    files="log_random_*.csv, log_standard_*.csv and video_features_basic_*.csv",
    reading="an event is a video shown, its reward is_click; categories are the tags; the random log has the "
    "propensity 1/7583, with --part standard or all there is none",
    is_in=lambda folder: all(_find_files(folder, pattern) for pattern in (_RANDOM, _STANDARD, _VIDEOS)),
    source=_open_source,
    parts=("random", "standard", "all"),
)
