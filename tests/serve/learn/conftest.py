from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(str(tmp_path / "lcb.db"))
    yield opened
    opened.close()
